package pair_test

import (
	"encoding/binary"
	"testing"

	"sparrow/internal/num"
	"sparrow/internal/testkit/pair"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// wider is a reference whose norms are larger than they should be.
type wider struct{ kernel.Device }

func (d wider) Do(op kernel.Op) error {
	if a, ok := op.(kernel.NormArgs); ok {
		a.Eps = 0
		op = a
	}
	return d.Device.Do(op)
}

// The pair runs each operation on both devices and compares the results. The second device continues with the results
// of the first.
func TestSettle(t *testing.T) {
	sm90 := kernel.Hardware{Arch: "sm90"}
	found := pair.Differences{}
	var d *pair.Device
	d = pair.On(wider{rounded.On(&ref.Device{}, sm90)}, rounded.On(&ref.Device{}, sm90), func(c pair.Call) error {
		if err := c.First(); err != nil {
			return err
		}
		if err := c.Second(); err != nil {
			return err
		}
		return d.Settle(c, found)
	})
	defer d.Close()
	x, err := kernel.New(d, kernel.BF16, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	w, err := kernel.New(d, kernel.F32, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	in := []byte{0x80, 0x3F, 0x80, 0x3F, 0, 0x40, 0, 0xC0} // the rows 1, 1 and 2, -2
	if err := d.Write(x, in); err != nil {
		t.Fatal(err)
	}
	if err := kernel.WriteF32(d, w, []float32{1, 1}); err != nil {
		t.Fatal(err)
	}
	if err := kernel.Do(d, kernel.NormArgs{Out: x, X: x, Weight: w, Eps: 3}); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 8)
	if err := d.Read(raw, x); err != nil {
		t.Fatal(err)
	}
	// Without eps every value becomes 1 or -1. With eps the values are 1/2 and 2/sqrt(7), which is 0.7559.
	for i, want := range []float32{1, 1, 1, -1} {
		if got := num.FromBF16(binary.LittleEndian.Uint16(raw[2*i:])); got != want {
			t.Errorf("element %d is %v, want %v of the first device", i, got, want)
		}
	}
	o := found["NormArgs.Out"]
	if o == nil || o.Calls != 1 || o.Elements != 4 || o.Unequal != 4 {
		t.Fatalf("differences %+v", o)
	}
	if worst := 0.5 / 0.7578125; o.Worst < worst-1e-3 || o.Worst > worst+1e-3 {
		t.Errorf("the largest relative difference is %v, want %v", o.Worst, worst)
	}
	if n := found["NormArgs.Weight"]; n == nil || n.Unequal != 0 {
		t.Errorf("equal inputs differ: %+v", n)
	}
}
