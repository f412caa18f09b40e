package rounded_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"sparrow/internal/num"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// Results equal those of the reference, rounded to bfloat16, also in place and in views with a stride.
func TestRounds(t *testing.T) {
	d := rounded.On(&ref.Device{}, kernel.Hardware{Arch: "sm90"})
	defer d.Close()
	x, err := kernel.New(d, kernel.BF16, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	w, err := kernel.New(d, kernel.F32, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	// The rows are 3, 4 | 7, 7 and 0, 2 | 7, 7. The first two columns are normalised in place and the others are
	// unchanged.
	err = errors.Join(d.Write(x,
		[]byte{0x40, 0x40, 0x80, 0x40, 0xe0, 0x40, 0xe0, 0x40, 0, 0, 0, 0x40, 0xe0, 0x40, 0xe0, 0x40}),
		kernel.WriteF32(d, w, []float32{1, 2}))
	if err != nil {
		t.Fatal(err)
	}
	view := x.Columns(0, 2)
	if err := kernel.Do(d, kernel.NormArgs{Out: view, X: view, Weight: w, Eps: 0}); err != nil {
		t.Fatal(err)
	}
	raw, got := make([]byte, 16), make([]float32, 8)
	if err := d.Read(raw, x); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = num.FromBF16(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	// The values are divided by sqrt(12.5) and sqrt(2), multiplied by the weights, and rounded to eight bits.
	if want := []float32{0.84765625, 2.265625, 7, 7, 0, 2.828125, 7, 7}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
