package vec

import (
	"runtime/debug"
	"sync"
	"testing"
)

func TestTiersEndInPlainGo(t *testing.T) {
	tiers := Tiers()
	if last := tiers[len(tiers)-1]; last.Name != "go" {
		t.Fatalf("last tier is %q", last.Name)
	}
	if Best() != tiers[0] {
		t.Fatalf("best tier is %q, first is %q", Best().Name, tiers[0].Name)
	}
	seen := map[string]bool{}
	for _, tier := range tiers {
		if seen[tier.Name] {
			t.Fatalf("tier %q is listed twice", tier.Name)
		}
		seen[tier.Name] = true
	}
	tiers[0] = nil
	if Best() == nil {
		t.Fatal("the list of tiers is shared with callers")
	}
}

// The results of tiers agree within rounding: no element of a product differs from that of plain Go by more than the
// error bounds of the sums.
func TestTiersAgree(t *testing.T) {
	a := newMatrix(newRand(12), 13, 40, 300, 1, 64)
	eachFormat(func(format int) {
		want := a.run(portable, format, 0, a.m, 0, a.n)
		for _, tier := range Tiers() {
			got := a.run(tier, format, 0, a.m, 0, a.n)
			for i := range got {
				if d := float64(got[i] - want[i]); d > 1e-3 || d < -1e-3 {
					t.Fatalf("%s %s: element %d is %v, go has %v", tier.Name, formatNames[format], i, got[i], want[i])
				}
			}
		}
	})
}

// All workers share a tier, so concurrent calls must not share scratch memory.
func TestTiersAreSafeForConcurrentUse(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		a := newMatrix(newRand(13), 20, 30, 333, 0, 7)
		want := a.run(tier, testFP8, 0, a.m, 0, a.n)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 20 {
					row := (g + i) % a.m
					got := a.run(tier, testFP8, row, 1, 0, a.n)
					for j := range got {
						if !same(got[j], want[row*a.n+j]) {
							t.Errorf("row %d column %d differs", row, j)
							return
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

// Decoding does not allocate, because the assembly tiers reuse their scratch memory.
func TestAssemblyTiersDoNotAllocate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	a := newMatrix(newRand(14), 13, 20, 200, 0, 0).withPowerScales()
	tr := newTransposed(newRand(15), 13, 20, 200, 0, 0)
	q, w, keys, scales := queryAndKeys(5, 32, 70)
	y := make([]float32, a.m*a.n)
	for _, tier := range Tiers() {
		if tier.Name == "go" {
			continue
		}
		block := NewIndexBlock(tier)
		for name, call := range map[string]func(){
			"MatMulF32":  func() { a.into(tier, testF32, y) },
			"MatMulBF16": func() { a.into(tier, testBF16, y) },
			"MatMulFP8":  func() { a.into(tier, testFP8, y) },
			"one row": func() {
				tier.MatMulFP8(y, a.n, a.x, a.ldx, 1, a.fp8, a.ldw, a.n, a.k, a.scale, a.ldScale, 0)
			},
			"AccumulateFP8":   func() { tr.run(tier, testFP8, tr.y, 0, tr.m, 0, tr.d, 0) },
			"Dot":             func() { tier.Dot(a.x, a.x) },
			"ExpSum":          func() { tier.ExpSum(y, y, 1) },
			"Max":             func() { tier.Max(y) },
			"SiluMul":         func() { tier.SiluMul(y, y, y) },
			"WidenE4M3":       func() { tier.WidenE4M3(y, a.fp8[:len(y)], 2) },
			"WidenE4M3Groups": func() { tier.WidenE4M3Groups(y, a.fp8[:len(y)], Groups{2}, len(y)) },
			"IndexBlock": func() {
				block.Reset(1)
				block.Append(keys, scales, 70)
				block.Scores(y[:70], q, w, 32)
			},
		} {
			if n := testing.AllocsPerRun(20, call); n != 0 {
				t.Errorf("%s: %s allocates %v times a call", tier.Name, name, n)
			}
		}
	}
}
