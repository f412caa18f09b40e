package placement

import (
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/usage"
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

// An expert that is resident in only one phase has a copy in both memories.
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

// Experts that are chosen clearly more often than resident ones of their layer replace them, starting with the largest
// gain. Small differences move no expert.
func TestSwaps(t *testing.T) {
	p := Split(3, 6, 0.5, Computed, Fetched) // experts 3, 4 and 5 are in host memory
	p.Prefill[2][0] = Computed               // this expert is resident only for decodes and stays
	u := usage.New("x", 3, 6, 2)
	u.Add(0, []uint64{100, 10, 20, 90, 30, 40})
	u.Add(2, []uint64{0, 100, 100, 165, 500, 170})
	got := p.Swaps(u)
	want := []Swap{{Layer: 2, In: 4, Out: 1, Gain: 400}, {Layer: 0, In: 3, Out: 1, Gain: 80},
		{Layer: 2, In: 5, Out: 2, Gain: 70}}
	if !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for _, s := range got {
		if err := p.Swap(s); err != nil {
			t.Fatal(err)
		}
	}
	if again := p.Swaps(u); len(again) > 0 {
		t.Errorf("%v move again", again)
	}
	if p.Decode[2][4] != Resident || p.Prefill[2][1] != Fetched || p.Decode[2][1] != Computed {
		t.Errorf("layer 2 has %v and %v", p.Decode[2], p.Prefill[2])
	}
	if err := p.Swap(want[0]); err == nil {
		t.Error("an expert that is resident came once more")
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
		{func(p *Placement) { p.Prefill[0][3] = 9 },
			"expert 3 of layer 0 has method resident for decode and method(9) for prefill"},
	} {
		p := Uniform(2, 4, 0)
		c.spoil(p)
		if err := p.Check(2, 4); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	p := Uniform(2, 4, 0)
	p.Decode[0], p.Prefill[0] = nil, nil // layer 0 has no experts
	if err := p.Check(2, 4); err != nil {
		t.Error(err)
	}
}

// Where an expert is follows from its methods for decodes and for prompts: whether either memory has a copy, whether it
// may move to the device or away from it, and whether the methods are known.
func TestEveryPairOfMethods(t *testing.T) {
	for _, decode := range []Method{Resident, Computed, Fetched, 9} {
		for _, prefill := range []Method{Resident, Computed, Fetched, 9} {
			p := Split(1, 4, 0.25, Computed, Fetched) // expert 3 is in host memory
			p.Decode[0][1], p.Prefill[0][1] = decode, prefill
			known := decode != 9 && prefill != 9
			if err := p.Check(1, 4); (err == nil) != known {
				t.Errorf("%v and %v: error %v", decode, prefill, err)
			}
			if !known {
				continue
			}
			device, host := decode == Resident || prefill == Resident, decode != Resident || prefill != Resident
			if slices.Contains(p.Resident(0), 1) != device || slices.Contains(p.OnHost(0), 1) != host {
				t.Errorf("%v and %v: on the device %v, on the host %v", decode, prefill, p.Resident(0), p.OnHost(0))
			}
			// Expert 1 is chosen less than expert 3 in the first case and more than all others in the second.
			in, out := usage.New("x", 1, 4, 2), usage.New("x", 1, 4, 2)
			in.Add(0, []uint64{500, 500, 500, 0})
			out.Add(0, []uint64{500, 0, 500, 500})
			in.Counts[0][1], in.Counts[0][0], in.Counts[0][2] = 5000, 1, 1
			if moves := slices.ContainsFunc(p.Swaps(in), func(s Swap) bool { return s.In == 1 }); moves != !device {
				t.Errorf("%v and %v: moves to the device: %t", decode, prefill, moves)
			}
			if moves := slices.ContainsFunc(p.Swaps(out), func(s Swap) bool { return s.Out == 1 }); moves != !host {
				t.Errorf("%v and %v: moves away: %t", decode, prefill, moves)
			}
		}
	}
	p := Uniform(2, 4, 0)
	for layer, want := range map[int]int{-1: 0, 0: 4, 1: 4, 2: 0} {
		if m := p.Layer(layer); len(m.Decode) != want || len(m.Prefill) != want {
			t.Errorf("layer %d has methods for %d and %d experts, want %d", layer, len(m.Decode), len(m.Prefill), want)
		}
	}
}
