package plan

import (
	"fmt"

	"sparrow/internal/cost"
)

// KeySplit is the number of keys after which the sm90 kernels cut a row of FP8 pages, or a row that attends to every
// key, so that several multiprocessors compute one row. The results of the parts are added in order. The bits of a
// row depend on the cut, so all batches of a process have the same cut.
type KeySplit uint8

// SplitWhole means that one multiprocessor computes all keys of a row. The other values cut a row after every 256 to
// 2048 keys.
const (
	SplitUnset KeySplit = iota
	SplitWhole
	Split256
	Split512
	split1024
	split2048
)

var keySplits = enum[KeySplit]{"split of keys", []string{"", "whole", "256", "512", "1024", "2048"}}

func (k KeySplit) String() string                { return keySplits.text(k) }
func (k KeySplit) MarshalText() ([]byte, error)  { return keySplits.marshal(k) }
func (k *KeySplit) UnmarshalText(t []byte) error { return keySplits.unmarshal(k, t) }

// ParseKeySplit reads a split; the word auto means SplitUnset.
func ParseKeySplit(word string) (k KeySplit, err error) {
	if fold(word) == "auto" {
		return SplitUnset, nil
	}
	if err := k.UnmarshalText([]byte(word)); err != nil {
		return SplitUnset, fmt.Errorf("%w, auto", err)
	}
	return k, nil
}

// Keys returns the number of keys of a part, 0 if rows are not cut.
func (k KeySplit) Keys() int {
	switch k {
	case Split256:
		return 256
	case Split512:
		return 512
	case split1024:
		return 1024
	case split2048:
		return 2048
	}
	return 0
}

// Micros returns the measured microseconds of a decode with this split.
func (k KeySplit) Micros(d cost.Decode) float64 {
	switch k {
	case Split256:
		return d.Keys256
	case Split512:
		return d.Keys512
	}
	return d.Whole
}

// Says returns the split in words.
func (k KeySplit) Says() string {
	if n := k.Keys(); n > 0 {
		return fmt.Sprintf("cut after every %d keys", n)
	}
	return "whole"
}

// split sets Config.SplitKeys: as requested, or at the cut that was measured fastest for the configured number of
// running sequences (dispatch 16).
func (r *resolver) split() error {
	c, p := &r.cfg, r.policy
	if e := sparrowCatalogue.Entry(c.Decode); !e.Segments || r.model.V4() || r.hw.Arch == CPU {
		if p.SplitKeys == SplitUnset {
			return nil
		}
		return &Error{Code: E02,
			Asked: fmt.Sprintf("rows %s with decode %s on %s", p.SplitKeys.Says(), c.Decode, r.hw.Arch),
			Supported: fmt.Sprintf("a split of keys with decode %s, %s, %s or %s on a GPU", SparseBlock, SparseRaw,
				SparsePools, DenseLatent),
			Try: "--split-keys auto"}
	}
	if r.model.Dense() {
		return r.splitEvery()
	}
	if c.SplitKeys = p.SplitKeys; c.SplitKeys != SplitUnset {
		r.Because("dispatch 16", "%s are %s: requested by the user", r.cutRows(), c.SplitKeys.Says())
		return nil
	}
	if r.hw.portable() {
		r.splitPortable()
		return nil
	}
	times := r.hw.costs()
	if p.Running == 0 {
		c.SplitKeys = Split512
		r.Because("dispatch 16", "%s are %s: this is not the slowest for one row or for many, and the "+
			"number of concurrent sequences was not given (--max-running); %s", r.cutRows(), c.SplitKeys.Says(),
			times.decodeReason(times.Decodes[0], times.Decodes[len(times.Decodes)-1]))
		return nil
	}
	rows := p.Running * c.N
	if r.model.ByRequests() {
		rows = (rows + r.model.Ranks - 1) / r.model.Ranks
	}
	at := times.decode(rows * roundUp(r.model.Heads, unitHeads) / unitHeads)
	c.SplitKeys = fastestSplit(at)
	r.Because("dispatch 16", "%s are %s: up to %d rows of %d heads decode at once; %s", r.cutRows(),
		c.SplitKeys.Says(), rows, r.model.Heads, times.decodeReason(at))
	return nil
}

// cutRows names the rows of a model with an indexer whose keys are cut.
func (r *resolver) cutRows() string {
	if r.model.Pooled() {
		return "rows over pools"
	}
	return "rows over FP8 pages"
}

// splitPortable sets where the portable kernels cut rows. A block of threads computes 32 heads of a part. Machines with
// such GPUs usually run few sequences at once, so the cut is chosen for a single sequence unless the configuration
// has more.
func (r *resolver) splitPortable() {
	c := &r.cfg
	c.SplitKeys = Split256
	rows := max(r.policy.Running*c.N, 1)
	if r.model.ByRequests() {
		rows = (rows + r.model.Ranks - 1) / r.model.Ranks
	}
	if rows*r.model.Heads > portableHeads {
		c.SplitKeys = Split512
	}
	many := fmt.Sprintf("up to %d rows of %d heads decode at once", rows, r.model.Heads)
	if r.policy.Running == 0 {
		many = "for a single sequence, because the number of concurrent sequences was not given (--max-running)"
	}
	times := r.hw.portableCosts()
	r.Because("dispatch 16", "%s are %s: %s; %s", r.cutRows(), c.SplitKeys.Says(), many,
		times.decodeReason(times.Decodes...))
}

// portableHeads is the maximum number of heads, over all rows, whose parts of 256 keys all run at the same time.
const portableHeads = 8 * 128

// splitEvery sets where rows that attend to every key are cut. Such rows have more keys than selections have, so
// their parts may be longer, and fewer partial results have to be combined.
func (r *resolver) splitEvery() error {
	c, p := &r.cfg, r.policy
	if c.SplitKeys = p.SplitKeys; c.SplitKeys != SplitUnset {
		r.Because("dispatch 16", "rows that attend to every key are %s: requested by the user", c.SplitKeys.Says())
		return nil
	}
	times := r.hw.costs()
	if p.Running == 0 {
		c.SplitKeys = split1024
		r.Because("dispatch 16", "rows that attend to every key are %s: this is not the slowest for one row or for "+
			"many, and "+
			"the number of concurrent sequences was not given (--max-running); %s", c.SplitKeys.Says(),
			times.latentReason())
		return nil
	}
	rows := p.Running * c.N
	if r.model.ByRequests() {
		rows = (rows + r.model.Ranks - 1) / r.model.Ranks
	}
	units := rows * roundUp(r.model.Heads, unitHeads) / unitHeads
	switch {
	case units <= fewUnits:
		c.SplitKeys = Split512
	case units < manyUnits:
		c.SplitKeys = split1024
	default:
		c.SplitKeys = split2048
	}
	r.Because("dispatch 16", "rows that attend to every key are %s: up to %d rows of %d heads decode at once; %s",
		c.SplitKeys.Says(), rows, r.model.Heads, times.latentReason())
	return nil
}

// With at most fewUnits units of 64 heads, short parts occupy more multiprocessors. With at least manyUnits units,
// long parts also occupy all multiprocessors, and fewer partial results have to be added.
const fewUnits, manyUnits = 8, 32

// decode returns the measured decode with the largest number of units that is not above the given number of units of
// 64 heads.
func (c *costs) decode(units int) cost.Decode {
	at := c.Decodes[0]
	for _, d := range c.Decodes {
		if d.Rows*cost.DecodeHeads/unitHeads <= units {
			at = d
		}
	}
	return at
}

// fastestSplit returns the split that took the least time.
func fastestSplit(d cost.Decode) KeySplit {
	best := Split512
	for _, k := range []KeySplit{Split256, SplitWhole} {
		if k.Micros(d) < best.Micros(d) {
			best = k
		}
	}
	return best
}
