package public

import (
	"fmt"

	"sparrow/plan"
)

// catalogue describes the kernels of other engines (dispatch section 4).
var catalogue = plan.Catalogue{
	Name:    plan.CatalogPublic,
	Aliases: map[string]plan.Kernel{"auto": plan.FlashMLAAuto},
	Foreign: map[plan.Kernel]plan.Kernel{
		plan.SparseFlat:  plan.FlashMLASparse,
		plan.SparseBlock: plan.FlashMLAKV,
		plan.SparseRaw:   plan.TRTLLM,
		plan.V4Paged:     plan.FlashMLAKV,
		plan.V4Flat:      plan.FlashMLASparse,
	},
	Entries: []plan.Entry{
		{
			Kernel: plan.FlashMLASparse, Prefill: true, Decode: true, Archs: flashMLAArchs, Both: true,
			Reads:   plan.SetOf(plan.BF16Row1152),
			Gathers: plan.SetOf(plan.FP8Row656, plan.FP8Row576, plan.V4Row584), GatherBy: plan.ConvertGatherBF16,
			Heads: flashSparseHeads, TopK: flashSparseTopK,
			More: func(d *plan.Demand) []plan.Objection {
				if d.Model.V4() && d.Phase == plan.PhaseDecode {
					return objection(plan.E02, "V4 decode reads the paged streams")
				}
				return nil
			},
		},
		{
			Kernel: plan.FlashMLASparseQ8, Prefill: true, Archs: plan.SetOf(plan.SM90), Both: true,
			Gathers: plan.SetOf(plan.FP8Row656, plan.V4Row584), GatherBy: plan.ConvertGatherRequant,
			Heads: q8Heads, TopK: func(_ *plan.Hardware, k int) string { return plan.MultipleOf(k, 128) },
		},
		{
			Kernel: plan.FlashMLAKV, Prefill: true, Decode: true, Archs: flashMLAArchs, Both: true,
			Reads: plan.SetOf(plan.FP8Row656, plan.V4Row584), Rewrites: plan.SetOf(plan.FP8Row576),
			Heads: plan.PadTo64, TopK: func(_ *plan.Hardware, k int) string { return plan.MultipleOf(k, 64) },
			Rows: pagedRows, SplitKV: true,
		},
		{
			Kernel: plan.FlashMLAAuto, Prefill: true, Archs: flashMLAArchs,
			Reads: plan.SetOf(plan.BF16Row1152, plan.FP8Row656), Rewrites: plan.SetOf(plan.FP8Row576),
			Heads: flashSparseHeads, TopK: flashSparseTopK,
		},
		{
			Kernel: plan.FlashInferSparseMLA, Prefill: true, Decode: true, Archs: plan.SetOf(plan.SM120, plan.SM121),
			Reads: plan.SetOf(plan.FP8Row656),
			More: func(d *plan.Demand) []plan.Objection {
				if d.Model.Family != plan.GLMMoeDSA {
					return objection(plan.E02, fmt.Sprintf("it supports only glm_moe_dsa, not %s", d.Model.Family))
				}
				return nil
			},
		},
		{
			Kernel: plan.FA3, Prefill: true, Decode: true, Archs: plan.SetOf(plan.SM90),
			Reads: plan.SetOf(plan.BF16Row1152),
		},
		{
			Kernel: plan.TileLang, Prefill: true, Decode: true, Archs: plan.SetOf(plan.SM90, plan.GFX95),
			Reads: plan.SetOf(plan.BF16Row1152, plan.FP8Row576),
			TopK: func(_ *plan.Hardware, k int) string {
				if k != 2048 {
					return fmt.Sprintf("index_topk must be 2048, not %d", k)
				}
				return ""
			},
			More: func(d *plan.Demand) []plan.Objection {
				if d.Hardware.Arch.CUDA() && d.KV == plan.FP8E4M3 {
					return objection(plan.E03, "it reads FP8 rows on AMD only")
				}
				return nil
			},
		},
		{
			Kernel: plan.Aiter, Prefill: true, Decode: true, Archs: plan.SetOf(plan.GFX95),
			Reads: plan.SetOf(plan.BF16Row1152, plan.FP8Row576), Heads: aiterHeads,
		},
		{
			Kernel: plan.TRTLLM, Prefill: true, Decode: true, Archs: plan.SetOf(plan.SM100, plan.SM103),
			Reads: plan.SetOf(plan.BF16Row1152, plan.FP8Row576), Rows: gridRows("z"),
			Ropes: true,
		},
		{Kernel: plan.FlashVarlen, Archs: plan.SetOf(plan.SM90, plan.GFX95), Reads: dsaLayouts},
		{Kernel: plan.TRTLLMRagged, Archs: plan.SetOf(plan.SM100, plan.SM103), Reads: dsaLayouts},
		{
			Kernel: plan.V4PagedArch, Prefill: true, Decode: true, V4: true,
			Archs: plan.SetOf(plan.SM120, plan.SM121, plan.GFX95),
			Reads: plan.SetOf(plan.V4Row584), Rows: gridRows("y"),
		},
		{
			Kernel: plan.Reference, Prefill: true, Decode: true, Archs: everyArch, Both: true, OnRequest: true,
			Reads: plan.SetOf(plan.BF16Row1152, plan.FP8Row656, plan.FP8Row576, plan.V4Row584),
		},
	},
}

var (
	dsaLayouts    = plan.SetOf(plan.BF16Row1152, plan.FP8Row656, plan.FP8Row576)
	flashMLAArchs = plan.SetOf(plan.SM90, plan.SM100, plan.SM103)
	everyArch     = plan.SetOf(plan.CPU, plan.SM80, plan.SM86, plan.SM89, plan.SM90, plan.SM100, plan.SM103,
		plan.SM110, plan.SM120, plan.SM121, plan.GFX95)
)

// pagedRows returns the maximum number of rows of kernels that plan their splits in shared memory.
func pagedRows(hw *plan.Hardware, _ int) (int, string) {
	return hw.PagedRowLimit(), fmt.Sprintf("split schedule: 4*(5*rows+1) <= %d bytes of opt-in shared memory",
		hw.SmemOptin)
}

// gridRows returns the row limit of kernels that have rows on a 16-bit grid axis, and its cause.
func gridRows(axis string) func(*plan.Hardware, int) (int, string) {
	why := "rows lie on grid " + axis + ", which holds 65535 blocks"
	return func(*plan.Hardware, int) (int, string) { return 65535, why }
}

// flashSparseHeads pads heads to 64 or 128, the only numbers that the kernel supports. On SM100, the variant for 64
// heads exists only if Hardware.Heads64 is set.
func flashSparseHeads(hw *plan.Hardware, heads int) (int, int, string) {
	if heads <= 128 && hw.Arch.SM100Family() && !hw.Heads64 {
		return 128, 1, ""
	}
	return plan.PadTo64(hw, heads)
}

func flashSparseTopK(hw *plan.Hardware, k int) string {
	if hw.Arch == plan.SM90 || !hw.Heads64 {
		return plan.MultipleOf(k, 128)
	}
	return plan.MultipleOf(k, 64)
}

// q8Heads pads heads to 64, or returns an error text for a number that neither divides 64 nor is a multiple of 64.
func q8Heads(_ *plan.Hardware, heads int) (int, int, string) {
	switch {
	case heads > 0 && 64%heads == 0:
		return 64, 1, ""
	case heads%64 == 0 && heads <= 128:
		return heads, 1, ""
	case heads > 128:
		return 0, 0, plan.TooManyHeads(heads, 128)
	}
	return 0, 0, fmt.Sprintf("%d heads per rank do not divide 64 and are not a multiple of it", heads)
}

// aiterHeads repeats heads if there are fewer than 16; a larger number must be a multiple of 16.
func aiterHeads(_ *plan.Hardware, heads int) (int, int, string) {
	switch {
	case heads > 128:
		return 0, 0, plan.TooManyHeads(heads, 128)
	case heads > 0 && heads < 16 && 16%heads == 0:
		return 16, 16 / heads, ""
	case heads > 0 && heads%16 == 0:
		return heads, 1, ""
	}
	return 0, 0, fmt.Sprintf("%d heads per rank cannot be repeated to 16 and are not a multiple of it", heads)
}

func objection(code plan.Code, text string) []plan.Objection {
	return []plan.Objection{{Code: code, Text: text}}
}

// loadSplits is the set of kernels that always cut the key range by the load of the batch.
var loadSplits = plan.SetOf(plan.TRTLLM)

// objections returns the objections to a kernel that follow from other settings.
func (r *resolver) objections(k plan.Kernel, p plan.Phase) []plan.Objection {
	gathers := k == plan.FlashMLASparse || k == plan.FlashMLASparseQ8
	if gathers && p == plan.PhasePrefill && r.model.V4() && r.policy.V4SparsePrefill == plan.SparsePrefillOff {
		return objection(plan.E02, "the sparse prefill was disabled")
	}
	if k != plan.FlashMLASparseQ8 {
		return nil
	}
	var list []plan.Objection // objections to the fused query of the kernel
	if r.policy.CP.Kind != CPNone {
		list = append(list, objection(plan.E10, "it cannot run with context parallelism")...)
	}
	if r.policy.HiSparse {
		list = append(list, objection(plan.E14, "it cannot run with HiSparse")...)
	}
	if r.policy.TBO {
		list = append(list, objection(plan.E02, "it cannot run with two-batch overlap")...)
	}
	return list
}

func pair(prefill, decode plan.Kernel) plan.Pair { return plan.Pair{Prefill: prefill, Decode: decode} }

func both(k plan.Kernel) plan.Pair { return pair(k, k) }

// pairs returns the default pair for the hardware (dispatch section 16), followed by alternatives.
func (r *resolver) pairs(plan.Pair) []plan.Pair {
	arch := r.hw.Arch
	fp8 := r.cfg.KV == plan.FP8E4M3
	switch {
	case r.model.V4():
		return r.v4Pairs()
	case r.model.Family == plan.GLMMoeDSA && arch.SM12x() && fp8:
		return []plan.Pair{both(plan.FlashInferSparseMLA)}
	case r.policy.HiSparse && arch.AMD():
		return []plan.Pair{both(plan.TileLang)}
	case r.policy.HiSparse && fp8:
		return []plan.Pair{both(plan.FlashMLAKV)}
	case r.policy.HiSparse:
		return []plan.Pair{both(plan.FlashMLASparse)}
	case arch.AMD():
		return []plan.Pair{both(plan.TileLang), both(plan.Aiter)}
	case fp8 && arch.Major() >= 10:
		return []plan.Pair{both(plan.TRTLLM), both(plan.FlashMLAKV)}
	case fp8:
		return []plan.Pair{both(plan.FlashMLAKV)}
	case arch.Major() >= 10:
		return []plan.Pair{pair(plan.FlashMLASparse, plan.TRTLLM), both(plan.FlashMLASparse)}
	default:
		return []plan.Pair{pair(plan.FlashMLASparse, plan.FA3), both(plan.FlashMLASparse)}
	}
}

// v4Pairs follows dispatch section 13: a sparse prefill kernel where it
// is allowed, the paged kernel otherwise.
func (r *resolver) v4Pairs() []plan.Pair {
	switch {
	case r.hw.Arch.SM12x(), r.hw.Arch.AMD():
		return []plan.Pair{both(plan.V4PagedArch)}
	case r.policy.V4Q8 && r.hw.Arch == plan.SM90:
		return []plan.Pair{pair(plan.FlashMLASparseQ8, plan.FlashMLAKV), both(plan.FlashMLAKV)}
	case r.policy.CP.Kind != CPNone:
		return []plan.Pair{both(plan.FlashMLAKV)}
	}
	return []plan.Pair{pair(plan.FlashMLASparse, plan.FlashMLAKV), both(plan.FlashMLAKV)}
}
