package plan

import (
	"fmt"
	"slices"
	"strings"
)

// layoutClash returns a refusal that lists the layouts that each kernel reads and two pairs whose kernels read the
// same layout.
func (c *Chooser) layoutClash(p Pair) error {
	over := ""
	if c.Wish != LayoutNone {
		over = fmt.Sprintf(", over layout %s", c.Wish)
	}
	describe := func(k Kernel, phase Phase) string {
		var names []string
		set := c.Entry(k).readable(phase) & c.Model.layouts()
		for _, l := range mainLayouts {
			if set.Has(l) && kvOf(l) == c.KV {
				names = append(names, l.String())
			}
		}
		return strings.Join(names, " or ")
	}
	e := &Error{Code: E04, Asked: fmt.Sprintf("prefill %s (reads %s) with decode %s (reads %s)%s",
		p.Prefill, describe(p.Prefill, PhasePrefill), p.Decode, describe(p.Decode, PhaseDecode), over)}
	legal := c.legalPairs(2, p)
	texts := make([]string, len(legal))
	for i, q := range legal {
		texts[i] = fmt.Sprintf("--prefill %s --decode %s", q.Prefill, q.Decode)
	}
	e.Supported = strings.Join(texts, "; ")
	if len(texts) > 0 {
		e.Try = c.flags(legal[0])
	}
	return e
}

// LegalPairs lists every supported pair, pairs without a conversion first.
func (c *Chooser) LegalPairs() []Pair { return c.legalPairs(len(c.Entries)*len(c.Entries), Pair{}) }

// legalPairs lists up to n supported pairs: near itself first, then pairs that have one kernel in common with it, and
// among equals pairs without a conversion.
func (c *Chooser) legalPairs(n int, near Pair) []Pair {
	var all []Pair
	for i := range c.Entries {
		for j := range c.Entries {
			a, b := &c.Entries[i], &c.Entries[j]
			if p := (Pair{a.Kernel, b.Kernel}); !a.OnRequest && !b.OnRequest && c.legal(p) {
				all = append(all, p)
			}
		}
	}
	distance := func(p Pair) int {
		d := 0
		if p.Prefill != near.Prefill && p.Decode != near.Decode {
			d += 4
		}
		if p != near {
			d += 2
		}
		if !c.Entry(p.Prefill).Reads.Has(c.usable(p)) {
			d++
		}
		return d
	}
	slices.SortStableFunc(all, func(a, b Pair) int { return distance(a) - distance(b) })
	return all[:min(n, len(all))]
}

// usable returns a layout that both kernels of a pair support. The decode kernel reads it in place. A layout that the
// prefill kernel also reads in place is preferred.
func (c *Chooser) usable(p Pair) Layout {
	pe, de := c.Entry(p.Prefill), c.Entry(p.Decode)
	both := c.Model.layouts() & de.Reads & pe.readable(PhasePrefill)
	if c.Wish != LayoutNone {
		both &= SetOf(c.Wish)
	}
	if l := firstLayout(both&pe.Reads, c.KV); l != LayoutNone {
		return l
	}
	return firstLayout(both, c.KV)
}

func (c *Chooser) legal(p Pair) bool {
	return len(c.against(p.Prefill, PhasePrefill)) == 0 && len(c.against(p.Decode, PhaseDecode)) == 0 &&
		c.usable(p) != LayoutNone
}

// refuse returns an Error with the objections to one kernel and a supported alternative.
func (c *Chooser) refuse(k Kernel, p Phase, against []Objection) error {
	e := &Error{Code: against[0].Code,
		Asked: fmt.Sprintf("%s %s on %s with kv %s, but %s", p, k, c.Hardware.Arch, c.KV, joinObjections(against))}
	fits := c.fitting(p)
	e.Supported = strings.Join(fits, ", ")
	if len(fits) == 0 {
		e.Supported = fmt.Sprintf("no kernel supports this %s%s", p, c.unless())
	}
	e.Try = c.nearest(k, p)
	return e
}

func (c *Chooser) fitting(p Phase) []string {
	var names []string
	for i := range c.Entries {
		e := &c.Entries[i]
		if !e.OnRequest && len(c.against(e.Kernel, p)) == 0 {
			names = append(names, e.Kernel.String())
		}
	}
	return names
}

// nearest returns a supported set of flags near the requested one. A KV type that the user chose is kept and the kernel
// is replaced; otherwise the kernel is kept, with a KV type that it reads.
func (c *Chooser) nearest(k Kernel, p Phase) string {
	keepKV := func() string {
		other := c.settled
		if p == PhasePrefill {
			other.Prefill = KernelNone
		} else {
			other.Decode = KernelNone
		}
		for _, q := range c.Pairs(c.settled) {
			for _, candidate := range []Pair{other.or(q), q} {
				if c.legal(candidate) {
					return c.flags(candidate)
				}
			}
		}
		return ""
	}
	keepKernel := func() string {
		for _, kv := range []DType{FP8E4M3, BF16} {
			alt := *c
			alt.KV, alt.Wish = kv, LayoutNone
			for _, q := range alt.legalPairs(1, Pair{k, k}) {
				if q.Prefill == k || q.Decode == k {
					return alt.flags(q)
				}
			}
		}
		return ""
	}
	order := []func() string{keepKernel, keepKV}
	if c.Named != "" {
		order = []func() string{keepKV, keepKernel}
	}
	anyPair := func() string {
		for _, q := range c.legalPairs(1, c.settled) {
			return c.flags(q)
		}
		return ""
	}
	for _, option := range append(order, anyPair) {
		if flags := option(); flags != "" {
			return flags
		}
	}
	if k := c.byName(); k != KernelNone {
		return fmt.Sprintf("--prefill %s --decode %s", k, k)
	}
	return "--hw cpu"
}

// byName returns a kernel that can run here but is used only if the user names it, or KernelNone.
func (c *Chooser) byName() Kernel {
	for i := range c.Entries {
		if e := &c.Entries[i]; e.OnRequest && e.Archs.Has(c.Hardware.Arch) {
			return e.Kernel
		}
	}
	return KernelNone
}

// unless returns text that names the kernel of byName as an exception to a refusal.
func (c *Chooser) unless() string {
	if k := c.byName(); k != KernelNone {
		return fmt.Sprintf(" but %s", k)
	}
	return ""
}

// flags returns the command-line flags of a pair and its KV type.
func (c *Chooser) flags(p Pair) string {
	name := c.KV.String()
	switch {
	case c.Wish != LayoutNone:
		name = c.Wish.String()
	case c.KV == FP8E4M3:
		name = "fp8"
	}
	return fmt.Sprintf("--kv %s --prefill %s --decode %s", name, p.Prefill, p.Decode)
}

// NothingFits lists every kernel with its reason. Its text names only the kernels for the model's family, if there are
// any.
func (c *Chooser) NothingFits() error {
	e := &Error{Code: E01, Asked: fmt.Sprintf("%s on %s with kv %s", c.Model.Family, c.Hardware.Arch, c.kvName())}
	ofFamily := func(k Entry) bool { return k.family(c.Model) }
	all := !slices.ContainsFunc(c.Entries, ofFamily)
	var tried []string
	for i := range c.Entries {
		k := &c.Entries[i]
		if !k.Prefill && !k.Decode || k.OnRequest && k.Archs.Has(c.Hardware.Arch) {
			continue
		}
		phase := PhasePrefill
		if !k.Prefill {
			phase = PhaseDecode
		}
		against := c.against(k.Kernel, phase)
		if len(against) == 0 {
			continue
		}
		e.Tried = append(e.Tried, Rejection{k.Kernel, phase, against[0].Code, joinObjections(against)})
		if all || ofFamily(*k) {
			tried = append(tried, fmt.Sprintf("%s (%s)", k.Kernel, joinObjections(against)))
		}
	}
	e.Supported = "none of the kernels tried: " + strings.Join(tried, ", ")
	e.Try = strings.Join(c.elsewhere(), " or ")
	if c.Name == CatalogSparrow && !ours.Has(c.Hardware.Arch) {
		e.Try += ", or --catalog public for the kernels of other engines"
	}
	if k := c.byName(); k != KernelNone {
		e.Try = fmt.Sprintf("--prefill %s --decode %s", k, k)
	}
	return e
}

// elsewhere lists flags for the other architectures on which kernels of the catalogue support both phases of the
// model.
func (c *Chooser) elsewhere() (flags []string) {
	for _, hw := range presets {
		if c.Name == CatalogSparrow && hw.Arch != CPU && hw.Arch != SM90 {
			continue // one GPU is named as an example of all GPUs that run the model
		}
		fits := func(p Phase) bool {
			return slices.ContainsFunc(c.Entries, func(e Entry) bool {
				return len(e.against(&Demand{Hardware: &hw, Model: c.Model, Phase: p})) == 0
			})
		}
		if hw.Arch != c.Hardware.Arch && fits(PhasePrefill) && fits(PhaseDecode) {
			flags = append(flags, "--hw "+hw.Arch.String())
		}
	}
	return flags
}

func (c *Chooser) kvName() string {
	switch {
	case c.KV != DTypeUnset:
		return c.KV.String()
	case c.Named != "":
		return c.Named
	}
	return "auto"
}
