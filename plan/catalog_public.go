package plan

import "fmt"

// publicCatalogue models the kernels of other engines by dispatch section 4.
var publicCatalogue = catalogue{
	auto:    FlashMLAAuto,
	aliases: map[string]Kernel{"auto": FlashMLAAuto},
	foreign: map[Kernel]Kernel{
		SparseFlat:  FlashMLASparse,
		SparseBlock: FlashMLAKV,
		SparseRaw:   TRTLLM,
		V4Paged:     FlashMLAKV,
		V4Flat:      FlashMLASparse,
	},
	pairs: publicPairs,
	entries: []entry{
		{
			kernel: FlashMLASparse, prefill: true, decode: true, archs: flashMLAArchs, both: true,
			reads:   setOf(BF16Row1152),
			gathers: setOf(FP8Row656, FP8Row576, V4Row584), gatherBy: ConvertGatherBF16,
			heads: flashSparseHeads, topk: flashSparseTopK,
			more: func(d *demand) []objection {
				if d.model.v4() && d.phase == PhaseDecode {
					return []objection{{E02, "V4 decode reads the paged streams"}}
				}
				return nil
			},
		},
		{
			kernel: FlashMLASparseQ8, prefill: true, archs: setOf(SM90), both: true,
			gathers: setOf(FP8Row656, V4Row584), gatherBy: ConvertGatherRequant,
			heads: q8Heads, topk: func(_ *Hardware, k int) string { return multipleOf(k, 128) },
			more: q8Objections,
		},
		{
			kernel: FlashMLAKV, prefill: true, decode: true, archs: flashMLAArchs, both: true,
			reads: setOf(FP8Row656, V4Row584), rewrites: setOf(FP8Row576),
			heads: padTo64, topk: func(_ *Hardware, k int) string { return multipleOf(k, 64) },
			rows: pagedRows, splitKV: true,
		},
		{
			kernel: FlashMLAAuto, prefill: true, archs: flashMLAArchs,
			reads: setOf(BF16Row1152, FP8Row656), rewrites: setOf(FP8Row576),
			heads: flashSparseHeads, topk: flashSparseTopK,
		},
		{
			kernel: FlashInferSparseMLA, prefill: true, decode: true, archs: setOf(SM120, SM121),
			reads: setOf(FP8Row656),
			more: func(d *demand) []objection {
				if d.model.Family != GLMMoeDSA {
					return []objection{{E02, fmt.Sprintf("it serves glm_moe_dsa, not %s", d.model.Family)}}
				}
				return nil
			},
		},
		{
			kernel: FA3, prefill: true, decode: true, archs: setOf(SM90),
			reads: setOf(BF16Row1152),
		},
		{
			kernel: TileLang, prefill: true, decode: true, archs: setOf(SM90, GFX95),
			reads: setOf(BF16Row1152, FP8Row576),
			topk: func(_ *Hardware, k int) string {
				if k != 2048 {
					return fmt.Sprintf("index_topk must be 2048, not %d", k)
				}
				return ""
			},
			more: func(d *demand) []objection {
				if d.hw.Arch.CUDA() && d.kv == FP8E4M3 {
					return []objection{{E03, "it reads FP8 rows on AMD only"}}
				}
				return nil
			},
		},
		{
			kernel: Aiter, prefill: true, decode: true, archs: setOf(GFX95),
			reads: setOf(BF16Row1152, FP8Row576), heads: aiterHeads,
		},
		{
			kernel: TRTLLM, prefill: true, decode: true, archs: setOf(SM100, SM103),
			reads: setOf(BF16Row1152, FP8Row576), rows: gridRows("z"),
			loadSplits: true, ropes: true,
		},
		{kernel: FlashVarlen, archs: setOf(SM90, GFX95), reads: dsaLayouts},
		{kernel: TRTLLMRagged, archs: setOf(SM100, SM103), reads: dsaLayouts},
		{
			kernel: V4PagedArch, prefill: true, decode: true, archs: setOf(SM120, SM121, GFX95), v4: true,
			reads: setOf(V4Row584), rows: gridRows("y"),
		},
		{
			kernel: Reference, prefill: true, decode: true, archs: everyArch, both: true,
			reads: setOf(BF16Row1152, FP8Row656, FP8Row576, V4Row584),
		},
	},
}

var (
	flashMLAArchs = setOf(SM90, SM100, SM103)
	everyArch     = setOf(CPU, SM80, SM86, SM89, SM90, SM100, SM103, SM110, SM120, SM121, GFX95)
)

// pagedRows is the limit of kernels that plan their splits in shared memory.
func pagedRows(hw *Hardware, _ int) (int, string) {
	return hw.pagedRowLimit(), fmt.Sprintf("split schedule: 4*(5*rows+1) <= %d bytes of opt-in shared memory",
		hw.SmemOptin)
}

// gridRows is the limit of kernels whose rows lie on a 16-bit grid axis.
func gridRows(axis string) func(*Hardware, int) (int, string) {
	why := "rows lie on grid " + axis + ", which holds 65535 blocks"
	return func(*Hardware, int) (int, string) { return 65535, why }
}

// flashSparseHeads: the kernel takes exactly 64 or 128 heads; SM100 builds have
// the 64-head variant only where the hardware description says so.
func flashSparseHeads(hw *Hardware, heads int) (int, int, string) {
	if heads <= 128 && hw.Arch.sm100Family() && !hw.Heads64 {
		return 128, 1, ""
	}
	return padTo64(hw, heads)
}

func flashSparseTopK(hw *Hardware, k int) string {
	if hw.Arch == SM90 || !hw.Heads64 {
		return multipleOf(k, 128)
	}
	return multipleOf(k, 64)
}

// q8Heads: heads must divide 64 or be a multiple of it.
func q8Heads(_ *Hardware, heads int) (int, int, string) {
	switch {
	case heads > 0 && 64%heads == 0:
		return 64, 1, ""
	case heads%64 == 0 && heads <= 128:
		return heads, 1, ""
	case heads > 128:
		return 0, 0, tooManyHeads(heads, 128)
	}
	return 0, 0, fmt.Sprintf("%d heads per rank neither divide 64 nor are a multiple of it", heads)
}

// aiterHeads: fewer than 16 heads are repeated, more must be a multiple of 16.
func aiterHeads(_ *Hardware, heads int) (int, int, string) {
	switch {
	case heads > 128:
		return 0, 0, tooManyHeads(heads, 128)
	case heads > 0 && heads < 16 && 16%heads == 0:
		return 16, 16 / heads, ""
	case heads > 0 && heads%16 == 0:
		return heads, 1, ""
	}
	return 0, 0, fmt.Sprintf("%d heads per rank cannot be repeated to 16 and are no multiple of it", heads)
}

// q8Objections: the fused query of this kernel excludes three features.
func q8Objections(d *demand) []objection {
	var list []objection
	if d.policy.CP.Kind != CPNone {
		list = append(list, objection{E10, "it excludes context parallelism"})
	}
	if d.policy.HiSparse {
		list = append(list, objection{E14, "it excludes HiSparse"})
	}
	if d.policy.TBO {
		list = append(list, objection{E02, "it excludes two-batch overlap"})
	}
	return list
}

// publicPairs is the table of defaults in dispatch section 16, each row
// followed by what else fits its hardware.
func publicPairs(r *resolver) []pair {
	both := func(k Kernel) pair { return pair{k, k} }
	arch := r.hw.Arch
	fp8 := r.kv == FP8E4M3
	switch {
	case r.model.v4():
		return r.publicV4Pairs()
	case r.model.Family == GLMMoeDSA && arch.sm12x() && fp8:
		return []pair{both(FlashInferSparseMLA)}
	case r.policy.HiSparse && arch.AMD():
		return []pair{both(TileLang)}
	case r.policy.HiSparse && fp8:
		return []pair{both(FlashMLAKV)}
	case r.policy.HiSparse:
		return []pair{both(FlashMLASparse)}
	case arch.AMD():
		return []pair{both(TileLang), both(Aiter)}
	case fp8 && arch.major() >= 10:
		return []pair{both(TRTLLM), both(FlashMLAKV)}
	case fp8:
		return []pair{both(FlashMLAKV)}
	case arch.major() >= 10:
		return []pair{{FlashMLASparse, TRTLLM}, both(FlashMLASparse)}
	default:
		return []pair{{FlashMLASparse, FA3}, both(FlashMLASparse)}
	}
}

// publicV4Pairs follows dispatch section 13: a sparse prefill kernel where it
// is allowed, the paged kernel otherwise.
func (r *resolver) publicV4Pairs() []pair {
	switch {
	case r.hw.Arch.sm12x(), r.hw.Arch.AMD():
		return []pair{{V4PagedArch, V4PagedArch}}
	case r.policy.V4Q8 && r.hw.Arch == SM90:
		return []pair{{FlashMLASparseQ8, FlashMLAKV}}
	case r.policy.V4SparsePrefill == SparsePrefillOff, r.policy.CP.Kind != CPNone:
		return []pair{{FlashMLAKV, FlashMLAKV}}
	}
	return []pair{{FlashMLASparse, FlashMLAKV}, {FlashMLAKV, FlashMLAKV}}
}
