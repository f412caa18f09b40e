package kernel_test

import (
	"errors"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// marking is a device that records the stages that it is given.
type marking struct {
	kernel.Device
	reached kernel.Mark
	fail    error
}

func (d *marking) Mark(m kernel.Mark) error {
	d.reached = m
	return d.fail
}

func (d *marking) Reached() kernel.Mark { return d.reached }

// A builder reports the operation that was enqueued last and the stage that the device recorded last.
func TestPlace(t *testing.T) {
	x, y, ids := tensor(t, kernel.F32, 1, 4), tensor(t, kernel.F32, 1, 4), tensor(t, kernel.I32, 1, 1)
	list := kernel.NewBuilder(&ref.Device{}, kernel.Member{})
	if got := list.Place(); got != "enqueued last: no operation" {
		t.Errorf("before the first: %q", got)
	}
	list.At("attention", 3)
	list.Add(kernel.CopyArgs{Out: y, X: x})
	if err := list.Run(); err != nil {
		t.Fatal(err)
	}
	if got := list.Place(); got != "enqueued last: copy in attention of layer 3" {
		t.Errorf("an operation of a layer: %q", got)
	}
	dev := &marking{Device: &ref.Device{}}
	list = kernel.NewBuilder(dev, kernel.Member{})
	list.At("head", -1)
	list.Add(kernel.CopyArgs{Out: y, X: x})
	list.Add(kernel.TakeArgs{Out: y, X: x, Rows: ids})
	if err := list.Run(); err != nil {
		t.Fatal(err)
	}
	if got := list.Place(); got != "the device is in head, one of copy, take; enqueued last: take in head" {
		t.Errorf("a device that notes stages: %q", got)
	}
	for _, m := range []kernel.Mark{0, 2, 1<<16 | 2} { // there is one stage
		dev.reached = m
		if got := list.Place(); got != "the device is in no operation; enqueued last: take in head" {
			t.Errorf("mark %d of no stage: %q", m, got)
		}
	}
	dev.fail = errors.New("no mark")
	list.Add(kernel.CopyArgs{Out: y, X: x})
	if err := list.Run(); !errors.Is(err, dev.fail) {
		t.Errorf("a mark that fails: %v", err)
	}
}
