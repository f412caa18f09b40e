package probe

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/testkit/table"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// ticking is a clock on which every GEMM and every copy takes a given time.
type ticking struct {
	at    time.Time
	takes []time.Duration // times of the next calls
	reads int
}

func (c *ticking) now() time.Time {
	if c.reads++; c.reads%2 == 0 {
		c.at = c.at.Add(c.takes[0])
		c.takes = c.takes[1:]
	}
	return c.at
}

// The rate of each GEMM follows from its shortest time, relative to the highest rate.
func TestHostOfKnownTimes(t *testing.T) {
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const size, us = 4 << 20, time.Microsecond
	clock := &ticking{takes: []time.Duration{7 * us, 5 * us}}
	// Times with one row and with sixteen rows of each format.
	for _, d := range []time.Duration{100, 25, 200, 50, 250, 125} {
		clock.takes = append(clock.takes, 3*d*us, d*us)
	}
	h, err := prober{clock.now}.host(dev, 2, size)
	if err != nil {
		t.Fatal(err)
	}
	want := cost.H200().CPU
	want.Name, want.Cores, want.Dispatch = dev.Name(), 2, 5
	want.Stream, want.Core = size/100., size/200.
	want.One, want.Sixteen = [3]float64{1, 0.5, 0.4}, [3]float64{0.5, 0.25, 0.1}
	if h != want || len(clock.takes) != 0 {
		t.Errorf("host %+v, %d unused times; want %+v", h, len(clock.takes), want)
	}
	if _, err := Bus(dev, clock.now); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("measuring the bus of a CPU: error %v", err)
	}
}

// failing is a device that fails in the given call of Alloc, Prepare or a GEMM; freed counts the freed buffers.
type failing struct {
	kernel.Device
	call  string
	after int // calls that succeed
	alive int // buffers that were allocated and not freed
}

var errFailing = errors.New("device")

func (d *failing) fail(call string) error {
	if call != d.call {
		return nil
	}
	if d.after--; d.after >= 0 {
		return nil
	}
	return errFailing
}

func (d *failing) Alloc(n int64) (kernel.Buffer, error) {
	if err := d.fail("alloc"); err != nil {
		return nil, err
	}
	d.alive++
	return d.Device.Alloc(n)
}

func (d *failing) Free(b kernel.Buffer) { d.alive--; d.Device.Free(b) }

func (d *failing) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	if err := d.fail("prepare"); err != nil {
		return nil, err
	}
	return d.Device.Prepare(w, role)
}

func (d *failing) Do(op kernel.Op) error {
	if err := d.fail("do"); err != nil {
		return err
	}
	return d.Device.Do(op)
}

// The first error ends a measurement, and its buffers are freed.
func TestMeasurementsThatFail(t *testing.T) {
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, call := range []string{"alloc", "prepare", "do"} {
		for after := range 3 {
			d := &failing{Device: dev, call: call, after: after}
			clock := &ticking{takes: make([]time.Duration, 20)}
			if _, err := (prober{clock.now}).host(d, 1, 1<<20); !errors.Is(err, errFailing) || d.alive != 0 {
				t.Errorf("%s fails after %d calls: error %v, %d buffers are left", call, after, err, d.alive)
			}
		}
	}
}

// mover is a device with page-locked memory, whose copies advance a clock.
type mover struct {
	kernel.Device
	written, syncs int
	freed          bool
}

func (m *mover) HostAlloc(n int64) ([]byte, error) { return make([]byte, n), nil }
func (m *mover) HostFree([]byte) error             { m.freed = true; return nil }
func (m *mover) Collect([]byte, []kernel.Tensor) (kernel.Event, error) {
	return nil, errors.New("this device does not support reads")
}
func (m *mover) Write(t kernel.Tensor, src []byte) error { m.written += len(src); return nil }
func (m *mover) Sync() error                             { m.syncs++; return nil }

func TestBusOfKnownTimes(t *testing.T) {
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const us = time.Microsecond
	m := &mover{Device: dev}
	clock := &ticking{takes: []time.Duration{9000 * us, 2000 * us, 30 * us, 17 * us}}
	b, err := Bus(m, clock.now)
	if want := (cost.Bus{Rate: copyBytes / 2e3, Wait: 17}); err != nil || b != want {
		t.Errorf("bus %+v, error %v; want %+v", b, err, want)
	}
	if m.written != repeats*(copyBytes+smallBytes) || m.syncs != 2*repeats || !m.freed {
		t.Errorf("%d bytes were written, Sync was called %d times, memory freed: %v", m.written, m.syncs, m.freed)
	}
}

// recording lists the weights that are prepared and the rows of each GEMM.
type recording struct {
	kernel.Device
	list []string
}

func (d *recording) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	d.list = append(d.list, fmt.Sprintf("%v %dx%d, scales %v %dx%d", w.Data.DType, w.Data.Rows, w.Data.Cols,
		w.Scale.DType, w.Scale.Rows, w.Scale.Cols))
	return d.Device.Prepare(w, role)
}

func (d *recording) Do(op kernel.Op) error {
	a := op.(kernel.MultiplyArgs)
	d.list = append(d.list, fmt.Sprintf("%d rows of %d to %d", a.X.Rows, a.X.Cols, a.Out.Cols))
	return d.Device.Do(op)
}

// Each format is measured with one row over the whole weight, and with 16 rows over a part of it.
func TestWhatIsMeasured(t *testing.T) {
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &recording{Device: dev}
	if _, err := (prober{time.Now}).host(d, 1, 8<<20); err != nil {
		t.Fatal(err)
	}
	table.Check(t, "measured.txt", d.list)
}
