//go:build !purego

package vec

import (
	"errors"

	"golang.org/x/sys/cpu"
)

// assemblyTiers returns the assembly tiers that this processor can run, best first, and those that it cannot run, with
// the reason.
func assemblyTiers() (tiers []*Tier, absent []Absent) {
	x := &cpu.X86
	if err := amxReady(); err != nil {
		absent = append(absent, Absent{"amx", err})
	} else {
		tiers = append(tiers, amxTier())
	}
	switch {
	case !allowAVX512:
		absent = append(absent, Absent{"avx512", errors.New("this build was made with the tag noavx512")})
	case !hasAVX512():
		absent = append(absent, Absent{"avx512", errors.New("the processor has no AVX-512 (F, BW, DQ, VL)")})
	default:
		t := avx512.tier()
		t.ops.blocks = avx2Blocks
		if hasVNNI() {
			t.ops.blocks = vnniBlocks.withBytes()
		}
		tiers = append(tiers, t)
	}
	// There is no separate flag for half-precision conversion in x/sys/cpu; every processor with AVX2, FMA and BMI2 has
	// it.
	if x.HasAVX2 && x.HasFMA && x.HasBMI2 {
		t := avx2.tier()
		t.ops.blocks = avx2Blocks
		tiers = append(tiers, t)
	} else {
		absent = append(absent, Absent{"avx2", errors.New("the processor has no AVX2 with FMA and BMI2")})
	}
	return tiers, absent
}

func hasAVX512() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
}

// amxTier returns the AVX-512 tier with products of narrow weights on tiles.
func amxTier() *Tier {
	t := avx512.tier()
	t.Name = "amx"
	t.ops.whole = &wholeProducts{bf16: t.ops.matMulBF16, fp8: t.ops.matMulFP8, fp4: t.ops.matMulFP4}
	t.ops.newIndexScorer = newIndexTiles
	t.ops.tiled = &tiledOps{pack: packColumns, gather: packGathered, packBF16: packColumnsBF16, bf16: tiledBF16,
		fp8: tiledFP8, fp4: tiledFP4, latent: tiledLatent, dense: attendDense}
	t.ops.matMulBF16 = func(p product, w []byte) {
		packedOnce(&p, InOrder, func(c Cut) { tiledBF16(c, w, p.ldw) })
	}
	t.ops.matMulFP8 = func(p product, w []byte, s FP8Blocks) {
		if s.Rows != scaleBlock || s.Cols != scaleBlock {
			t.ops.whole.fp8(p, w, s)
			return
		}
		packedOnce(&p, Halves, func(c Cut) { tiledFP8(c, w, p.ldw, s) })
	}
	t.ops.matMulFP4 = func(p product, w, scale []byte, ldScale int) {
		if p.k > MostFP4 {
			t.ops.whole.fp4(p, w, scale, ldScale)
			return
		}
		packedOnce(&p, Nibbles, func(c Cut) { tiledFP4(c, w, p.ldw, scale, ldScale) })
	}
	t.ops.newLatentAttend, t.ops.newFloatAttend = newLatentTiles, nil
	t.ops.blocks = tileBlocks.withBytes()
	return t
}

func (s *isa) tier() *Tier {
	newIndexScorer := copiedKeys(s.indexScores)
	if s.indexLines != nil {
		newIndexScorer = func() indexScorer { return &indexColumns{columnScores: columnScores{isa: s}} }
	}
	return &Tier{Name: s.name, ops: ops{
		matMulF32:      s.matMulF32,
		matMulBF16:     s.matMulBF16,
		matMulF16:      s.matMulF16,
		matMulFP8:      s.matMulFP8,
		matMulFP4:      s.matMulFP4,
		accumulateF32:  s.accumulateF32,
		accumulateBF16: s.accumulateBF16,
		accumulateFP8:  s.accumulateFP8,
		dot:            s.dot,
		axpy:           s.vec.axpy,
		max:            s.vec.max,
		expSum:         s.vec.expSum,
		siluMul:        s.vec.siluMul,
		scaleMul:       s.vec.scaleMul,
		rotate:         s.vec.rotate,
		softmax:        s.vec.softmax,
		widenBF16:      s.vec.widenBF16,
		widenE4M3:      s.vec.widenE4M3,
		widenGroups:    s.vec.widenGroups,
		narrowBF16:     s.vec.narrowBF16,
		newIndexScorer: newIndexScorer,
		newIndexFP4:    func() indexFP4Scorer { return s.newIndexFP4(s) },
		newFloatAttend: s.newFloatAttend,
		rotateQuant:    s.rotateQuant,
		countAbove:     s.countAbove,
		collect:        s.collect,
	}}
}
