package formula

import (
	"errors"
	"fmt"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/sample"
)

// ErrFault is wrapped by the error of an operation with an injected fault.
var ErrFault = errors.New("formula: a simulated fault")

// Op is an operation that can fail.
type Op string

// Operations of a pass in their order, followed by the operations of sequence states.
const (
	OpArrange Op = "arrange" // layout of the first pass of a shape
	OpPrepare Op = "prepare"
	OpWrite   Op = "write"   // copy of inputs to the device
	OpExecute Op = "execute" // execution; after a failure some rows may be stored
	OpFetch   Op = "fetch"   // copy of results from the device
	OpWait    Op = "wait"
	OpState   Op = "state" // creation or restoration of a state
)

// Fault is the kind of failure of an operation.
type Fault uint8

// Kinds of faults.
const (
	None     Fault = iota
	Fail           // the operation returns an error
	Panic          // the operation panics if the caller must survive that; otherwise it returns an error
	Hang           // the operation takes very long
	NaN            // the results of the pass are NaN
	NoMemory       // the operation returns an error of missing memory
	Lose           // the device is lost: this operation and all later operations fail
	Faults         // number of kinds of faults
)

// Cost holds the virtual times of which the time of a pass is the sum.
type Cost struct {
	Pass   time.Duration // time of every pass
	Row    time.Duration // time of each prompt row
	Decode time.Duration // time of each row that decodes or verifies
	Keys   time.Duration // time of each thousand keys that rows attend to
}

// of returns the time of a pass with the given numbers of prompt rows, decode rows and keys.
func (c Cost) of(rows, decodes, keys int) time.Duration {
	return c.Pass + time.Duration(rows-decodes)*c.Row + time.Duration(decodes)*c.Decode +
		c.Keys*time.Duration(keys)/1000
}

// Time is virtual time that advances while a process sleeps; clock.Virtual implements it.
type Time interface {
	Now() time.Time
	Sleep(time.Duration)
}

// Device is a device in host memory with a queue whose work takes virtual time. The passes of Model use no operations.
type Device struct {
	kernel.Device
	cost    Cost
	time    Time           // clock of passes; nil if passes take no time
	beside  bool           // value of Settings.Beside
	faults  func(Op) Fault // returns the fault of an operation; nil means no faults
	hang    time.Duration
	lost    bool
	nan     bool          // the results of the pass in progress are NaN
	pending time.Duration // time of work whose results were not fetched yet
	free    time.Time     // time at which the earlier work is done
	scratch *sample.Scratch
}

// Settings holds the properties of a device other than its results. The zero value takes no time and has no faults.
type Settings struct {
	Cost   Cost
	Time   Time
	Beside bool           // the device computes while the host continues, so that the host may enqueue the next pass
	Faults func(Op) Fault // called at every operation
	Hang   time.Duration  // time of an operation that hangs
}

// NewDevice makes a device.
func NewDevice(s Settings) *Device {
	return &Device{Device: &ref.Device{}, cost: s.Cost, time: s.Time, beside: s.Beside, faults: s.Faults, hang: s.Hang}
}

// Name returns a name that is not registered, because only simulations have the device.
func (*Device) Name() string { return "formula" }

// Asynchronous reports whether the device computes while the host continues.
func (d *Device) Asynchronous() bool { return d.beside }

// Write copies inputs.
func (d *Device) Write(dst kernel.Tensor, src []byte) error {
	if err := d.try(OpWrite); err != nil {
		return err
	}
	return d.Device.Write(dst, src)
}

// Fetch copies results; the time of the work passes when the caller waits for the event.
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

// event marks the end of enqueued work.
type event struct {
	d  *Device
	at time.Time
}

// Wait advances the time until the work is done.
func (e event) Wait() error {
	if e.d.time != nil {
		e.d.sleep(e.at.Sub(e.d.time.Now()))
	}
	return e.d.try(OpWait)
}

// sampler returns the memory for sampling tokens of a vocabulary.
func (d *Device) sampler(vocabulary int) *sample.Scratch {
	if d.scratch == nil {
		var err error
		if d.scratch, err = sample.NewScratch(vocabulary); err != nil {
			panic(err) // the vocabularies of shapes are small enough
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

// operations is the number of parts of a divided pass, between which other passes can run.
const operations = 16

// divided is the program of a pass in parts. begin runs with the first part and end with the last; each part takes an
// equal share of the time.
type divided struct {
	dev   *Device
	begin func() (time.Duration, error)
	end   func() error
	takes time.Duration
	whole bool // the program has one part
	nan   bool // the results of the pass are NaN
}

// Len returns the number of parts of the pass.
func (p *divided) Len() int {
	if p.whole || p.dev.time == nil || p.dev.beside {
		return 1
	}
	return operations
}

// Run lets the time of the parts pass: at once, or, if there is only one part, when the caller waits for the results.
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

// try injects the fault of an operation, if it has one.
func (d *Device) try(op Op) error {
	if d.lost {
		return fmt.Errorf("formula: %s: %w", op, kernel.ErrLost)
	}
	if d.faults == nil {
		return nil
	}
	fault := d.faults(op)
	if fault == Panic && op == OpState {
		fault = Fail // a panic in this operation would end the engine, which is the correct behaviour
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
