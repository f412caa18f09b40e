package sample

import (
	"math"
	"testing"
)

// TestPhilox uses the known answers published with the generator (Random123, kat_vectors, philox4x32 with 10 rounds).
func TestPhilox(t *testing.T) {
	const all = math.MaxUint32
	cases := []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	}
	for _, c := range cases {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

func TestUniformDependsOnEachArgument(t *testing.T) {
	base := Uniform(1, 2, 3, StreamToken)
	if base != Uniform(1, 2, 3, StreamToken) {
		t.Error("not a function of its arguments")
	}
	for name, other := range map[string]float64{
		"seed":      Uniform(2, 2, 3, StreamToken),
		"high seed": Uniform(1+1<<40, 2, 3, StreamToken),
		"sign":      Uniform(-1, 2, 3, StreamToken),
		"choice":    Uniform(1, 3, 3, StreamToken),
		"step":      Uniform(1, 2, 4, StreamToken),
		"stream":    Uniform(1, 2, 3, StreamAccept),
	} {
		if other == base {
			t.Errorf("%s does not change the number", name)
		}
	}
}

func TestUniformIsUniform(t *testing.T) {
	const draws = 20000
	sum, square := 0.0, 0.0
	for i := range draws {
		u := Uniform(42, 0, i, StreamToken)
		if u < 0 || u >= 1 {
			t.Fatalf("step %d: %v is outside [0, 1)", i, u)
		}
		sum += u
		square += u * u
	}
	mean := sum / draws
	if math.Abs(mean-0.5) > 0.008 { // the bound is four standard errors
		t.Errorf("mean %v", mean)
	}
	if v := square/draws - mean*mean; math.Abs(v-1.0/12) > 0.003 {
		t.Errorf("variance %v", v)
	}
}
