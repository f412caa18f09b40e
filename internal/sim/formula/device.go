package formula

import (
	"errors"
	"fmt"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/sample"
)

// ErrFault is wrapped by the errors of injected faults.
var ErrFault = errors.New("formula: a simulated fault")

// Op is an operation for which a fault can be injected.
type Op string

// Operations: those of a pass in their order, then those of sequence states.
const (
	OpArrange Op = "arrange" // preparation of the first pass of a shape
	OpPrepare Op = "prepare"
	OpWrite   Op = "write"   // copy of inputs to the device
	OpExecute Op = "execute" // execution; if it fails, some rows may have been stored
	OpFetch   Op = "fetch"   // copy of results from the device
	OpWait    Op = "wait"
	OpState   Op = "state" // creation or restoration of a sequence state
)

// Fault is a kind of fault.
type Fault uint8

// Kinds of faults.
const (
	None     Fault = iota
	Fail           // the operation returns an error
	Panic          // the operation panics, or returns an error if the engine does not recover from panics there
	Hang           // the operation takes Settings.Hang
	NaN            // the results of the pass are NaN
	NoMemory       // the operation returns an out-of-memory error
	Lose           // the device is lost: this and all later operations fail
	Faults         // number of kinds
)

// Cost holds the virtual times that are added up to the time of a pass.
type Cost struct {
	Pass   time.Duration // per pass
	Row    time.Duration // per prompt row
	Decode time.Duration // per row that decodes or verifies
	Keys   time.Duration // per thousand keys that rows attend to
}

// of returns the time of a pass with the given numbers of prompt rows, decode rows and keys.
func (c Cost) of(rows, decodes, keys int) time.Duration {
	return c.Pass + time.Duration(rows-decodes)*c.Row + time.Duration(decodes)*c.Decode +
		c.Keys*time.Duration(keys)/1000
}

// Time is a virtual clock, such as clock.Virtual.
type Time interface {
	Now() time.Time
	Sleep(time.Duration)
}

// Device is a simulated device in host memory with a queue whose work takes virtual time. Passes of Model run none of
// its operations.
type Device struct {
	kernel.Device
	cost    Cost
	time    Time           // nil if passes take no time
	beside  bool           // Settings.Beside
	faults  func(Op) Fault // Settings.Faults
	hang    time.Duration
	lost    bool
	nan     bool          // whether the results of the current pass are NaN
	pending time.Duration // time of the work whose results were not fetched yet
	free    time.Time     // time at which earlier work ends
	scratch *sample.Scratch
}

// Settings configures a device. With the zero value, passes take no time and no faults occur.
type Settings struct {
	Cost   Cost
	Time   Time
	Beside bool           // whether the host continues while the device computes, so that it can enqueue the next pass
	Faults func(Op) Fault // returns the fault of an operation; nil means no faults
	Hang   time.Duration  // duration of an operation with the fault Hang
}

// NewDevice returns a simulated device.
func NewDevice(s Settings) *Device {
	return &Device{Device: &ref.Device{}, cost: s.Cost, time: s.Time, beside: s.Beside, faults: s.Faults, hang: s.Hang}
}

// Name returns a name that is not registered, because the device exists only in simulations.
func (*Device) Name() string { return "formula" }

// Asynchronous returns Settings.Beside.
func (d *Device) Asynchronous() bool { return d.beside }

// Write copies inputs to the device.
func (d *Device) Write(dst kernel.Tensor, src []byte) error {
	if err := d.try(OpWrite); err != nil {
		return err
	}
	return d.Device.Write(dst, src)
}

// Fetch copies results to the host. The virtual time of the pass elapses when the caller waits for the event.
func (d *Device) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	if err := d.try(OpFetch); err != nil {
		return nil, err
	}
	if _, err := d.Device.Fetch(dst, src); err != nil {
		return nil, err
	}
	took := d.pending
	d.pending = 0
	if d.time == nil {
		return event{d: d}, nil
	}
	if now := d.time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(took)
	return event{d, d.free}, nil
}

// event completes when the work enqueued before it has ended.
type event struct {
	d  *Device
	at time.Time
}

// Wait advances the virtual time to the end of the work.
func (e event) Wait() error {
	if e.d.time != nil {
		e.d.sleep(e.at.Sub(e.d.time.Now()))
	}
	return e.d.try(OpWait)
}

// sampler returns the scratch memory for sampling from a vocabulary.
func (d *Device) sampler(vocabulary int) *sample.Scratch {
	if d.scratch == nil {
		var err error
		if d.scratch, err = sample.NewScratch(vocabulary); err != nil {
			panic(err) // cannot fail: the vocabularies of shapes are small
		}
	}
	return d.scratch
}

// Lost reports whether the device is lost.
func (d *Device) Lost() bool { return d.lost }

func (d *Device) sleep(t time.Duration) {
	if d.time != nil {
		d.time.Sleep(t)
	}
}

// operations is the number of parts of a divided pass; other passes can run between parts.
const operations = 16

// divided is the program of a pass that is divided into parts of equal duration. begin runs in the first part and end
// in the last.
type divided struct {
	dev   *Device
	begin func() (time.Duration, error)
	end   func() error
	takes time.Duration
	whole bool // whether the program is a single part
	nan   bool // whether the results of the pass are NaN
}

// Len returns the number of parts.
func (p *divided) Len() int {
	if p.whole || p.dev.time == nil || p.dev.beside {
		return 1
	}
	return operations
}

// Run runs parts from ... to-1. Their virtual time elapses in Run or, if there is only one part, when the caller waits
// for the results.
func (p *divided) Run(from, to int) (err error) {
	d := p.dev
	if from == to {
		return nil
	}
	if from == 0 {
		if p.takes, err = p.begin(); err != nil {
			return err
		}
		p.nan, d.nan = d.nan, false
	}
	if p.Len() == 1 {
		d.pending += p.takes
	} else {
		d.sleep(p.takes * time.Duration(to-from) / operations)
	}
	if to < p.Len() {
		return nil
	}
	d.nan = p.nan
	defer func() { d.nan = false }()
	return p.end()
}

// try injects the fault of an operation, if Settings.Faults returns one.
func (d *Device) try(op Op) error {
	if d.lost {
		return fmt.Errorf("formula: %s: %w", op, kernel.ErrLost)
	}
	if d.faults == nil {
		return nil
	}
	fault := d.faults(op)
	if fault == Panic && op == OpState {
		fault = Fail // the engine does not recover from a panic in this operation
	}
	switch fault {
	case Fail:
		return fmt.Errorf("%w: %s", ErrFault, op)
	case NoMemory:
		return fmt.Errorf("%w: %s: %w", ErrFault, op, kernel.ErrMemory)
	case Panic:
		panic(fmt.Sprintf("%v: %s", ErrFault, op))
	case Hang:
		d.sleep(d.hang)
	case NaN:
		d.nan = true
	case Lose:
		d.lost = true
		return fmt.Errorf("%w: %s: %w", ErrFault, op, kernel.ErrLost)
	}
	return nil
}
