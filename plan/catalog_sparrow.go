package plan

import (
	"fmt"
	"math"
)

// sparrowCatalogue lists the kernels of this project. Prompt rows with at most Config.T keys use the kernel
// dense-ragged; all other rows use the chosen pair.
var sparrowCatalogue = Catalogue{
	Name: CatalogSparrow,
	Aliases: map[string]Kernel{
		"mha":             DenseRagged,
		"flashmla-sparse": SparseFlat,
		"flashmla-kv":     SparseBlock,
		"trtllm":          SparseRaw,
		"flashmla-auto":   Auto,
		"flashmla":        DenseLatent,
	},
	Foreign: map[Kernel]Kernel{
		FlashMLASparseQ8:    SparseFlat,
		FlashInferSparseMLA: SparseBlock,
		FA3:                 SparseFlat,
		TileLang:            SparseFlat,
		Aiter:               SparseRaw,
		V4PagedArch:         V4Paged,
	},
	Entries: []Entry{
		{
			Kernel: DenseRagged, Archs: ours,
			Reads: dsaLayouts, Rows: countedHeads,
			More: func(*Demand) []Objection {
				return []Objection{
					{E02, "it computes short prompt rows in addition to the prefill kernel; --dense turns it on and " +
						"off"}}
			},
		},
		{
			Kernel: SparseFlat, Prefill: true, Decode: true, Archs: ours, Pools: true,
			Reads:   SetOf(BF16Row1152, F32Row2304),
			Gathers: SetOf(FP8Row656, FP8Row576, FP8Row528), GatherBy: ConvertGatherBF16,
			Heads: tileHeads, TopK: tileTopK, Rows: countedUnits,
		},
		{
			Kernel: SparseBlock, Prefill: true, Decode: true, Archs: ours,
			Reads: SetOf(FP8Row656), Rewrites: SetOf(FP8Row576),
			Heads: tileHeads, TopK: tileTopK, Rows: countedUnits, Segments: true,
		},
		{
			Kernel: SparseRaw, Prefill: true, Decode: true, Archs: ours,
			Reads: SetOf(FP8Row576),
			Heads: tileHeads, TopK: tileTopK, Rows: countedUnits, Segments: true,
		},
		{
			Kernel: Auto, Prefill: true, Archs: ours,
			Reads: dsaLayouts,
			Heads: tileHeads, TopK: tileTopK,
		},
		{
			Kernel: V4Paged, Prefill: true, Decode: true, Archs: ours, V4: true,
			Reads: v4Layouts | v41Layouts,
			Heads: tileHeads, TopK: tileTopK, Rows: countedUnits, Segments: true,
			More: func(d *Demand) []Objection {
				if !d.Model.V41() || !d.Hardware.portable() {
					return nil
				}
				kernels := d.Hardware.Arch.String()
				if d.Hardware.Arch == SM90 {
					kernels += " with the portable kernels"
				}
				return []Objection{{E02, fmt.Sprintf("%s runs on cpu and sm90, but there are no kernels of it for %s",
					d.Model.Family, kernels)}}
			},
		},
		{
			Kernel: V4Flat, Prefill: true, Archs: ours, V4: true,
			Gathers: SetOf(V4Row584), GatherBy: ConvertGatherBF16,
			Heads: tileHeads, TopK: tileTopK, Rows: countedUnits,
		},
		{
			Kernel: DenseLatent, Prefill: true, Decode: true, Archs: ours, Dense: true,
			Reads: dsaLayouts, Heads: tileHeads, Rows: countedUnits, Segments: true,
		},
		{
			Kernel: SparsePools, Prefill: true, Decode: true, Archs: ours, Pooled: true,
			Reads: nopeLayouts, Heads: tileHeads, Rows: countedUnits, Segments: true,
		},
	},
}

var (
	// sm90 has its own kernels; the other GPUs use the portable kernels
	ours        = SetOf(CPU, SM80, SM86, SM89, SM90, SM100, SM103, SM110, SM120, SM121)
	dsaLayouts  = SetOf(BF16Row1152, FP8Row656, FP8Row576, F32Row2304)
	v4Layouts   = SetOf(V4Row584, V4F32Row2048)
	v41Layouts  = SetOf(V41Row288, V4F32Row2048)
	nopeLayouts = SetOf(BF16Row1024, FP8Row528, F32Row2048)
)

// The GPU kernels are persistent and divide rows among their blocks: they need no schedule, and the size of their grid
// does not depend on the number of rows. A launch is limited by an int32 that counts units of work.
const (
	unitHeads = 64 // heads that one work unit of sparse attention computes
	mostUnits = math.MaxInt32
)

// countedUnits returns the row limit of a launch of sparse attention, and its cause.
func countedUnits(hw *Hardware, heads int) (int, string) {
	return counted(hw, roundUp(heads, unitHeads)/unitHeads, "units of 64 heads")
}

// countedHeads returns the row limit of a launch of dense attention, and its cause.
func countedHeads(hw *Hardware, heads int) (int, string) { return counted(hw, heads, "heads") }

func counted(hw *Hardware, each int, what string) (int, string) {
	if hw.Arch == CPU {
		return 0, "no limit on cpu"
	}
	return mostUnits / each, fmt.Sprintf("an int32 counts the %s of all rows", what)
}

// tileHeads pads heads to the 64-row tiles of the GPU kernels; on the CPU heads are not padded.
func tileHeads(hw *Hardware, heads int) (int, int, string) {
	if hw.Arch == CPU {
		return heads, 1, ""
	}
	return PadTo64(hw, heads)
}

// tileTopK returns the text of an error if GPU kernels do not support an index_topk: they process 64 selected keys at a
// time.
func tileTopK(hw *Hardware, k int) string {
	if hw.Arch == CPU {
		return ""
	}
	return MultipleOf(k, 64)
}

// pairs returns the candidate pairs in order of preference, for the KV type and for the layout or kernel that the user
// named, if any.
func (r *resolver) pairs(settled Pair) []Pair {
	times := r.hw.costs()
	switch {
	case r.model.Dense():
		return []Pair{{DenseLatent, DenseLatent}}
	case r.model.Pooled():
		return []Pair{{SparsePools, SparsePools}}
	case r.model.V41() || r.model.V4() && r.policy.Deterministic:
		return []Pair{{V4Paged, V4Paged}}
	case r.model.V4() && r.byCost() && !times.flat():
		return []Pair{{V4Paged, V4Paged}, {V4Flat, V4Paged}}
	case r.model.V4():
		return []Pair{{V4Flat, V4Paged}, {V4Paged, V4Paged}}
	case r.kv == FP8E4M3 && (r.wish == FP8Row576 || settled.Prefill == SparseRaw || settled.Decode == SparseRaw):
		return []Pair{{SparseRaw, SparseRaw}}
	case r.kv == FP8E4M3:
		return []Pair{{SparseBlock, SparseBlock}, {SparseRaw, SparseRaw}}
	}
	return []Pair{{SparseFlat, SparseFlat}}
}

// byCost reports whether measured times decide between two suitable prefill kernels (costs.flat).
func (r *resolver) byCost() bool {
	return r.model.V4() && !r.model.V41() && r.kv == FP8E4M3 && !r.policy.Deterministic &&
		(r.policy.V4SparsePrefill == SparsePrefillUnset || r.policy.V4SparsePrefill == SparsePrefillAuto)
}
