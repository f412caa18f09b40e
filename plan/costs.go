package plan

import (
	"fmt"

	"sparrow/internal/cost"
)

// costs are times that were measured on one device of an architecture.
type costs struct{ cost.Choices }

// costs returns the costs of hardware that our kernels run on.
func (h *Hardware) costs() costs {
	if h.Arch.CUDA() { // measured on one GPU; the same way is assumed to be faster on the others
		return costs{cost.H200().Choices}
	}
	c := cost.XeonChoices()
	if h.NoTiles {
		// Both forms then multiply float32 values, and the dense form needs a third of the operations of the sparse
		// form.
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
	text := fmt.Sprintf("on %s, a layer's attention of a prompt of %d keys takes %v ms in the dense form and %v ms in "+
		"the sparse form", c.Device, at.Size, at.First, at.Second)
	const with = " (measured with the 128 heads of DeepSeek-V3.2)"
	for _, p := range c.Prompts {
		if p.Size > keys && p.First >= p.Second {
			return text + fmt.Sprintf("; with %d keys it takes %v ms and %v ms", p.Size, p.First, p.Second) + with
		}
	}
	return text + with
}

// flat reports whether V4 prompts are faster with gathered rows, in the sum over all measured sizes. One kernel
// serves every size, because the bits of a row must not depend on the number of rows in its batch.
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
	return fmt.Sprintf("on %s, a layer's attention of a prompt of %d tokens takes %v ms over gathered rows and %v ms "+
		"over rows in place; with %d tokens it takes %v ms and %v ms (measured with the 64 heads of DeepSeek-V4-Flash)",
		c.Device, long.Size, long.First,
		long.Second, short.Size, short.First, short.Second)
}

// group returns how many of n verified rows of a request are scored at a time: all of them, or the largest equal groups
// that the kernels take if groups are faster than split rows; 1 means split.
func (h *Hardware) group(n int) int {
	c, most := h.costs(), 1
	for _, g := range h.NativeNextN {
		if n == g || n%g == 0 && c.Verify.First < c.Verify.Second {
			most = max(most, g)
		}
	}
	return most
}

// groupReason quotes the measured times of scores in groups and of scores row by row.
func (c *costs) groupReason() string {
	return fmt.Sprintf("on %s, scores over 32768 keys take %v ms in groups of %d rows and %v ms row by row", c.Verified,
		c.Verify.First, c.Verify.Size, c.Verify.Second)
}
