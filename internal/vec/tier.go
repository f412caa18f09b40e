package vec

import (
	"sync"

	"sparrow/internal/num"
)

// Tier is one implementation of the package's arithmetic. Its methods are
// documented where they are defined: products in matmul.go and accumulate.go,
// vectors in vector.go, number formats in convert.go, the indexer in index.go.
type Tier struct {
	// Name is "amx", "avx512", "avx2", "dotprod", "neon" or "go".
	Name string

	ops ops
}

// Absent is a tier that this build has but this machine cannot run.
type Absent struct {
	Name   string
	Reason error
}

// Tiers returns every tier this machine can run, best first. The last is
// always "go". The caller may change the slice.
func Tiers() []*Tier {
	tiers, _ := available()
	return append([]*Tier(nil), tiers...)
}

// Missing returns the tiers this machine cannot run, each with the reason.
func Missing() []Absent {
	_, absent := available()
	return append([]Absent(nil), absent...)
}

// Best returns the fastest tier of this machine.
func Best() *Tier {
	tiers, _ := available()
	return tiers[0]
}

// Precise returns this tier with products that use every float32 at full precision: narrow weights are not multiplied
// by tiles, and x is not quantised for block formats. Other operations are those of this tier.
func (t *Tier) Precise() *Tier {
	p := *t
	p.ops.blocks = nil
	if t.ops.whole == nil {
		return &p
	}
	p.ops.matMulBF16, p.ops.matMulFP8, p.ops.matMulFP4 = t.ops.whole.bf16, t.ops.whole.fp8, t.ops.whole.fp4
	p.ops.tiled = nil
	return &p
}

// available is determined at the first use, because it requests the permission to
// use tiles from the operating system.
var available = sync.OnceValues(func() ([]*Tier, []Absent) {
	tiers, absent := assemblyTiers()
	return append(tiers, portable), absent
})

// portable is the tier in plain Go.
var portable = &Tier{Name: "go", ops: ops{
	matMulF32:      matMulF32Go,
	matMulBF16:     matMulBF16Go,
	matMulF16:      matMulF16Go,
	matMulFP8:      matMulFP8Go,
	matMulFP4:      matMulFP4Go,
	accumulateF32:  accumulateF32Go,
	accumulateBF16: accumulateBF16Go,
	accumulateFP8:  accumulateFP8Go,
	dot:            dotGo,
	axpy:           axpyGo,
	max:            maxGo,
	expSum:         expSumGo,
	siluMul:        siluMulGo,
	scaleMul:       scaleMulGo,
	rotate:         rotateGo,
	softmax:        softmaxGo,
	widenBF16:      widenBF16Go,
	widenE4M3:      widenE4M3Go,
	widenGroups:    widenGroupsGo,
	narrowBF16:     narrowBF16Go,
	newIndexScorer: copiedKeys(indexScoresGo),
	rotateQuant:    rotateQuantGo,
	countAbove:     countAboveGo,
	collect:        collectGo,
	blocks:         portableBlocks,
}}

// ops holds the functions that a tier implements. The exported methods check the arguments first, and no dimension is
// zero.
type ops struct {
	matMulF32  func(p product, w []float32)
	matMulBF16 func(p product, w []byte)
	matMulF16  func(p product, w []byte)
	matMulFP8  func(p product, w []byte, s FP8Blocks)
	matMulFP4  func(p product, w, scale []byte, ldScale int)

	accumulateF32  func(p product, w []float32)
	accumulateBF16 func(p product, w []byte)
	accumulateFP8  func(p product, w []byte, s FP8Blocks)

	dot      func(a, b []float32) float32
	axpy     func(y []float32, a float32, x []float32)
	max      func(x []float32) float32
	expSum   func(dst, x []float32, max float32) float32
	siluMul  func(dst, gate, up []float32)
	scaleMul func(y, x, w []float32, s float32)
	rotate   func(x []float32, heads, ld int, by *Turn)
	softmax  func(p []float32, scale, top float32) (newTop, sum float32)

	widenBF16   func(dst []float32, src []byte)
	widenE4M3   func(dst []float32, src []byte, scale float32)
	widenGroups func(dst []float32, src []byte, scales Groups, size int)
	narrowBF16  func(dst []byte, src []float32)

	newIndexScorer func() indexScorer
	newIndexFP4    func() indexFP4Scorer // nil if the tier has no such kernels

	blocks *blockOps // nil if x is not quantised

	tiled *tiledOps      // nil if x is not packed
	whole *wholeProducts // products that use x at full precision, if other products round it

	rotateQuant func(codes []byte, scales, v []float32, mode num.ScaleMode)

	countAbove func(x []float32, floor float32) int
	collect    func(at []int32, kept []float32, x []float32, places []int32, base int32, floor float32) int

	newLatentAttend func(width int) latentAttend // nil if the tier has no such kernels
	newFloatAttend  func(width int) floatAttend  // nil if the tier has no such kernels
}

// wholeProducts are products of float32 and narrow weights that do not round x.
type wholeProducts struct {
	bf16 func(p product, w []byte)
	fp8  func(p product, w []byte, s FP8Blocks)
	fp4  func(p product, w, scale []byte, ldScale int)
}

// product is the shape of one matrix product. In the dot form w is [n, k]; in
// the transposed form it is [k, n].
type product struct {
	y   []float32 // [m, n], rows ldy apart
	ldy int
	x   []float32 // [m, k], rows ldx apart
	ldx int
	ldw int
	m   int
	n   int
	k   int
}

// scaleBlock is the side of the square of e4m3 weights that share one scale in most checkpoints.
const scaleBlock = 128
