//go:build !purego

package vec

import (
	"errors"

	"golang.org/x/sys/cpu"
)

// assemblyTiers returns the assembly tiers that this processor can run, best first, and those that it cannot run, with
// the reason. Every 64-bit processor has NEON; functions that are not in the ops of neonTier are plain Go.
func assemblyTiers() (tiers []*Tier, absent []Absent) {
	if cpu.ARM64.HasASIMDDP {
		tiers = append(tiers, neonTier("dotprod", dotprodBlocks))
	} else {
		absent = append(absent, Absent{"dotprod", errors.New("the processor has no dot products of bytes " +
			"(FEAT_DotProd)")})
	}
	return append(tiers, neonTier("neon", neonBlocks)), absent
}

func neonTier(name string, blocks *blockOps) *Tier {
	t := &Tier{Name: name, ops: portable.ops}
	t.ops.matMulF32 = neonMatMulF32
	t.ops.matMulBF16 = neonMatMulBF16
	t.ops.matMulF16 = neonMatMulF16
	t.ops.matMulFP8 = neonMatMulFP8
	t.ops.accumulateF32 = neonAccumulateF32
	t.ops.accumulateBF16 = neonAccumulateBF16
	t.ops.accumulateFP8 = neonAccumulateFP8
	t.ops.dot = neonDot
	t.ops.axpy = neonAxpy
	t.ops.blocks = blocks
	return t
}
