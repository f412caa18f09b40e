package plan

import (
	"fmt"
	"math"
	"slices"
)

// sparrowCatalogue lists the kernels of this project. Prompt rows that see at
// most T keys go to dense-ragged whatever the pair; the pair serves the rest.
var sparrowCatalogue = catalogue{
	auto: Auto,
	aliases: map[string]Kernel{
		"mha":             DenseRagged,
		"flashmla-sparse": SparseFlat,
		"flashmla-kv":     SparseBlock,
		"trtllm":          SparseRaw,
		"flashmla-auto":   Auto,
	},
	foreign: map[Kernel]Kernel{
		FlashMLASparseQ8:    SparseFlat,
		FlashInferSparseMLA: SparseBlock,
		FA3:                 SparseFlat,
		TileLang:            SparseFlat,
		Aiter:               SparseRaw,
		V4PagedArch:         V4Paged,
	},
	pairs: sparrowPairs,
	entries: []entry{
		{
			kernel: DenseRagged, archs: ours,
			reads: dsaLayouts, rows: countedHeads,
			more: func(*demand) []objection {
				return []objection{
					{E02, "it serves short prompt rows beside the prefill kernel; --dense turns it on and off"}}
			},
		},
		{
			kernel: SparseFlat, prefill: true, decode: true, archs: ours,
			reads:   setOf(BF16Row1152, F32Row2304),
			gathers: setOf(FP8Row656, FP8Row576), gatherBy: ConvertGatherBF16,
			heads: tileHeads, topk: tileTopK, rows: countedUnits,
		},
		{
			kernel: SparseBlock, prefill: true, decode: true, archs: ours,
			reads: setOf(FP8Row656), rewrites: setOf(FP8Row576),
			heads: tileHeads, topk: tileTopK, rows: countedUnits, segments: true,
		},
		{
			kernel: SparseRaw, prefill: true, decode: true, archs: ours,
			reads: setOf(FP8Row576),
			heads: tileHeads, topk: tileTopK, rows: countedUnits, segments: true,
		},
		{
			kernel: Auto, prefill: true, archs: ours,
			reads: dsaLayouts,
			heads: tileHeads, topk: tileTopK,
		},
		{
			kernel: V4Paged, prefill: true, decode: true, archs: ours, v4: true,
			reads: v4Layouts,
			heads: tileHeads, topk: tileTopK, rows: countedUnits, segments: true,
		},
		{
			kernel: V4Flat, prefill: true, archs: ours, v4: true,
			gathers: setOf(V4Row584), gatherBy: ConvertGatherBF16,
			heads: tileHeads, topk: tileTopK, rows: countedUnits,
		},
		{
			kernel: Reference, prefill: true, decode: true, archs: ours, both: true,
			reads: dsaLayouts | v4Layouts,
		},
	},
}

var (
	ours       = setOf(CPU, SM90)
	dsaLayouts = setOf(BF16Row1152, FP8Row656, FP8Row576, F32Row2304)
	v4Layouts  = setOf(V4Row584, V4F32Row2048)
)

// The kernels for sm90 stay on their multiprocessors and share rows out among
// themselves: no schedule is planned for them and no axis of a grid counts rows.
// What bounds a launch is an int32 that counts units of work.
const (
	unitHeads = 64 // heads of a unit of sparse attention
	mostUnits = math.MaxInt32
)

// countedUnits is the limit of sparse attention.
func countedUnits(hw *Hardware, heads int) (int, string) {
	return counted(hw, roundUp(heads, unitHeads)/unitHeads, "units of 64 heads")
}

// countedHeads is the limit of dense attention.
func countedHeads(hw *Hardware, heads int) (int, string) { return counted(hw, heads, "heads") }

func counted(hw *Hardware, each int, what string) (int, string) {
	if hw.Arch == CPU {
		return 0, "no limit on cpu"
	}
	return mostUnits / each, fmt.Sprintf("an int32 counts the %s of all rows", what)
}

// tileHeads pads to the 64-row tiles of the GPU kernels; the CPU pads nothing.
func tileHeads(hw *Hardware, heads int) (int, int, string) {
	if hw.Arch == CPU {
		return heads, 1, ""
	}
	return padTo64(hw, heads)
}

// tileTopK: the GPU kernels walk the selection 64 keys at a time.
func tileTopK(hw *Hardware, k int) string {
	if hw.Arch == CPU {
		return ""
	}
	return multipleOf(k, 64)
}

// sparrowPairs orders the pairs for a KV type and, where the user named one, a
// layout or a decode kernel that settles it.
func sparrowPairs(r *resolver) []pair {
	switch {
	case r.model.v4() && (r.policy.Deterministic || r.policy.V4SparsePrefill == SparsePrefillOff):
		return []pair{{V4Paged, V4Paged}}
	case r.model.v4():
		list := []pair{{V4Flat, V4Paged}, {V4Paged, V4Paged}}
		if c := r.hw.costs(); r.byCost() && !c.flat() {
			slices.Reverse(list)
		}
		return list
	case r.kv == FP8E4M3 && (r.wish == FP8Row576 || r.cfg.Prefill == SparseRaw || r.cfg.Decode == SparseRaw):
		return []pair{{SparseRaw, SparseRaw}}
	case r.kv == FP8E4M3:
		return []pair{{SparseBlock, SparseBlock}, {SparseRaw, SparseRaw}}
	default:
		return []pair{{SparseFlat, SparseFlat}}
	}
}
