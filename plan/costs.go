package plan

import (
	"cmp"
	"fmt"

	"sparrow/internal/cost"
)

// costs holds measured times of alternative methods, on one device with one set of kernels. Plans use them to choose
// the faster method.
type costs struct {
	cost.Choices
	// assumed means that the times were measured with other kernels than those of the plan, or on another device.
	assumed bool
}

// costs returns the measured times for the hardware. For every GPU these are the times of the Hopper kernels on an
// H200: the method that is faster there is assumed to be faster on other GPUs and with other kernels.
func (h *Hardware) costs() costs {
	if h.Arch.CUDA() {
		m := cost.H200()
		return costs{m.Choices, h.portable() || !h.isA(&m.GPU)}
	}
	c := cost.XeonChoices()
	if h.NoTiles {
		// Without tiles, both forms of attention multiply float32 values, and the dense form needs a third of the
		// operations.
		c.Prompts = nil
	}
	return costs{c, h.NoTiles}
}

// portableCosts returns the measured times of the portable kernels, for a GPU.
func (h *Hardware) portableCosts() costs {
	m := cost.H200()
	return costs{cost.PortableChoices(), !h.isA(&m.GPU)}
}

// isA reports whether the hardware is a GPU of Hopper's architecture with the multiprocessors and the memory of g.
// Sizes of memory may differ by a tenth, because makers and drivers report them differently.
func (h *Hardware) isA(g *cost.GPU) bool {
	difference := h.MemoryBytes - g.MemoryBytes
	return h.Arch == SM90 && h.SMs == g.SMs && max(difference, -difference) < g.MemoryBytes/10
}

// source begins a text that quotes times: it states where and with which kernels they were measured, or that they are
// assumed.
func (c *costs) source() string { return c.sourceOn(c.Device) }

func (c *costs) sourceOn(device string) string {
	if c.assumed {
		return fmt.Sprintf("assumed (measured with %s on %s): ", c.Kernels, device)
	}
	return fmt.Sprintf("on %s with %s, ", device, c.Kernels)
}

// faster returns the text that a kernel is faster by these times.
func (c *costs) faster() string {
	if c.assumed {
		return "is assumed to be faster"
	}
	return "was measured faster"
}

// crossing returns the largest measured size at which the first alternative is faster. all is true if it is faster at
// every measured size.
func crossing(list []cost.Contest) (size int, all bool) {
	for _, c := range list {
		if c.First >= c.Second {
			return size, false
		}
		size = c.Size
	}
	return size, true
}

// denseReason returns the text that compares the times of the dense and the sparse form, up to the given number of
// keys.
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
	text := fmt.Sprintf("%sa layer's attention of a prompt of %d keys takes %v ms in the dense form, %v in "+
		"the sparse form", c.source(),
		at.Size, at.First, at.Second)
	const with = " (measured with the 128 heads of DeepSeek-V3.2)"
	for _, p := range c.Prompts {
		if p.Size > keys && p.First >= p.Second {
			return text + fmt.Sprintf("; with %d keys it takes %v ms and %v ms", p.Size, p.First, p.Second) + with
		}
	}
	return text + with
}

// flat reports whether V4 prompts are faster with gathered rows, by the sum of times over all measured sizes. One
// kernel is used for every size, because the bits of a row must not depend on the number of rows in its batch.
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
	return fmt.Sprintf("%sa layer's attention of a prompt of %d tokens takes %v ms over gathered rows, %v over rows "+
		"in place; of %d tokens %v and %v (measured with the 64 heads of DeepSeek-V4-Flash)", c.source(), long.Size,
		long.First, long.Second,
		short.Size, short.First, short.Second)
}

// group returns how many of n verified rows of a request are scored at a time: all of them, or, if that is faster than
// single rows, the largest equal groups that the kernels support. 1 means that rows are scored one by one.
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
	return fmt.Sprintf("%s%s over 32768 keys take %v ms in groups of %d, %v split",
		c.sourceOn(cmp.Or(c.VerifiedOn, c.Device)), c.Verified, c.Verify.First, c.Verify.Size, c.Verify.Second)
}

// decodeReason quotes the times of decodes for each way to split their keys that was measured.
func (c *costs) decodeReason(at ...cost.Decode) string {
	text := fmt.Sprintf("%sattention of %s over FP8 pages takes %v us cut after 256 keys, %v after 512", c.source(),
		countRows(at[0].Rows), at[0].Keys256, at[0].Keys512)
	whole := at[0].Whole > 0
	if whole {
		text += fmt.Sprintf(", %v whole", at[0].Whole)
	}
	for _, d := range at[1:] {
		text += fmt.Sprintf("; of %d rows %v, %v", d.Rows, d.Keys256, d.Keys512)
		if whole {
			text += fmt.Sprintf(", %v", d.Whole)
		}
	}
	return text
}

func countRows(n int) string {
	if n == 1 {
		return fmt.Sprintf("1 row of %d heads", cost.DecodeHeads)
	}
	return fmt.Sprintf("%d rows of %d heads", n, cost.DecodeHeads)
}

// latentReason quotes the times of decodes over all their keys.
func (c *costs) latentReason() string {
	few := c.Latent[0]
	text := fmt.Sprintf("%sattention of %s over %d keys takes %v us cut after 512 keys, %v after 1024, %v after 2048",
		c.source(), countRows(few.Rows), cost.LatentKeys, few.Keys512, few.Keys1024, few.Keys2048)
	for _, d := range c.Latent[1:] {
		text += fmt.Sprintf("; of %d rows %v, %v, %v", d.Rows, d.Keys512, d.Keys1024, d.Keys2048)
	}
	return text
}
