package plan

import (
	"errors"
	"fmt"
	"strings"
)

// kernels settles the pair and the stored layout (dispatch 9 and 16): explicit
// choices are kept, open sides take the first candidate that makes a legal
// pair, and the pair as a whole is checked.
func (r *resolver) kernels() error {
	prefill, err := r.parseKernel(PhasePrefill, r.policy.Prefill)
	if err != nil {
		return err
	}
	decode, err := r.parseKernel(PhaseDecode, r.policy.Decode)
	if err != nil {
		return err
	}
	// A reference on one side is a request for proof: the open side follows.
	if prefill == Reference && decode == KernelNone {
		decode = Reference
	}
	if decode == Reference && prefill == KernelNone {
		prefill = Reference
	}
	r.cfg.Prefill, r.cfg.Decode = prefill, decode
	for _, side := range []struct {
		phase  Phase
		kernel Kernel
	}{{PhasePrefill, prefill}, {PhaseDecode, decode}} {
		if side.kernel == KernelNone {
			continue
		}
		if against := r.against(side.kernel, side.phase); len(against) > 0 {
			return r.refuse(side.kernel, side.phase, against)
		}
		why := "asked for"
		if side.phase == PhasePrefill && r.policy.PrefillWhy != "" {
			why = r.policy.PrefillWhy
		}
		r.reason("dispatch 16", "%s %s: %s", side.phase, side.kernel, why)
	}
	return r.choosePair()
}

func (r *resolver) against(k Kernel, p Phase) []objection {
	return r.cat.entry(k).against(&demand{hw: r.hw, model: r.model, policy: r.policy, kv: r.kv, phase: p})
}

// choosePair fills the open sides.
func (r *resolver) choosePair() error {
	prefill, decode := r.cfg.Prefill, r.cfg.Decode
	if prefill != KernelNone && decode != KernelNone {
		layout, err := r.pairLayout(pair{prefill, decode})
		if err == nil {
			r.settle(pair{prefill, decode}, layout)
		}
		return err
	}
	var refusal error
	for _, p := range r.cat.pairs(r) {
		open := p
		if prefill != KernelNone {
			open.prefill = prefill
		}
		if decode != KernelNone {
			open.decode = decode
		}
		layout, err := r.tryPair(open)
		if err == nil {
			if prefill == KernelNone {
				r.whyPrefill(open.prefill)
			}
			if decode == KernelNone {
				r.reason("dispatch 16", "decode %s: first candidate that fits %s and %s", open.decode, r.hw.Arch, r.kv)
			}
			r.settle(open, layout)
			return nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	if errors.Is(refusal, E02) {
		return r.nothingFits()
	}
	return refusal
}

// whyPrefill gives the reason of a prefill kernel that was left open.
func (r *resolver) whyPrefill(k Kernel) {
	if r.byCost() {
		c := r.hw.costs()
		r.reason("dispatch 13", "prefill %s: %s", k, c.flatReason())
		return
	}
	r.reason("dispatch 16", "prefill %s: first candidate that fits %s and %s", k, r.hw.Arch, r.kv)
}

// byCost reports whether measured times choose between two prefill kernels that fit (costs.flat).
func (r *resolver) byCost() bool {
	p := r.policy
	return p.Catalog == CatalogSparrow && r.model.v4() && r.kv == FP8E4M3 && !p.Deterministic &&
		(p.V4SparsePrefill == SparsePrefillUnset || p.V4SparsePrefill == SparsePrefillAuto)
}

func (r *resolver) tryPair(p pair) (Layout, error) {
	if against := r.against(p.prefill, PhasePrefill); len(against) > 0 {
		return LayoutNone, r.refuse(p.prefill, PhasePrefill, against)
	}
	if against := r.against(p.decode, PhaseDecode); len(against) > 0 {
		return LayoutNone, r.refuse(p.decode, PhaseDecode, against)
	}
	return r.pairLayout(p)
}

// pairLayout is the layout of a pair, or the refusal that names both sides.
func (r *resolver) pairLayout(p pair) (Layout, error) {
	if l := r.usable(p); l != LayoutNone {
		return l, nil
	}
	over := ""
	if r.wish != LayoutNone {
		over = fmt.Sprintf(", over layout %s", r.wish)
	}
	return LayoutNone, r.layoutClash(p, over)
}

// settle writes the pair, its layout and everything that was turned down.
func (r *resolver) settle(p pair, l Layout) {
	r.cfg.Prefill, r.cfg.Decode, r.cfg.Layout = p.prefill, p.decode, l
	r.cfg.IndexLayout = IndexPage132
	if r.kv == F32 || r.policy.ExactIndex {
		r.cfg.IndexLayout = IndexF32Row512
	}
	if r.policy.FP4Index {
		r.cfg.IndexLayout = IndexPage68
		r.reason("dispatch 13", "indexer keys and queries in four bits, as asked")
	}
	r.reason("dispatch 9", "layout %s: decode %s reads it in place", l, p.decode)
	pe := r.cat.entry(p.prefill)
	switch {
	case pe.reads.has(l):
	case pe.rewrites.has(l):
		r.reason("dispatch 9", "prefill %s rewrites the pages a batch refers to from %s to %s", p.prefill, l, FP8Row656)
	case pe.gathers.has(l):
		r.reason("dispatch 9", "prefill %s gathers rows of %s", p.prefill, l)
	}
	r.cfg.Rejected = r.rejections(p)
}

// rejections explains, for every other kernel of the catalogue and each phase,
// why it was not taken.
func (r *resolver) rejections(chosen pair) []Rejection {
	var list []Rejection
	for _, phase := range []Phase{PhasePrefill, PhaseDecode} {
		taken, asked := chosen.prefill, r.policy.Prefill
		if phase == PhaseDecode {
			taken, asked = chosen.decode, r.policy.Decode
		}
		for i := range r.cat.entries {
			e := &r.cat.entries[i]
			if e.kernel == taken || (!e.prefill && !e.decode) {
				continue
			}
			rej := Rejection{Kernel: e.kernel, Phase: phase}
			against := r.against(e.kernel, phase)
			switch {
			case len(against) > 0:
				rej.Code, rej.Reason = against[0].code, joinObjections(against)
			case !e.readable(phase).has(r.cfg.Layout):
				rej.Code, rej.Reason = E04, fmt.Sprintf("it cannot read the layout %s in %s", r.cfg.Layout, phase)
			case e.kernel == Reference:
				rej.Reason = "only on request"
			case phase == PhasePrefill && r.policy.PrefillWhy != "":
				rej.Reason = fmt.Sprintf("fits, but %s is the default", taken)
			case asked != "":
				rej.Reason = fmt.Sprintf("fits, but %s was asked for", taken)
			case phase == PhasePrefill && r.byCost():
				rej.Reason = fmt.Sprintf("fits, but %s was measured faster", taken)
			default:
				rej.Reason = fmt.Sprintf("fits, but %s comes first", taken)
			}
			list = append(list, rej)
		}
	}
	return list
}

// parseKernel reads a kernel name: of this catalogue, an alias, or with the
// prefix of an older naming.
func (r *resolver) parseKernel(p Phase, word string) (Kernel, error) {
	if strings.TrimSpace(word) == "" {
		return KernelNone, nil
	}
	name := fold(word)
	if rest, old := strings.CutPrefix(name, "nsa-"); old {
		name = rest
		r.notice(NoticeDeprecated, "dispatch 16", "%s %q is an old name; write %q", p, word,
			strings.ReplaceAll(rest, "-", "_"))
	}
	if k, ok := r.cat.aliases[name]; ok {
		r.notice(NoticeInfo, "dispatch 16", "%s %q is %s in the catalogue %s", p, word, k, r.policy.Catalog)
		return k, nil
	}
	k, known := kernels.find(name)
	if known && r.cat.entry(k) != nil {
		return k, nil
	}
	e := &Error{Code: E02, Asked: fmt.Sprintf("%s kernel %q, which the catalogue %s does not have", p, word,
		r.policy.Catalog), Supported: r.cat.names(p, r.model)}
	if near, ok := r.cat.foreign[k]; known && ok {
		e.Try = fmt.Sprintf("--%s %s", p, near)
	}
	return KernelNone, e
}
