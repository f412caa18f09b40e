package plan

import (
	"fmt"
	"strings"
)

// A catalogue describes kernels as data: for each kernel the models, architectures, cache layouts and limits. Resolve
// and Build use no other information about kernels.

// Set is a small set of enumerated values.
type Set[T ~uint8] uint32

// SetOf returns the set of the values listed.
func SetOf[T ~uint8](list ...T) Set[T] {
	var s Set[T]
	for _, v := range list {
		s |= 1 << v
	}
	return s
}

// Has reports whether the set contains a value.
func (s Set[T]) Has(v T) bool { return s&(1<<v) != 0 }

func archNames(s Set[Arch]) string {
	var names []string
	for a := range archs.words {
		if s.Has(Arch(a)) {
			names = append(names, archs.words[a])
		}
	}
	return strings.Join(names, ", ")
}

// firstLayout returns the layout of the set with the given element type.
func firstLayout(s Set[Layout], kv DType) Layout {
	for _, l := range mainLayouts {
		if s.Has(l) && kvOf(l) == kv {
			return l
		}
	}
	return LayoutNone
}

// onlyLayout returns the layout of the set with the given element type, if there is exactly one.
func onlyLayout(s Set[Layout], kv DType) Layout {
	l := firstLayout(s, kv)
	if l != LayoutNone && firstLayout(s&^SetOf(l), kv) != LayoutNone {
		return LayoutNone
	}
	return l
}

// mainLayouts are the layouts of rows, in the order of preference.
var mainLayouts = []Layout{BF16Row1152, FP8Row656, FP8Row576, F32Row2304, V4Row584, V4F32Row2048, BF16Row1024,
	FP8Row528, F32Row2048, V41Row288}

// kvOf returns the element type of a layout of rows.
func kvOf(l Layout) DType {
	switch l {
	case BF16Row1152, BF16Row1024:
		return BF16
	case V41Row288, FP8Row656, FP8Row576, FP8Row528, V4Row584, IndexPage132:
		return FP8E4M3
	case F32Row2304, F32Row2048, V4F32Row2048, IndexF32Row512:
		return F32
	case LayoutNone, IndexPage68, V41Index68:
		return DTypeUnset
	}
	return DTypeUnset
}

// Entry is one kernel of a catalogue.
type Entry struct {
	Kernel  Kernel
	Prefill bool // may serve prompt rows
	Decode  bool // may serve decode, verify and draft rows
	Archs   Set[Arch]
	V4      bool // serves V4; all others serve the DSA family
	Both    bool // serves V4 in addition to the DSA family
	Dense   bool // serves only models without an indexer
	Pooled  bool // serves only models with pooled index keys
	Pools   bool // serves models with pooled index keys in addition to the DSA family
	// OnRequest means that the kernel is used only if the user names it.
	OnRequest bool

	// Reads lists the layouts that are read in place. For layouts in Gathers, the conversion GatherBy first gathers the
	// rows of the batch. For layouts in Rewrites, the pages are first rewritten as 656-byte pages. Gathers and Rewrites
	// apply only to prompt rows.
	Reads    Set[Layout]
	Gathers  Set[Layout]
	GatherBy Convert
	Rewrites Set[Layout]

	// Heads returns the padded number of heads and how often each head is repeated, or the text of an error.
	Heads func(hw *Hardware, heads int) (padded, repeat int, err string)
	// TopK returns the text of an error about a value of index_topk, or an empty text.
	TopK func(hw *Hardware, k int) string
	// Rows returns the maximum number of rows of one launch of a kernel with the given number of heads, and the cause
	// of this limit. 0 means no limit.
	Rows func(hw *Hardware, heads int) (int, string)
	// SplitKV means that a schedule cuts the key range, and that the partial sums of every row are merged (dispatch
	// 17).
	SplitKV bool
	// Segments means that rows are cut into fixed segments of keys whose partial results are kept in scratch memory
	// (sparseScratch).
	Segments bool
	// Ropes means that FP8 rows are rotated and quantised inside the kernel.
	Ropes bool
	// More returns further reasons against the kernel; it may be nil.
	More func(d *Demand) []Objection
}

// Demand holds the requirements that the prefill kernel or the decode kernel must meet.
type Demand struct {
	Hardware *Hardware
	Model    *Model
	KV       DType
	Phase    Phase
}

// Objection is one reason against a kernel, with the code of the error if the kernel were requested.
type Objection struct {
	Code Code
	Text string
}

// readable returns the layouts that the kernel can process in a phase, in place or after a conversion.
func (e *Entry) readable(p Phase) Set[Layout] {
	if p == PhaseDecode {
		return e.Reads
	}
	return e.Reads | e.Gathers | e.Rewrites
}

// family reports whether the kernel may serve a model's attention.
func (e *Entry) family(m *Model) bool {
	if m.Dense() || e.Dense {
		return m.Dense() && e.Dense
	}
	if m.Pooled() || e.Pooled {
		return m.Pooled() && (e.Pooled || e.Pools)
	}
	return e.Both || e.V4 == m.V4()
}

// serves reports whether the kernel may be used in a phase.
func (e *Entry) serves(p Phase) bool {
	return p == PhasePrefill && e.Prefill || p == PhaseDecode && e.Decode
}

// against lists every reason why the kernel does not meet the demand, most fundamental first.
func (e *Entry) against(d *Demand) []Objection {
	var list []Objection
	add := func(code Code, format string, args ...any) {
		list = append(list, Objection{code, fmt.Sprintf(format, args...)})
	}
	if !e.serves(d.Phase) {
		add(E02, "it does not support %s", d.Phase)
	}
	if !e.Archs.Has(d.Hardware.Arch) {
		add(E02, "it runs only on %s, not on %s", archNames(e.Archs), d.Hardware.Arch)
	}
	family := e.family(d.Model)
	if !family {
		add(E02, "it does not support %s", d.Model.Family)
	}
	if d.Hardware.missing(e.Kernel) {
		add(E16, "this build was not compiled with it for %s", d.Hardware.Arch)
	}
	if family && d.KV != DTypeUnset && firstLayout(e.readable(d.Phase)&d.Model.layouts(), d.KV) == LayoutNone {
		rows := d.KV.String() + " rows"
		if l := onlyLayout(d.Model.layouts(), d.KV); l != LayoutNone {
			rows = "rows of the layout " + l.String()
		}
		add(E03, "it cannot read %s in %s", rows, d.Phase)
	}
	// V4 pads its selection to the width that the kernel needs. Lists of the tokens of pools may have any width.
	if e.TopK != nil && !d.Model.V4() && !d.Model.Dense() && !d.Model.Pooled() {
		if why := e.TopK(d.Hardware, d.Model.K); why != "" {
			add(E07, "%s", why)
		}
	}
	if e.Heads != nil {
		if _, _, why := e.Heads(d.Hardware, d.Model.Heads); why != "" {
			add(E08, "%s", why)
		}
	}
	if e.More != nil {
		list = append(list, e.More(d)...)
	}
	return list
}

func joinObjections(list []Objection) string {
	texts := make([]string, len(list))
	for i, o := range list {
		texts[i] = o.Text
	}
	return strings.Join(texts, "; ")
}

// Catalogue is a set of kernels and their accepted spellings.
type Catalogue struct {
	Name    Catalog
	Entries []Entry
	Aliases map[string]Kernel // other spellings of this catalogue's kernels
	Foreign map[Kernel]Kernel // for each kernel of the other catalogue, the kernel of this one to suggest
}

// Pair holds a prefill kernel and a decode kernel.
type Pair struct{ Prefill, Decode Kernel }

// Entry returns the entry of a kernel, or nil.
func (c *Catalogue) Entry(k Kernel) *Entry {
	for i := range c.Entries {
		if c.Entries[i].Kernel == k {
			return &c.Entries[i]
		}
	}
	return nil
}

// names lists the kernels that may be used in a phase of a model.
func (c *Catalogue) names(p Phase, m *Model) string {
	var names []string
	for i := range c.Entries {
		if e := &c.Entries[i]; e.family(m) && e.serves(p) {
			names = append(names, e.Kernel.String())
		}
	}
	return strings.Join(names, ", ")
}

// PadTo64 pads heads to one of the two tile heights of the sparse kernels.
func PadTo64(_ *Hardware, heads int) (int, int, string) {
	switch {
	case heads <= 64:
		return 64, 1, ""
	case heads <= 128:
		return 128, 1, ""
	}
	return 0, 0, TooManyHeads(heads, 128)
}

// TooManyHeads returns the error text for more heads than a kernel supports.
func TooManyHeads(heads, most int) string {
	ranks := (heads + most - 1) / most
	return fmt.Sprintf("%d heads per rank exceed the %d it can hold; a tensor-parallel size %d times larger would fit",
		heads, most, ranks)
}

// MultipleOf returns the text of an error if index_topk (k) is not a multiple of n.
func MultipleOf(k, n int) string {
	if k%n != 0 {
		return fmt.Sprintf("index_topk %d is not a multiple of %d", k, n)
	}
	return ""
}
