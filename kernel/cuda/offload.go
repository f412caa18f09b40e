package cuda

import "time"

// ExchangeArgs are the arguments of the kernels that pass rows to workers on the host and read results back.
type ExchangeArgs struct {
	X           Ptr // bf16 [Rows, Hidden], multiple of 16
	IDs         Ptr // i32 [Rows, Top]: chosen experts, negative for none; an unknown id raises FaultExpert
	Table       Ptr // i32 [Experts]: index among the packed experts, OnHost, or below OnHost: on another rank
	Places      Ptr // i32 [Rows, Top]: entry of Table for each choice, written by PostRows
	Results     Ptr // bf16 [Rows*Top, Hidden], multiple of 16: TakeResults writes those of the host's experts
	Words       Ptr // host memory: words of the mailbox
	MailX       Ptr // host memory: bf16 [Rows, Hidden], multiple of 16
	MailIDs     Ptr // host memory: i32 [Rows, Top]
	MailResults Ptr // host memory: bf16 [Rows*Top, Hidden], multiple of 16
	State       Ptr // ExchangeStateBytes bytes, zero at first
	Faults      Ptr // one u32 of fault bits (FaultHost), or zero
	XStride     int64
	IDStride    int64
	Timeout     int64 // time-out in nanoseconds
	Rows        int32
	Top         int32 // at most 256
	Hidden      int32 // multiple of 8
	Experts     int32
	Layer       int32
	Prompt      int32
	Limit       float32
	Reserved    int32
}

// OnHost is the table entry of experts that the host's workers compute.
const OnHost = -1

// ExchangeStateBytes is the size in bytes of a device's exchange state: number of exchanges, number of blocks that have
// arrived, and whether the workers failed to answer.
const ExchangeStateBytes = 16

// PlacesArgs are the arguments of the kernel that looks up the indices of chosen experts among the packed experts.
type PlacesArgs struct {
	IDs      Ptr // i32 [Rows, Top]
	Table    Ptr // i32 [Experts]: index among the packed experts, negative for none
	Places   Ptr // i32 [Rows, Top]
	Faults   Ptr // one u32 of fault bits, or zero
	IDStride int64
	Rows     int32
	Top      int32
	Experts  int32
	Reserved int32
}

// FetchArgs are the arguments of the kernel that copies packed experts from host memory if a row has chosen them.
type FetchArgs struct {
	Places   Ptr      // i32 [Pairs]: slot of the chosen expert, negative for none
	From     [4]Ptr   // host memory: [Slots, Bytes] for each part of packed experts
	To       [4]Ptr   // device memory: [Slots, Bytes] for each part
	Bytes    [4]int64 // bytes of a slot: multiples of 16 in the first two parts, of 8 in the other two
	Pairs    int32
	Slots    int32
	Blocks   int32 // set by FetchExperts
	Reserved int32 // 1 if the kernel follows a delayed copy (limits.go)
}

// MaxExchangeTop is the maximum number of choices of a row of an exchange.
const MaxExchangeTop = portableThreads

// fetchBlocks is the number of blocks that copy an expert: 256 threads with 4 loads of 16 bytes each have 1 MiB in
// flight.
const fetchBlocks = 64

func (a *ExchangeArgs) check(c *checks) {
	for _, m := range []struct {
		name  string
		at    Ptr
		align int
	}{{"x", a.X, 16}, {"ids", a.IDs, 4}, {"table", a.Table, 4}, {"places", a.Places, 4}, {"results", a.Results, 16},
		{"words", a.Words, 64}, {"rows of the mailbox", a.MailX, 16}, {"ids of the mailbox", a.MailIDs, 4},
		{"results of the mailbox", a.MailResults, 16}, {"state", a.State, 4}} {
		c.memory(m.name, m.at, m.align)
	}
	c.multiple("x stride", a.XStride, 8, int64(a.Hidden))
	c.multiple("columns", int64(a.Hidden), 8, 8)
	c.multiple("id stride", a.IDStride, 1, int64(a.Top))
	c.count("rows", a.Rows)
	c.positive("experts", a.Experts)
	if a.Top < 1 || a.Top > MaxExchangeTop {
		c.fail("a row has %d choices, want 1 to %d", a.Top, MaxExchangeTop)
	}
	if a.Timeout <= 0 || a.Timeout > int64(time.Hour) {
		c.fail("the time-out is %d ns, want at most an hour", a.Timeout)
	}
}

// PostRows looks up the indices of chosen experts and passes rows to the host's workers. WaitForHost waits for their
// answer.
func PostRows(k *Kernels, s *Stream, a *ExchangeArgs) error {
	c := checks{kernel: "offload_post"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(a.Rows)}, a)
}

// WaitForHost waits on the device until the workers have answered the latest PostRows.
func WaitForHost(k *Kernels, s *Stream, a *ExchangeArgs) error {
	c := checks{kernel: "offload_wait"}
	a.check(&c)
	if c.err != nil || a.Rows == 0 {
		return c.err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: 1}, Block: Dim{X: 32}, Overlap: s.overlap}, a)
}

// TakeResults copies the results of the host's experts to the rows of their choices in Results.
func TakeResults(k *Kernels, s *Stream, a *ExchangeArgs) error {
	c := checks{kernel: "offload_take"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(a.Rows) * uint32(max(a.Top, 0))}, a)
}

// LookUpPlaces looks up the indices of chosen experts among the packed experts.
func LookUpPlaces(k *Kernels, s *Stream, a *PlacesArgs) error {
	c := checks{kernel: "offload_places"}
	c.memory("ids", a.IDs, 4)
	c.memory("table", a.Table, 4)
	c.memory("places", a.Places, 4)
	c.multiple("id stride", a.IDStride, 1, int64(a.Top))
	c.count("rows", a.Rows)
	c.positive("choices of a row", a.Top)
	c.positive("experts", a.Experts)
	pairs := int64(a.Rows) * int64(a.Top)
	if pairs > MaxExpertPairs {
		c.fail("%d rows of %d choices are more than %d pairs: run fewer rows", a.Rows, a.Top, MaxExpertPairs)
	}
	return runGrid(k, s, &c, Dim{X: uint32((pairs + portableThreads - 1) / portableThreads)}, a)
}

// FetchExperts copies the packed experts that rows have chosen to the device.
func FetchExperts(k *Kernels, s *Stream, a *FetchArgs) error {
	c := checks{kernel: "offload_fetch"}
	c.memory("places", a.Places, 4)
	c.count("pairs", a.Pairs)
	c.positive("slots", a.Slots)
	for i, n := range a.Bytes {
		align := 16
		if i > 1 {
			align = 8
		}
		c.multiple("bytes of a slot", n, int64(align), 0)
		if n > 0 {
			c.memory("packed experts in host memory", a.From[i], align)
			c.memory("slots", a.To[i], align)
		}
	}
	if c.err != nil || a.Pairs == 0 {
		return c.err
	}
	a.Blocks = fetchBlocks
	bytes := a.Bytes[0] + a.Bytes[1] + a.Bytes[2] + a.Bytes[3]
	return s.overBus(toDevice, bytes, a, func() error {
		return runGrid(k, s, &c, Dim{X: fetchBlocks, Y: uint32(a.Slots)}, a)
	})
}
