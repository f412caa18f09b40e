package kernel_test

import (
	"errors"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// marking is a device that notes stages.
type marking struct {
	kernel.Device
	reached kernel.Mark
	fail    error
}

func (d *marking) Mark(m kernel.Mark) error {
	d.reached = m.Stage()
	return d.fail
}

func (d *marking) Reached() kernel.Mark { return d.reached }

// A queue says which operation was enqueued last, and what the device notes.
func TestPlace(t *testing.T) {
	q := kernel.NewQueue(&ref.Device{})
	if got := q.Place(); got != "enqueued last: no operation" {
		t.Errorf("before the first: %q", got)
	}
	q.At("attention", 3)
	q.Copy(kernel.CopyArgs{}) // fails, and has begun
	if got := q.Place(); got != "enqueued last: copy in attention of layer 3" {
		t.Errorf("an operation of a layer: %q", got)
	}
	if q.Done() == nil {
		t.Error("a copy of nothing succeeded")
	}
	dev := &marking{Device: &ref.Device{}}
	q = kernel.NewQueue(dev)
	q.At("head", -1)
	q.Norm(kernel.NormArgs{})
	if err := q.Done(); err == nil {
		t.Error("a norm of nothing succeeded")
	}
	q.At("head", -1)
	q.Take(kernel.TakeArgs{})
	if got := q.Place(); got != "the device is in head, one of norm, take; enqueued last: take in head" {
		t.Errorf("a device that notes stages: %q", got)
	}
	_ = q.Done() // the arguments were refused
	dev.fail = errors.New("no mark")
	q.Take(kernel.TakeArgs{})
	if err := q.Done(); !errors.Is(err, dev.fail) {
		t.Errorf("a mark that fails: %v", err)
	}
}
