//go:build !purego

package vec

import "golang.org/x/sys/cpu"

// assemblyTiers returns the assembly tiers this processor can run, best first.
func assemblyTiers() []*Tier {
	var tiers []*Tier
	x := &cpu.X86
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		tiers = append(tiers, avx512.tier())
	}
	// Half-precision conversion has no flag of its own in x/sys/cpu; every
	// processor with AVX2, FMA and BMI2 has it.
	if x.HasAVX2 && x.HasFMA && x.HasBMI2 {
		tiers = append(tiers, avx2.tier())
	}
	return tiers
}

func (s *isa) tier() *Tier {
	return &Tier{Name: s.name, ops: ops{
		matMulF32:      s.matMulF32,
		matMulBF16:     s.matMulBF16,
		matMulFP8:      s.matMulFP8,
		accumulateF32:  s.accumulateF32,
		accumulateBF16: s.accumulateBF16,
		accumulateFP8:  s.accumulateFP8,
		dot:            s.dot,
		axpy:           s.axpy,
		max:            s.max,
		expSum:         s.expSum,
		siluMul:        s.siluMul,
		scaleMul:       s.scaleMul,
		widenBF16:      s.widenBF16,
		widenE4M3:      s.widenE4M3,
		narrowBF16:     s.narrowBF16,
		indexScores:    s.indexScores,
	}}
}
