package model

import (
	"errors"
	"slices"
	"testing"

	"sparrow/internal/model/usage"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// Choices of rows with a token are counted and choices of padding rows are not. Every reading adds the new counts, also
// if a counter has wrapped around.
func TestTally(t *testing.T) {
	dev := &ref.Device{}
	tally, err := NewTally(dev, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	ints := func(rows, cols int, v ...int32) kernel.Tensor {
		x, err := kernel.New(dev, kernel.I32, rows, cols)
		if err == nil {
			err = kernel.WriteI32(dev, x, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	ids, seen := ints(3, 2, 0, 3, 1, 1, 3, 2), ints(3, 1, 5, 0, 1)
	list := kernel.NewBuilder(dev, kernel.Member{})
	pass := func() {
		g := Choices{out: &Outputs{}}
		g.Count(tally, seen)
		tap := g.ExpertTap(1)
		tap.Pass(list, ids, kernel.Tensor{})
		if err := list.Run(); err != nil {
			t.Fatal(err)
		}
	}
	u := usage.New("x", 3, 4, 2)
	for i := range uint64(3) {
		pass()
		if err := tally.Read(u); err != nil {
			t.Fatal(err)
		}
		if want := []uint64{i + 1, 0, i + 1, 2 * (i + 1)}; !slices.Equal(u.Counts[1], want) {
			t.Errorf("after %d passes %v, want %v", i+1, u.Counts[1], want)
		}
	}
	if u.Counts[0] != nil || u.Counts[2] != nil {
		t.Errorf("layers without choices have counts: %v", u.Counts)
	}
	for e := range tally.last { // sets the counts of the previous reading
		tally.last[e] -= 5
	}
	if err := tally.Read(u); err != nil || u.Counts[1][1] != 5 {
		t.Errorf("%v, %v", u.Counts[1], err)
	}
	tally.last[4] = 1<<32 - 2 // the counter is now 3, so it has wrapped around
	if err := tally.Read(u); err != nil || u.Counts[1][0] != 3+5+5 {
		t.Errorf("%v, %v", u.Counts[1], err)
	}
	if err := kernel.WriteI32(dev, ids, []int32{0, 4, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	list.Add(kernel.TallyArgs{Counts: tally.layer(0), IDs: ids, Seen: seen})
	if err := list.Run(); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("expert 4 of 4: %v", err)
	}
}

// plain is a device without optional interfaces.
type plain struct{ kernel.Device }

func TestDevicesThatDoNotCount(t *testing.T) {
	dev := plain{&ref.Device{}}
	if _, err := NewTally(dev, 1, 1); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// BenchmarkTally counts the choices of a decode step of 32 rows in one layer: 6 of 256 experts for each.
func BenchmarkTally(b *testing.B) {
	dev := &ref.Device{}
	tally, err := NewTally(dev, 1, 256)
	if err != nil {
		b.Fatal(err)
	}
	ids, err := kernel.New(dev, kernel.I32, 32, 6)
	if err != nil {
		b.Fatal(err)
	}
	seen, err := kernel.New(dev, kernel.I32, 32, 1)
	if err == nil {
		err = kernel.WriteI32(dev, seen, slices.Repeat([]int32{1}, 32))
	}
	if err != nil {
		b.Fatal(err)
	}
	list := kernel.NewBuilder(dev, kernel.Member{})
	list.Add(kernel.TallyArgs{Counts: tally.layer(0), IDs: ids, Seen: seen})
	p, err := list.Compile()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := p.Run(0, 1); err != nil {
			b.Fatal(err)
		}
	}
}
