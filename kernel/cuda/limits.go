package cuda

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"sparrow/internal/cuda/image"
	"sparrow/internal/unit"
	"sparrow/kernel"
)

// limited holds the limits of a device and the state with which they are enforced.
type limited struct {
	text   string       // description of the limits; empty without limits
	chip   string       // architecture that the driver compiles for
	memory int64        // bytes that may be allocated, 0 for all
	used   atomic.Int64 // bytes that are allocated
	green  uintptr      // context with a part of the multiprocessors, 0 for all
	bus    bus
}

// NeedsPortable returns the reason why a device with these limits cannot use the kernels for Hopper; empty if it can.
func NeedsPortable(l kernel.Limits) string {
	switch need := hopperShared(); {
	case l.Arch != "" && l.Arch != "sm90":
		return fmt.Sprintf("%s has no kernels of its own", l.Arch)
	case l.Shared > 0 && l.Shared < need:
		return fmt.Sprintf("a block has %s of shared memory, but the kernels for Hopper need up to %s",
			unit.Bytes(int64(l.Shared)), unit.Bytes(int64(need)))
	}
	return ""
}

// hopperShared returns the maximum shared memory in bytes of a block of the kernels for Hopper.
func hopperShared() (most int) {
	m, err := image.Load()
	if err != nil {
		return 0 // loading the kernels reports the error
	}
	for i := range m.Images {
		for _, k := range m.Images[i].Kernels {
			if m.Images[i].Native() {
				most = max(most, k.Dynamic)
			}
		}
	}
	return most
}

// limit returns the properties of the device after applying limits, and a description of the limits that have an
// effect.
func (p Properties) limit(l kernel.Limits) (Properties, string, error) {
	if !l.Any() {
		return p, "", nil
	}
	for _, v := range []int64{l.Memory, int64(l.Shared), int64(l.SMs), l.Bus} {
		if v < 0 {
			return p, "", argumentError("the limits are %+v, want 0 (none) or more", l)
		}
	}
	name := p.Name
	p.Name += ", limited"
	if l.Profile != "" {
		p.Name = name + " as " + l.Profile
	}
	if l.Arch != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(l.Arch, "sm"))
		if err != nil || n < 10*oldestMajor {
			return p, "", argumentError("the architecture of the limits is %q, want one such as sm89", l.Arch)
		}
		p.Major, p.Minor = n/10, n%10
	}
	var parts []string
	bound := func(has, want int64, show func(int64) string, what string) int64 {
		got := has
		switch {
		case want > 0 && want <= has:
			got = want
			parts = append(parts, show(got)+" "+what)
		case want > has:
			parts = append(parts, fmt.Sprintf("%s %s (%s was requested, but it has no "+
				"more)", show(got), what, show(want)))
		}
		return got
	}
	plain := func(n int64) string { return strconv.FormatInt(n, 10) }
	p.MemoryBytes = bound(p.MemoryBytes, l.Memory, unit.Bytes, "of memory")
	p.SharedOptinBytes = int(bound(int64(p.SharedOptinBytes), int64(l.Shared), unit.Bytes, "of shared memory a block"))
	p.SMs = int(bound(int64(p.SMs), int64(l.SMs), plain, "multiprocessors"))
	if l.Bus > 0 {
		parts = append(parts, fmt.Sprintf("bus %.3g GB/s", float64(l.Bus)/1e9))
	}
	return p, strings.Join(parts, ", "), nil
}

// OpenLimited opens a device like Open or OpenPortable and applies limits. If the kernels for Hopper need more than the
// limits allow, it uses the portable kernels.
func OpenLimited(ordinal int, portable bool, l kernel.Limits) (*Device, error) {
	d, err := open(ordinal, portable || NeedsPortable(l) != "")
	if err != nil || !l.Any() {
		return d, err
	}
	if err := d.limit(l); err != nil {
		return nil, errors.Join(fmt.Errorf("the limits of device %d cannot be kept: %w", ordinal, err), d.Close())
	}
	return d, nil
}

// limit applies limits to an open device on which nothing has been allocated.
func (d *Device) limit(l kernel.Limits) error {
	p, text, err := d.props.limit(l)
	if err != nil {
		return err
	}
	sms := d.props.SMs
	d.props, d.limits.text = p, text
	if p.SMs < sms {
		if err := d.divide(p.SMs); err != nil {
			return err
		}
	}
	if l.Memory > 0 {
		d.limits.memory = p.MemoryBytes
	}
	if l.Bus > 0 {
		return d.limits.bus.open(d, l.Bus)
	}
	return nil
}

// Limits describes the limits of the device; empty if there are none.
func (d *Device) Limits() string { return d.limits.text }

// BusRate returns the limit of the bus in bytes per second, or 0 if there is none.
func (d *Device) BusRate() int64 { return d.limits.bus.rate }

// Constants of the driver's interface for green contexts.
const (
	resourceSMs         = 1
	ignoreCoscheduling  = 1 // allows smaller parts, which cannot run clusters of blocks
	greenDefaultStream  = 1
	resourceBytes       = 256 // at least the size of CUdevResource
	resourceCountOffset = 96  // offset of the number of multiprocessors in it
)

// divide creates a context for the device with at most the given number of multiprocessors. A GPU can be divided only
// in groups of multiprocessors, so the actual number may be smaller.
func (d *Device) divide(most int) error {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	clear(f.block[:3*resourceBytes])
	all, part, rest := &f.block[0], &f.block[resourceBytes], &f.block[2*resourceBytes]
	at := func(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) }
	if err := d.driver.call(f, cuDeviceGetDevResource, uintptr(d.handle), at(all), resourceSMs); err != nil {
		return fmt.Errorf("cuda: %d multiprocessors: %w", most, err)
	}
	flags := uintptr(0)
	if d.portable {
		flags = ignoreCoscheduling
	}
	got, least := 0, 0
	for n := most; n > 0; n-- {
		f.out[1] = 1 // number of groups
		if err := d.driver.call(f, cuDevSmResourceSplitByCount, at(part), f.slot(1), at(all), at(rest), flags,
			uintptr(n)); err != nil {
			return fmt.Errorf("cuda: %d multiprocessors: %w", n, err)
		}
		// The count is a u32 in the driver's struct.
		if got = int(*(*uint32)(unsafe.Pointer(&f.block[resourceBytes+resourceCountOffset]))); got <= most {
			break
		}
		least, got = got, 0
	}
	if got == 0 {
		return argumentError("%d multiprocessors were requested, but the smallest part of %s has %d; give that or "+
			"more", most,
			d.props.Name, least)
	}
	if got != most {
		d.limits.text += fmt.Sprintf(" (%d multiprocessors: it is divided in groups)", got)
	}
	if err := d.driver.call(f, cuDevResourceGenerateDesc, f.slot(0), at(part), 1); err != nil {
		return fmt.Errorf("cuda: %d multiprocessors: %w", got, err)
	}
	if err := d.driver.call(f, cuGreenCtxCreate, f.slot(1), uintptr(f.out[0]), uintptr(d.handle),
		greenDefaultStream); err != nil {
		return fmt.Errorf("cuda: a context of %d multiprocessors: %w", got, err)
	}
	green := uintptr(f.out[1])
	if err := d.driver.call(f, cuCtxFromGreenCtx, f.slot(0), green); err != nil {
		return fmt.Errorf("cuda: a context of %d multiprocessors: %w", got, err)
	}
	d.limits.green, d.context, d.props.SMs = green, uintptr(f.out[0]), got
	return nil
}

// bus delays copies between host and device, so that they take at least as long as on a slower bus. A kernel before a
// copy reserves the time that its bytes need on that bus, after earlier reservations; a kernel after the copy waits
// until that time is over. The two directions are independent. Copies of less than busLeast bytes, and rows that
// kernels exchange with the host, are not delayed.
type bus struct {
	rate   int64 // bytes per second; 0 for no limit
	state  *Buffer
	fn     *Function
	queues atomic.Int32 // number of streams that have their own word of the state
}

const (
	busLeast   = 64 << 10
	busStreams = 62 // number of stream words of the state, after the words of the two directions
	toDevice   = 0
	toHost     = 1
)

func (b *bus) open(d *Device, rate int64) (err error) {
	const words = 2 + busStreams
	if b.state, err = d.Alloc(8 * words); err != nil {
		return err
	}
	b.rate = rate
	return d.plain(cuMemsetD32Async, uintptr(b.state.ptr), 0, 2*words, 0)
}

// load looks up the kernel that delays copies.
func (b *bus) load(k *Kernels) (err error) {
	if b.rate > 0 {
		b.fn, err = k.Function("offload_bus")
	}
	return err
}

// lane returns the address of the word of the state for a new stream, or 0 if the rate has no limit.
func (b *bus) lane() (Ptr, error) {
	if b.rate == 0 {
		return 0, nil
	}
	n := b.queues.Add(1)
	if n > busStreams {
		return 0, argumentError("the limited bus has %d streams, want at most %d", n, busStreams)
	}
	return b.state.ptr.Add(8 * int64(1+n)), nil
}

// overBus runs a copy at the rate of the limited bus. If slots is not nil, only the bytes of slots that a choice needs
// are counted.
func (s *Stream) overBus(direction, bytes int64, slots *FetchArgs, copy func() error) error {
	b := &s.device.limits.bus
	if b.rate == 0 || b.fn == nil || bytes < busLeast {
		return copy()
	}
	a := FetchArgs{To: [4]Ptr{b.state.ptr.Add(8 * direction), s.lane},
		Bytes: [4]int64{int64(float64(bytes) * 1e9 / float64(b.rate))}}
	if slots != nil {
		a.Places, a.Pairs, a.Slots = slots.Places, slots.Pairs, slots.Slots
	}
	if err := s.bus(a); err != nil {
		return err
	}
	if err := copy(); err != nil {
		return err
	}
	a.Reserved = 1
	return s.bus(a)
}

// bus launches the kernel that reserves the time of a copy before it, or waits for that time after it.
func (s *Stream) bus(a FetchArgs) error {
	return Run(s, s.device.limits.bus.fn, Launch{Grid: Dim{X: 1}, Block: Dim{X: portableThreads}}, &a)
}
