package plan

import (
	"fmt"
	"slices"
	"strings"
)

// layoutClash names what each kernel reads and two pairs that agree.
func (r *resolver) layoutClash(p pair, over string) error {
	describe := func(k Kernel, phase Phase) string {
		var names []string
		set := r.cat.entry(k).readable(phase) & r.model.layouts()
		for l := BF16Row1152; l <= V4F32Row2048; l++ {
			if set.has(l) && kvOf(l) == r.kv {
				names = append(names, l.String())
			}
		}
		return strings.Join(names, " or ")
	}
	e := &Error{Code: E04, Asked: fmt.Sprintf("prefill %s (reads %s) with decode %s (reads %s)%s",
		p.prefill, describe(p.prefill, PhasePrefill), p.decode, describe(p.decode, PhaseDecode), over)}
	legal := r.legalPairs(2, p)
	texts := make([]string, len(legal))
	for i, q := range legal {
		texts[i] = fmt.Sprintf("--prefill %s --decode %s", q.prefill, q.decode)
	}
	e.Supported = strings.Join(texts, "; ")
	if len(texts) > 0 {
		e.Try = r.flags(legal[0])
	}
	return e
}

// legalPairs lists up to n pairs that work here: the pair itself first, then
// those that share a side with it, and of equals those that convert nothing.
func (r *resolver) legalPairs(n int, near pair) []pair {
	var all []pair
	for i := range r.cat.entries {
		for j := range r.cat.entries {
			p := pair{r.cat.entries[i].kernel, r.cat.entries[j].kernel}
			if p.prefill != Reference && p.decode != Reference && r.legal(p) {
				all = append(all, p)
			}
		}
	}
	distance := func(p pair) int {
		d := 0
		if p.prefill != near.prefill && p.decode != near.decode {
			d += 4
		}
		if p != near {
			d += 2
		}
		if !r.cat.entry(p.prefill).reads.has(r.usable(p)) {
			d++
		}
		return d
	}
	slices.SortStableFunc(all, func(a, b pair) int { return distance(a) - distance(b) })
	return all[:min(n, len(all))]
}

// usable is the layout both kernels of a pair can serve: read in place by the
// decode kernel, and by the prefill kernel in place if possible.
func (r *resolver) usable(p pair) Layout {
	pe, de := r.cat.entry(p.prefill), r.cat.entry(p.decode)
	both := r.model.layouts() & de.reads & pe.readable(PhasePrefill)
	if r.wish != LayoutNone {
		both &= setOf(r.wish)
	}
	if l := firstLayout(both&pe.reads, r.kv); l != LayoutNone {
		return l
	}
	return firstLayout(both, r.kv)
}

func (r *resolver) legal(p pair) bool {
	return len(r.against(p.prefill, PhasePrefill)) == 0 && len(r.against(p.decode, PhaseDecode)) == 0 &&
		r.usable(p) != LayoutNone
}

// refuse turns objections to one kernel into an Error with a working
// alternative.
func (r *resolver) refuse(k Kernel, p Phase, against []objection) error {
	e := &Error{Code: against[0].code,
		Asked: fmt.Sprintf("%s %s on %s with kv %s, but %s", p, k, r.hw.Arch, r.kv, joinObjections(against))}
	fits := r.fitting(p)
	e.Supported = strings.Join(fits, ", ")
	if len(fits) == 0 {
		e.Supported = fmt.Sprintf("no kernel but reference serves this %s", p)
	}
	e.Try = r.nearest(k, p)
	return e
}

func (r *resolver) fitting(p Phase) []string {
	var names []string
	for i := range r.cat.entries {
		e := &r.cat.entries[i]
		if e.kernel != Reference && len(r.against(e.kernel, p)) == 0 {
			names = append(names, e.kernel.String())
		}
	}
	return names
}

// nearest is a complete set of flags that works. A KV type the user named is
// kept and the kernel exchanged; otherwise the kernel is kept, with the KV type
// it reads.
func (r *resolver) nearest(k Kernel, p Phase) string {
	keepKV := func() string {
		for _, q := range r.cat.pairs(r) {
			with := q
			if p == PhaseDecode && r.cfg.Prefill != KernelNone {
				with.prefill = r.cfg.Prefill
			}
			if p == PhasePrefill && r.cfg.Decode != KernelNone {
				with.decode = r.cfg.Decode
			}
			for _, candidate := range []pair{with, q} {
				if r.legal(candidate) {
					return r.flags(candidate)
				}
			}
		}
		return ""
	}
	keepKernel := func() string {
		for _, kv := range []DType{FP8E4M3, BF16} {
			alt := *r
			alt.kv, alt.wish = kv, LayoutNone
			for _, q := range alt.legalPairs(1, pair{k, k}) {
				if q.prefill == k || q.decode == k {
					return alt.flags(q)
				}
			}
		}
		return ""
	}
	order := []func() string{keepKernel, keepKV}
	if r.policy.KV != "" {
		order = []func() string{keepKV, keepKernel}
	}
	for _, option := range order {
		if flags := option(); flags != "" {
			return flags
		}
	}
	if r.cat.entry(Reference).archs.has(r.hw.Arch) {
		return "--prefill reference --decode reference"
	}
	return "--hw cpu"
}

// flags spells a pair and its KV type as a command line.
func (r *resolver) flags(p pair) string {
	name := r.kv.String()
	switch {
	case r.wish != LayoutNone:
		name = r.wish.String()
	case r.kv == FP8E4M3:
		name = "fp8"
	}
	return fmt.Sprintf("--kv %s --prefill %s --decode %s", name, p.prefill, p.decode)
}

// nothingFits lists every kernel with its reason.
func (r *resolver) nothingFits() error {
	e := &Error{Code: E01, Asked: fmt.Sprintf("%s on %s with kv %s", r.model.Family, r.hw.Arch, r.kvName())}
	var tried []string
	for i := range r.cat.entries {
		k := &r.cat.entries[i]
		if !k.prefill && !k.decode || k.kernel == Reference && k.archs.has(r.hw.Arch) {
			continue
		}
		phase := PhasePrefill
		if !k.prefill {
			phase = PhaseDecode
		}
		against := r.against(k.kernel, phase)
		if len(against) == 0 {
			continue
		}
		e.Tried = append(e.Tried, Rejection{k.kernel, phase, against[0].code, joinObjections(against)})
		tried = append(tried, fmt.Sprintf("%s (%s)", k.kernel, joinObjections(against)))
	}
	e.Supported = "none of the kernels tried: " + strings.Join(tried, ", ")
	e.Try = "--hw cpu or --hw sm90, or --catalog public to see what other engines have"
	if r.policy.Catalog == CatalogPublic {
		e.Try = "--prefill reference --decode reference"
	}
	return e
}

func (r *resolver) kvName() string {
	switch {
	case r.kv != DTypeUnset:
		return r.kv.String()
	case r.policy.KV != "":
		return r.policy.KV
	}
	return "auto"
}
