package placement

import (
	"slices"
	"strings"
	"testing"
)

func TestUniform(t *testing.T) {
	for _, c := range []struct {
		share    float64
		resident []int
	}{{0, []int{0, 1, 2, 3}}, {0.5, []int{0, 1}}, {0.6, []int{0, 1}}, {1, nil}, {7, nil}, {-1, []int{0, 1, 2, 3}}} {
		p := Uniform(3, 4, c.share)
		if err := p.Check(3, 4); err != nil {
			t.Fatal(err)
		}
		for l := range 3 {
			if got := p.Resident(l); !slices.Equal(got, c.resident) {
				t.Errorf("share %v, layer %d: resident %v, want %v", c.share, l, got, c.resident)
			}
			if got := len(p.OnHost(l)); got != 4-len(c.resident) {
				t.Errorf("share %v, layer %d: %d experts on the host", c.share, l, got)
			}
		}
	}
}

// An expert that is resident in one phase only has a copy in both memories.
func TestBothMemories(t *testing.T) {
	p := Uniform(1, 3, 0)
	p.Prefill[0][1] = Computed
	if r, h := p.Resident(0), p.OnHost(0); !slices.Equal(r, []int{0, 1, 2}) || !slices.Equal(h, []int{1}) {
		t.Errorf("resident %v, on the host %v", r, h)
	}
	if n := p.Layer(0).OnHost(); n != 1 {
		t.Errorf("%d experts on the host", n)
	}
}

func TestOneArithmetic(t *testing.T) {
	var none *Placement
	for want, list := range map[bool][]*Placement{
		true:  {none, Uniform(2, 4, 0.5), Split(2, 4, 0.5, Fetched, Fetched), Split(2, 4, 0.5, Resident, Fetched)},
		false: {Split(2, 4, 0.5, Computed, Fetched), Split(1, 4, 0.25, Resident, Computed)},
	} {
		for i, p := range list {
			if got := p.OneArithmetic(); got != want {
				t.Errorf("placement %d: %v, want %v", i, got, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	var none *Placement
	if err := none.Check(3, 4); err != nil || none.Layer(1).Decode != nil {
		t.Errorf("no placement: %v", err)
	}
	for _, c := range []struct {
		spoil func(*Placement)
		want  string
	}{
		{func(p *Placement) { p.Prefill = p.Prefill[:1] }, "2 layers of decode and 1 of prefill"},
		{func(p *Placement) { p.Decode[1] = p.Decode[1][:2] }, "layer 1 has methods for 2 experts"},
		{func(p *Placement) { p.Prefill[0][3] = 9 }, "expert 3 of layer 0 has resident for decode and method(9)"},
	} {
		p := Uniform(2, 4, 0)
		c.spoil(p)
		if err := p.Check(2, 4); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	p := Uniform(2, 4, 0)
	p.Decode[0], p.Prefill[0] = nil, nil // a layer without experts
	if err := p.Check(2, 4); err != nil {
		t.Error(err)
	}
}
