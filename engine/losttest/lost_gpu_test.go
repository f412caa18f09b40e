package losttest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/engine"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/sample"
)

// stray is a device on which one operation reads freed memory.
type stray struct {
	kernel.Device
	calls atomic.Int32
	at    int32
}

// Do runs the faulty operation, and passes all other operations to the device.
func (d *stray) Do(op kernel.Op) error {
	switch a := op.(type) {
	case kernel.NormArgs:
		return d.Norm(a)
	}
	return d.Device.Do(op)
}

func (d *stray) Norm(a kernel.NormArgs) error {
	if d.calls.Add(1) == d.at {
		b, err := d.Alloc(256 << 20) // large enough that the driver unmaps it when it is freed
		if err != nil {
			return err
		}
		freed := *b.(*op.Buffer) // keeps the address after the memory is freed
		d.Free(b)
		a.X.Buf, a.X.Off = &freed, 0
	}
	return d.Device.Do(a)
}

// If a kernel reads an illegal address, running and waiting requests end with an error that names the fault. Later
// requests are refused, and the engine can be closed.
func TestGPUIllegalAddress(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	src, err := family.Open("../../testdata/oracle/deepseek_v32-fp8-1")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	gpu, err := op.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	dev := &stray{Device: gpu, at: 60}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(m, engine.Config{StepTokens: 256, MaxRunning: 4, MaxQueue: 16, CacheTokens: 4096,
		PlanHistory: 4, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	greedy := sample.Default()
	greedy.Temperature = 0
	request := engine.Request{Prompt: []int32{2, 3, 5, 7, 11}, Sampling: greedy, MaxTokens: 200, IgnoreEOS: true}
	var jobs []*engine.Job
	for range 8 {
		j, err := e.Submit(request)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	go e.Run()
	for i, j := range jobs {
		last := j.Next()
		for !last.Last {
			last = j.Next()
		}
		if !errors.Is(last.Err, engine.ErrDevice) || !errors.Is(last.Err, kernel.ErrLost) ||
			!strings.Contains(last.Err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("request %d ended with %q, %v", i, last.Finish, last.Err)
		}
		if i == 0 {
			t.Log(last.Err)
		}
	}
	if _, err := e.Submit(request); !errors.Is(err, engine.ErrDevice) {
		t.Errorf("a request after the fault: %v", err)
	}
	if st := e.Stats(); st.Device == "" || st.Failed != int64(len(jobs)) || st.KV.Used != 0 {
		t.Errorf("Stats.Device is %q, %d requests failed, %d pages are in use", st.Device, st.Failed, st.KV.Used)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	e.Close(ctx)
	if err := gpu.Close(); !errors.Is(err, kernel.ErrLost) {
		t.Errorf("closing the device: %v", err)
	}
}
