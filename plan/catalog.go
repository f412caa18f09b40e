package plan

import (
	"fmt"
	"strings"
)

// A catalogue knows kernels as data: who may use them, where, over which
// layouts, with which limits. Resolve and Build read it and hold no other
// knowledge of a kernel.

// set is a small set of enumerated values.
type set[T ~uint8] uint32

func setOf[T ~uint8](list ...T) set[T] {
	var s set[T]
	for _, v := range list {
		s |= 1 << v
	}
	return s
}

func (s set[T]) has(v T) bool { return s&(1<<v) != 0 }

// archNames lists the architectures of a set.
func archNames(s set[Arch]) string {
	var names []string
	for a := range archs.words {
		if s.has(Arch(a)) {
			names = append(names, archs.words[a])
		}
	}
	return strings.Join(names, ", ")
}

// firstLayout is the layout of the set that holds the given element type.
func firstLayout(s set[Layout], kv DType) Layout {
	for l := BF16Row1152; l <= V4F32Row2048; l++ {
		if s.has(l) && kvOf(l) == kv {
			return l
		}
	}
	return LayoutNone
}

// kvOf is the element type a main layout stores.
func kvOf(l Layout) DType {
	switch l {
	case BF16Row1152:
		return BF16
	case FP8Row656, FP8Row576, V4Row584, IndexPage132:
		return FP8E4M3
	case F32Row2304, V4F32Row2048, IndexF32Row512:
		return F32
	case LayoutNone, IndexPage68:
		return DTypeUnset
	}
	return DTypeUnset
}

// entry is one kernel of a catalogue.
type entry struct {
	kernel  Kernel
	prefill bool // may serve prompt rows
	decode  bool // may serve decode, verify and draft rows
	archs   set[Arch]
	v4      bool // serves V4; all others serve the DSA family (reference: both)
	both    bool

	// reads: read in place. gathers: rows are gathered for the batch first,
	// by the named conversion. rewrites: pages are rewritten as 656-byte
	// pages first. The last two are for prompt rows only: a conversion per
	// decode step is never planned.
	reads    set[Layout]
	gathers  set[Layout]
	gatherBy Convert
	rewrites set[Layout]

	// heads gives the padded head count and how often a head is repeated.
	heads func(hw *Hardware, heads int) (padded, repeat int, err string)
	// topk names what is wrong with an index_topk.
	topk func(hw *Hardware, k int) string
	// rows gives the most rows of one launch of a kernel that sees that many
	// heads, 0 for no limit, and its cause.
	rows func(hw *Hardware, heads int) (int, string)
	// splitKV says that the key range is cut by a schedule and partial sums of
	// every row are merged (dispatch 17).
	splitKV bool
	// segments says that rows are cut into fixed segments of keys whose parts
	// wait in scratch memory (sparseScratch).
	segments bool
	// loadSplits says that the kernel cuts by load and cannot be told not to.
	loadSplits bool
	// ropes says that FP8 rows are rotated and quantised inside the kernel.
	ropes bool
	// more lists further objections.
	more func(d *demand) []objection
}

// demand is what one side of the kernel pair must serve.
type demand struct {
	hw     *Hardware
	model  *Model
	policy *Policy
	kv     DType
	phase  Phase
}

// objection is one reason against a kernel, with the code it would fail with.
type objection struct {
	code Code
	text string
}

// readable are the layouts the kernel can serve in a phase, in place or not.
func (e *entry) readable(p Phase) set[Layout] {
	if p == PhaseDecode {
		return e.reads
	}
	return e.reads | e.gathers | e.rewrites
}

// against lists every reason why the kernel cannot serve the demand, most
// fundamental first. An empty list means it fits.
func (e *entry) against(d *demand) []objection {
	var list []objection
	add := func(code Code, format string, args ...any) {
		list = append(list, objection{code, fmt.Sprintf(format, args...)})
	}
	if d.phase == PhaseDecode && !e.decode {
		add(E02, "it does not serve %s", PhaseDecode)
	}
	if d.phase == PhasePrefill && !e.prefill {
		add(E02, "it does not serve %s", PhasePrefill)
	}
	if !e.archs.has(d.hw.Arch) {
		add(E02, "it runs on %s, not on %s", archNames(e.archs), d.hw.Arch)
	}
	serves := e.both || e.v4 == d.model.v4()
	if !serves {
		add(E02, "it does not serve %s", d.model.Family)
	}
	if d.hw.missing(e.kernel) {
		add(E16, "its build for %s is missing", d.hw.Arch)
	}
	if serves && d.kv != DTypeUnset && firstLayout(e.readable(d.phase)&d.model.layouts(), d.kv) == LayoutNone {
		add(E03, "it cannot read %s rows in %s", d.kv, d.phase)
	}
	// V4 pads its selection to the width the kernel wants.
	if e.topk != nil && !d.model.v4() {
		if why := e.topk(d.hw, d.model.K); why != "" {
			add(E07, "%s", why)
		}
	}
	if e.heads != nil {
		if _, _, why := e.heads(d.hw, d.model.Heads); why != "" {
			add(E08, "%s", why)
		}
	}
	if e.more != nil {
		list = append(list, e.more(d)...)
	}
	return list
}

func joinObjections(list []objection) string {
	texts := make([]string, len(list))
	for i, o := range list {
		texts[i] = o.text
	}
	return strings.Join(texts, "; ")
}

// catalogue is a set of entries, the spellings users may give, and the order
// in which kernel pairs are considered.
type catalogue struct {
	entries []entry
	aliases map[string]Kernel // other spellings of this catalogue's kernels
	foreign map[Kernel]Kernel // kernels of the other catalogue and the nearest here
	auto    Kernel            // the kernel that is decided per batch
	pairs   func(r *resolver) []pair
}

// pair is a candidate for prefill and decode.
type pair struct{ prefill, decode Kernel }

func catalogueOf(c Catalog) *catalogue {
	if c == CatalogPublic {
		return &publicCatalogue
	}
	return &sparrowCatalogue
}

func (c *catalogue) entry(k Kernel) *entry {
	for i := range c.entries {
		if c.entries[i].kernel == k {
			return &c.entries[i]
		}
	}
	return nil
}

// names lists the kernels that may serve a phase of a model.
func (c *catalogue) names(p Phase, m *Model) string {
	var names []string
	for i := range c.entries {
		e := &c.entries[i]
		if !e.both && e.v4 != m.v4() {
			continue
		}
		if (p == PhasePrefill && e.prefill) || (p == PhaseDecode && e.decode) {
			names = append(names, e.kernel.String())
		}
	}
	return strings.Join(names, ", ")
}

// padTo64 pads heads to one of the two tile heights of the sparse kernels.
func padTo64(_ *Hardware, heads int) (int, int, string) {
	switch {
	case heads <= 64:
		return 64, 1, ""
	case heads <= 128:
		return 128, 1, ""
	}
	return 0, 0, tooManyHeads(heads, 128)
}

func tooManyHeads(heads, most int) string {
	ranks := (heads + most - 1) / most
	return fmt.Sprintf("%d heads per rank exceed the %d it can hold; a tensor-parallel size %d times larger would fit",
		heads, most, ranks)
}

// multipleOf demands that index_topk is a multiple of n.
func multipleOf(k, n int) string {
	if k%n != 0 {
		return fmt.Sprintf("index_topk %d is not a multiple of %d", k, n)
	}
	return ""
}
