package plan

import (
	"errors"
	"fmt"
	"strings"
)

// Chooser decides the kernels of both phases and the layout of the cache (dispatch 9 and 16). It keeps explicit
// choices, fills an open phase with the first candidate that makes a legal pair, and checks the pair.
type Chooser struct {
	*Catalogue
	*Notes
	Hardware *Hardware
	Model    *Model
	// KV is the element type of the cache. Wish is the layout that the user named, if any, and Named is how the user
	// wrote it.
	KV    DType
	Wish  Layout
	Named string
	// Asked has the names that the user gave for each phase. Why is the reason for a prefill kernel that the user did
	// not name.
	Asked [2]string
	Why   string
	// Pairs lists the candidate pairs that contain the kernels already decided, best first.
	Pairs func(settled Pair) []Pair
	// Against returns objections that follow from the user's other settings.
	Against func(k Kernel, p Phase) []Objection
	// Faster is the reason why the first of two suitable pairs is preferred; empty if the order of the catalogue
	// decides. Wins is a short text that compares the times of their prefill kernels.
	Faster, Wins string

	settled Pair
}

// Choice is the decision of a Chooser.
type Choice struct {
	Pair
	Layout   Layout
	Rejected []Rejection
}

// Choose returns the pair and the layout of the cache, or an error that lists what works.
func (c *Chooser) Choose() (Choice, error) {
	for i, p := range phasePair {
		k, err := c.parse(p, c.Asked[i])
		if err != nil {
			return Choice{}, err
		}
		*c.side(p) = k
	}
	// A kernel with OnRequest, named for one phase, is used for the unset phase too.
	for _, p := range phasePair {
		if k := *c.side(p); k != KernelNone && c.Entry(k).OnRequest {
			if other := c.side(PhasePrefill + PhaseDecode - p); *other == KernelNone {
				*other = k
			}
		}
	}
	for _, p := range phasePair {
		k := *c.side(p)
		if k == KernelNone {
			continue
		}
		if against := c.against(k, p); len(against) > 0 {
			return Choice{}, c.refuse(k, p, against)
		}
		why := "requested by the user"
		if p == PhasePrefill && c.Why != "" {
			why = c.Why
		}
		c.Because("dispatch 16", "%s %s: %s", p, k, why)
	}
	return c.fill()
}

// phasePair lists both phases, in the order in which their kernels are decided.
var phasePair = [2]Phase{PhasePrefill, PhaseDecode}

func (c *Chooser) side(p Phase) *Kernel {
	if p == PhasePrefill {
		return &c.settled.Prefill
	}
	return &c.settled.Decode
}

func (c *Chooser) against(k Kernel, p Phase) []Objection {
	list := c.Entry(k).against(&Demand{Hardware: c.Hardware, Model: c.Model, KV: c.KV, Phase: p})
	if c.Against != nil {
		list = append(list, c.Against(k, p)...)
	}
	return list
}

// fill chooses candidates for the phases whose kernel the user did not name.
func (c *Chooser) fill() (Choice, error) {
	if c.settled.Prefill != KernelNone && c.settled.Decode != KernelNone {
		layout, err := c.pairLayout(c.settled)
		if err != nil {
			return Choice{}, err
		}
		return c.settle(c.settled, layout), nil
	}
	var refusal error
	for _, p := range c.Pairs(c.settled) {
		p = c.settled.or(p)
		layout, err := c.try(p)
		if err == nil {
			c.whyTaken(p)
			return c.settle(p, layout), nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	if errors.Is(refusal, E02) {
		return Choice{}, c.NothingFits()
	}
	return Choice{}, refusal
}

// or returns the pair with its unset members taken from another pair.
func (p Pair) or(q Pair) Pair {
	if p.Prefill != KernelNone {
		q.Prefill = p.Prefill
	}
	if p.Decode != KernelNone {
		q.Decode = p.Decode
	}
	return q
}

// whyTaken adds the reasons for the kernels that the user did not name.
func (c *Chooser) whyTaken(p Pair) {
	first := fmt.Sprintf("first candidate that fits %s and %s", c.Hardware.Arch, c.KV)
	switch {
	case c.settled.Prefill != KernelNone:
	case c.Faster != "":
		c.Because("dispatch 13", "prefill %s: %s", p.Prefill, c.Faster)
	default:
		c.Because("dispatch 16", "prefill %s: %s", p.Prefill, first)
	}
	if c.settled.Decode == KernelNone {
		c.Because("dispatch 16", "decode %s: %s", p.Decode, first)
	}
}

func (c *Chooser) try(p Pair) (Layout, error) {
	if against := c.against(p.Prefill, PhasePrefill); len(against) > 0 {
		return LayoutNone, c.refuse(p.Prefill, PhasePrefill, against)
	}
	if against := c.against(p.Decode, PhaseDecode); len(against) > 0 {
		return LayoutNone, c.refuse(p.Decode, PhaseDecode, against)
	}
	return c.pairLayout(p)
}

// pairLayout returns the layout of a pair, or an error that names both kernels.
func (c *Chooser) pairLayout(p Pair) (Layout, error) {
	if l := c.usable(p); l != LayoutNone {
		return l, nil
	}
	return LayoutNone, c.layoutClash(p)
}

// settle returns the choice: the pair, the layout with its conversion, and the rejected candidates.
func (c *Chooser) settle(p Pair, l Layout) Choice {
	c.Because("dispatch 9", "layout %s: decode %s reads it in place", l, p.Decode)
	switch e := c.Entry(p.Prefill); {
	case e.Reads.Has(l):
	case e.Rewrites.Has(l):
		c.Because("dispatch 9", "prefill %s rewrites the pages a batch refers to from %s to %s", p.Prefill, l,
			FP8Row656)
	case e.Gathers.Has(l):
		c.Because("dispatch 9", "prefill %s gathers rows of %s", p.Prefill, l)
	}
	return Choice{Pair: p, Layout: l, Rejected: c.rejections(p, l)}
}

// rejections explains, for every other kernel of the catalogue and each phase,
// why it was not chosen.
func (c *Chooser) rejections(chosen Pair, l Layout) []Rejection {
	var list []Rejection
	for i, phase := range phasePair {
		taken := chosen.Prefill
		if phase == PhaseDecode {
			taken = chosen.Decode
		}
		for j := range c.Entries {
			e := &c.Entries[j]
			if e.Kernel == taken || !e.Prefill && !e.Decode {
				continue
			}
			rej := Rejection{Kernel: e.Kernel, Phase: phase}
			against := c.against(e.Kernel, phase)
			switch {
			case len(against) > 0:
				rej.Code, rej.Reason = against[0].Code, joinObjections(against)
			case !e.readable(phase).Has(l):
				rej.Code, rej.Reason = E04, fmt.Sprintf("it cannot read the layout %s in %s", l, phase)
			case e.OnRequest:
				rej.Reason = "used only if a flag selects it"
			case phase == PhasePrefill && c.Why != "":
				rej.Reason = fmt.Sprintf("fits, but %s is the default", taken)
			case c.Asked[i] != "":
				rej.Reason = fmt.Sprintf("fits, but %s was requested", taken)
			case phase == PhasePrefill && c.Faster != "":
				rej.Reason = fmt.Sprintf("fits, but %s %s", taken, c.Wins)
			default:
				rej.Reason = fmt.Sprintf("fits, but %s is preferred", taken)
			}
			list = append(list, rej)
		}
	}
	return list
}

// parse reads a kernel's name: its name in this catalogue, an alias, or a name with the prefix that older versions
// used.
func (c *Chooser) parse(p Phase, word string) (Kernel, error) {
	if strings.TrimSpace(word) == "" {
		return KernelNone, nil
	}
	name := fold(word)
	if rest, old := strings.CutPrefix(name, "nsa-"); old {
		name = rest
		c.Notice(NoticeDeprecated, "dispatch 16", "%s %q is an old name; write %q", p, word,
			strings.ReplaceAll(rest, "-", "_"))
	}
	if k, ok := c.Aliases[name]; ok {
		c.Notice(NoticeInfo, "dispatch 16", "%s %q is %s in the catalogue %s", p, word, k, c.Name)
		return k, nil
	}
	k, known := kernels.find(name)
	if known && c.Entry(k) != nil {
		return k, nil
	}
	e := &Error{Code: E02, Asked: fmt.Sprintf("%s kernel %q, which the catalogue %s does not have", p, word, c.Name),
		Supported: c.names(p, c.Model)}
	if near, ok := c.Foreign[k]; known && ok {
		e.Try = fmt.Sprintf("--%s %s", p, near)
	}
	return KernelNone, e
}
