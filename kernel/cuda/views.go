package cuda

// PoolView is a paged cache pool in device memory. Row number slot is in page slot/PageTokens.
type PoolView struct {
	Base       Ptr   // first byte of page 0, multiple of 16
	PageBytes  int64 // bytes between pages, multiple of 16
	PageTokens int32 // rows per page
	// Slots is the number of rows of the pool. A slot at or beyond this number sets FaultSlot and is not accessed; a
	// negative slot means no row.
	Slots int32
}

// RotaryView is the table of cosines and sines by position. The host computes it, so that every device rotates by the
// same numbers.
type RotaryView struct {
	Table    Ptr // f32 [Rows, 64]: 32 cosines, then 32 sines; multiple of 16
	Rows     int32
	Reserved int32
}

// SlotListView selects the rows named by a list of slots.
type SlotListView struct {
	Slots Ptr // i32 [count]; negative: no row, zeros are written
}

// PageTableView selects all tokens of requests, through their page tables. Request r supplies rows Starts[r] to
// Starts[r+1].
type PageTableView struct {
	Table       Ptr // i32 [Requests, TableStride]: physical page of each logical page; negative: no row
	Starts      Ptr // i32 [Requests+1], ascending from 0
	TableStride int32
	Requests    int32
}

// Bits of the fault word. Kernels set a bit instead of accessing memory out of range.
const (
	FaultSlot     = 1  // a slot at or beyond the pool
	faultPosition = 2  // a position outside the rotary table
	FaultKeys     = 4  // a row of dense attention has keys outside their tensor
	FaultRow      = 8  // a row number outside its table
	FaultExpert   = 16 // an expert that does not exist
	FaultHost     = 32 // workers on the host that failed or did not answer
)

// checks keeps the first error in a launcher's arguments. Without an error it allocates nothing.
type checks struct {
	kernel string
	err    error
}

// fail records an error; only the first one is kept.
func (c *checks) fail(format string, a ...any) {
	if c.err == nil {
		c.err = argumentError("%s: "+format, append([]any{c.kernel}, a...)...)
	}
}

// memory checks that an address is given and aligned.
func (c *checks) memory(name string, p Ptr, align int) {
	if p == 0 {
		c.fail("%s is not given", name)
	}
	if !p.aligned(align) {
		c.fail("%s at %#x must be a multiple of %d", name, uint64(p), align)
	}
}

// multiple checks that v, usually a stride, is a multiple of `of`, and at least the value of least.
func (c *checks) multiple(name string, v, of, least int64) {
	if v < least || v%of != 0 {
		c.fail("%s %d must be a multiple of %d and at least %d", name, v, of, least)
	}
}

func (c *checks) count(name string, v int32) {
	if v < 0 {
		c.fail("%s %d is negative", name, v)
	}
}

// positive checks a number that must be above zero.
func (c *checks) positive(name string, v int32) {
	if v <= 0 {
		c.fail("%s %d must be positive", name, v)
	}
}

// pool checks a pool whose pages hold at least rowBytes bytes for each token.
func (c *checks) pool(p PoolView, rowBytes int64) {
	c.memory("pool", p.Base, 16)
	c.positive("page tokens", p.PageTokens)
	c.count("pool slots", p.Slots)
	c.multiple("page bytes", p.PageBytes, 16, int64(p.PageTokens)*rowBytes)
}

func (c *checks) rotary(r RotaryView) {
	c.memory("rotary table", r.Table, 16)
	c.positive("rotary rows", r.Rows)
}

// perhapsRotary checks a rotary table if one is given.
func (c *checks) perhapsRotary(r RotaryView) {
	if r != (RotaryView{}) {
		c.rotary(r)
	}
}

// pages checks the page tables and row ranges of requests.
func (c *checks) pages(v PageTableView) {
	c.memory("page table", v.Table, 4)
	c.memory("starts", v.Starts, 4)
	c.count("requests", v.Requests)
	c.count("page table stride", v.TableStride)
}
