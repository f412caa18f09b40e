// Package family opens checkpoints: it reads config.json, maps the weights and loads the model of the right family.
package family

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/model/dsa"
	"sparrow/model/nn"
	"sparrow/weight"
)

// Source is an opened checkpoint whose weights are not loaded yet.
type Source struct {
	Name    string // the folder, for messages
	Config  *config.Config
	Weights *weight.Checkpoint
}

// Open reads the config and maps the weights of a checkpoint folder.
func Open(dir string) (*Source, error) {
	c, err := config.Open(dir)
	if err != nil {
		return nil, err
	}
	w, err := weight.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Source{Name: dir, Config: c, Weights: w}, nil
}

// Close unmaps the weights. Models loaded from the source must no longer be used.
func (s *Source) Close() error { return s.Weights.Close() }

// Load places the weights on a device. onTensor, when not nil, is called once for each tensor, for progress bars.
func (s *Source) Load(dev kernel.Device, onTensor func(name string)) (model.Model, error) {
	l := nn.NewLoader(s.Weights, dev, onTensor)
	switch s.Config.Family {
	case config.DeepseekV32, config.GLMMoeDSA:
		m, err := dsa.Load(s.Config, l, dev)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("%s: %w: %q", s.Name, config.ErrFamily, s.Config.Family)
}
