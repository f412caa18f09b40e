package block

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/testkit/table"
)

// A block that is read as integers has the values that it decodes to.
func TestWholeBlocksHaveTheirValues(t *testing.T) {
	read := 0
	for _, f := range Formats() {
		if f.Values() != 256 {
			continue
		}
		r := rand.New(rand.NewPCG(5, uint64(f)))
		data, values := make([]byte, f.Bytes()), make([]float32, f.Values())
		for range 60 {
			f.Random(data, r)
			var w Whole
			if !w.Read(f, data) {
				break
			}
			read++
			f.Decode(values, data)
			for i, want := range values {
				got := float64(w.D) * float64(w.Scales[i/16]) * float64(w.Codes[i])
				if math.Abs(got-float64(want)) > 1e-6*math.Abs(float64(want)) {
					t.Fatalf("%v: value %d is %v, want %v", f, i, got, want)
				}
			}
		}
	}
	if read < 5*60 {
		t.Errorf("only %d blocks can be read as integers", read)
	}
}

// Drawn blocks have the standard deviation that was requested, and about as many negative values as positive ones.
func TestDrawnBlocksAreSpreadAsAsked(t *testing.T) {
	drawn := 0
	for _, f := range Formats() {
		r := rand.New(rand.NewPCG(6, uint64(f)))
		data, values := make([]byte, 64*f.Bytes()), make([]float32, 64*f.Values())
		for _, spread := range []float32{0.02, 3} {
			err := f.Draw(data, r, spread)
			if (err == nil) != f.Drawable() {
				t.Fatalf("%v: drawable %v, but %v", f, f.Drawable(), err)
			}
			if err != nil {
				continue
			}
			drawn++
			f.Decode(values, data)
			var sum, squares float64
			for _, v := range values {
				sum += float64(v)
				squares += float64(v) * float64(v)
			}
			n := float64(len(values))
			if got := math.Sqrt(squares / n); math.Abs(got/float64(spread)-1) > 0.02 {
				t.Errorf("%v: the standard deviation is %v, want %v", f, got, spread)
			}
			if mean := sum / n; math.Abs(mean) > 0.2*float64(spread) {
				t.Errorf("%v: the mean is %v with a standard deviation of %v", f, mean, spread)
			}
		}
	}
	if drawn < 20 {
		t.Errorf("only %d draws", drawn)
	}
}

// Random blocks of every format, and the values that they decode to, equal those of the golden table.
func TestTableOfBlocks(t *testing.T) {
	var lines []string
	for _, f := range Formats() {
		const blocks = 24
		data, values := make([]byte, blocks*f.Bytes()), make([]float32, blocks*f.Values())
		f.Random(data, rand.New(rand.NewPCG(7, uint64(f))))
		f.Decode(values, data)
		h := fnv.New32a()
		h.Write(data)
		random := h.Sum32()
		h.Reset()
		for _, v := range values {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		lines = append(lines, fmt.Sprintf("%v: %08x decodes to %08x, begins with %v", f, random, h.Sum32(), values[:4]))
	}
	table.Check(t, "blocks.txt", lines)
}
