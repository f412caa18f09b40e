// Package calibrate computes importance matrices: the mean squares of the inputs of every matrix of a model while it
// processes a text. Quantisation weighs errors with them.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"sparrow"
	"sparrow/internal/eval"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/spec"
	"sparrow/kernel"
)

// Measure runs the text through the model of src on a CPU, as MeasurePerplexity does. It returns the perplexity, and a
// function that finds the mean squares of a matrix's inputs by its memory in the checkpoint ([Device.MeanSquares]).
// c is the configuration that opens the same checkpoint.
func Measure(ctx context.Context, c sparrow.Config, src *family.Source, text string, chunk int,
	onChunk func(done, total int, p float64)) (p *eval.Perplexity, of func(matrix []byte) []float32, err error) {
	var dev *Device
	c.Kernels, c.Draft, c.NoReuse, c.PromptsOnly = "cpu", spec.Off(), true, true
	c.Substitute = func(loaded model.Model) (model.Model, error) {
		cpu, ok := loaded.Device().(kernel.Device)
		if !ok {
			return nil, fmt.Errorf("%s is not a single device; want one CPU", loaded.Device().Name())
		}
		dev = On(cpu)
		return src.Load(dev, nil)
	}
	e, err := sparrow.Open(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	// The engine no longer uses the device when it is closed. It must be closed even if ctx was cancelled.
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	if p, err = eval.MeasurePerplexity(ctx, e, text, chunk, 0, onChunk); err != nil {
		return nil, nil, err
	}
	if math.IsNaN(p.Perplexity) || math.IsInf(p.Perplexity, 0) {
		return nil, nil, fmt.Errorf("the perplexity is %v, so the model's values are not finite; check the "+
			"checkpoint with sparrow inspect", p.Perplexity)
	}
	return p, dev.MeanSquares(), nil
}
