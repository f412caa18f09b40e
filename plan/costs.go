package plan

import "fmt"

// costs are times that were measured on one device of an architecture. Where two ways compute the same, plans take
// the one that these say is faster, and reasons quote them. docs/benchmarks.md and docs/benchmarks-h200.md hold the
// tables with their commands; a test compares them with these.
type costs struct {
	device string
	// prompts are whole prompts of DeepSeek-V3.2 in one layer, ascending: keys, and milliseconds of attention in the
	// dense and in the sparse form, neither with scores, means over bf16 and FP8 rows (BenchmarkShortPrompt in
	// attn/mla). None means that the dense form is taken wherever it is exact.
	prompts []contest
	// v4 are whole prompts of DeepSeek-V4-Flash in a layer of ratio 4: rows, and milliseconds of attention gathered
	// and in place (BenchmarkPrompt in attn/dual).
	v4 []contest
	// verify are scores of 8 rows of each request over 32,768 keys: rows of a group, and milliseconds in groups and
	// split (BenchmarkVerifyScores in kernel/cpu for one request; index_paged in kernel/cuda/bench for 64).
	verify   contest
	verified string // where and what that was
}

// contest is the times of two ways at one size.
type contest struct {
	size          int
	first, second float64 // milliseconds
}

// costs are those of hardware that our kernels run on.
func (h *Hardware) costs() costs {
	if h.Arch == SM90 {
		return costs{
			device: "an H200",
			prompts: []contest{{128, 0.0336, 0.0797}, {256, 0.0457, 0.135}, {512, 0.0796, 0.268}, {1024, 0.173, 0.63},
				{2048, 0.439, 1.8}},
			v4:     []contest{{512, 0.0504, 0.0686}, {4096, 0.535, 0.703}, {13312, 1.86, 2.38}, {30720, 4.43, 5.61}},
			verify: contest{4, 0.235, 0.552}, verified: "an H200, 8 rows of each of 64 requests",
		}
	}
	c := costs{
		device:  "two cores of a Xeon",
		prompts: []contest{{128, 39.1, 49.5}, {256, 92.6, 113}, {512, 260, 271}, {1024, 698, 635}, {2048, 2958, 1997}},
		v4:      []contest{{512, 45.4, 45.4}, {4096, 752, 850}, {13312, 2886, 3441}, {30720, 6818, 8693}},
		verify:  contest{4, 9.5, 12.6}, verified: "one core of a Xeon, 8 rows of a request",
	}
	if h.NoTiles {
		// Both forms then multiply float32, of which the dense form needs a third.
		c.prompts = nil
	}
	return c
}

// crossing is up to which measured size the first way is faster; all says that it is at every size.
func crossing(list []contest) (size int, all bool) {
	for _, c := range list {
		if c.first >= c.second {
			return size, false
		}
		size = c.size
	}
	return size, true
}

// denseReason says what the dense form gains up to that many keys.
func (c *costs) denseReason(keys int) string {
	if len(c.prompts) == 0 {
		return "index_topk"
	}
	at := c.prompts[0]
	for _, p := range c.prompts {
		if p.size <= keys {
			at = p
		}
	}
	text := fmt.Sprintf("on %s, attention of a prompt of %d keys takes a layer %.3g ms dense, %.3g sparse", c.device,
		at.size, at.first, at.second)
	for _, p := range c.prompts {
		if p.size > keys && p.first >= p.second {
			return text + fmt.Sprintf("; of %d keys %.3g and %.3g", p.size, p.first, p.second)
		}
	}
	return text
}

// flat reports whether V4 prompts are faster gathered, over all sizes: one kernel serves every size, because the bits
// of a row must not depend on how long its batch is.
func (c *costs) flat() bool {
	var gathered, inPlace float64
	for _, p := range c.v4 {
		gathered, inPlace = gathered+p.first, inPlace+p.second
	}
	return gathered < inPlace
}

// flatReason quotes the longest and the shortest prompt.
func (c *costs) flatReason() string {
	short, long := c.v4[0], c.v4[len(c.v4)-1]
	return fmt.Sprintf("on %s, attention of a prompt of %d tokens takes a layer %.3g ms gathered, %.3g in place; of "+
		"%d tokens %.3g and %.3g", c.device, long.size, long.first, long.second, short.size, short.first, short.second)
}

// group is how many of n verified rows of a request are scored at a time: all of them, or the largest equal groups
// that the kernels take where groups are faster than split rows; 1 means split.
func (h *Hardware) group(n int) int {
	c, most := h.costs(), 1
	for _, g := range h.NativeNextN {
		if n == g || n%g == 0 && c.verify.first < c.verify.second {
			most = max(most, g)
		}
	}
	return most
}

// groupReason quotes groups against split rows.
func (c *costs) groupReason() string {
	return fmt.Sprintf("on %s over 32768 keys take %.3g ms in groups of %d, %.3g split", c.verified, c.verify.first,
		c.verify.size, c.verify.second)
}
