package plan

import (
	"fmt"

	"sparrow/internal/cost"
)

// costs are times that were measured on one device of an architecture.
type costs struct{ cost.Choices }

// costs returns the costs of hardware that our kernels run on.
func (h *Hardware) costs() costs {
	if h.Arch.CUDA() { // measured on one of them; the faster of two ways is the same on the others
		return costs{cost.H200().Choices}
	}
	c := cost.XeonChoices()
	if h.NoTiles {
		// Both forms then multiply float32, and the dense form needs a third of the operations.
		c.Prompts = nil
	}
	return costs{c}
}

// crossing returns the largest measured size at which the first alternative is faster; all reports that it is at every
// size.
func crossing(list []cost.Contest) (size int, all bool) {
	for _, c := range list {
		if c.First >= c.Second {
			return size, false
		}
		size = c.Size
	}
	return size, true
}

// denseReason states the gain of the dense form up to the given number of keys.
func (c *costs) denseReason(keys int) string {
	if len(c.Prompts) == 0 {
		return "index_topk"
	}
	at := c.Prompts[0]
	for _, p := range c.Prompts {
		if p.Size <= keys {
			at = p
		}
	}
	text := fmt.Sprintf("on %s, attention of a prompt of %d keys takes a layer %v ms dense, %v sparse", c.Device,
		at.Size, at.First, at.Second)
	const with = " (measured with the 128 heads of DeepSeek-V3.2)"
	for _, p := range c.Prompts {
		if p.Size > keys && p.First >= p.Second {
			return text + fmt.Sprintf("; of %d keys %v and %v", p.Size, p.First, p.Second) + with
		}
	}
	return text + with
}

// flat reports whether V4 prompts are faster gathered, over all sizes: one kernel serves every size, because the bits
// of a row must not depend on how long its batch is.
func (c *costs) flat() bool {
	var gathered, inPlace float64
	for _, p := range c.V4 {
		gathered, inPlace = gathered+p.First, inPlace+p.Second
	}
	return gathered < inPlace
}

// flatReason quotes the times of the longest and the shortest measured prompt.
func (c *costs) flatReason() string {
	short, long := c.V4[0], c.V4[len(c.V4)-1]
	return fmt.Sprintf("on %s, attention of a prompt of %d tokens takes a layer %v ms gathered, %v in place; of "+
		"%d tokens %v and %v (measured with the 64 heads of DeepSeek-V4-Flash)", c.Device, long.Size, long.First,
		long.Second, short.Size, short.First, short.Second)
}

// group returns how many of n verified rows of a request are scored at a time: all of them, or the largest equal groups
// that the kernels take where groups are faster than split rows; 1 means split.
func (h *Hardware) group(n int) int {
	c, most := h.costs(), 1
	for _, g := range h.NativeNextN {
		if n == g || n%g == 0 && c.Verify.First < c.Verify.Second {
			most = max(most, g)
		}
	}
	return most
}

// groupReason quotes the times of groups and of split rows.
func (c *costs) groupReason() string {
	return fmt.Sprintf("on %s over 32768 keys take %v ms in groups of %d, %v split", c.Verified, c.Verify.First,
		c.Verify.Size, c.Verify.Second)
}
