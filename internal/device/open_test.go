package device

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model/placement"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
)

// machine counts the devices of a GPU that were opened and closed.
type machine struct{ opened, closed []string }

// gpu is a device that computes nothing.
type gpu struct {
	kernel.Device
	name string
	of   *machine
}

func (g gpu) Close() error {
	g.of.closed = append(g.of.closed, g.name)
	return g.Device.Close()
}

func (g gpu) Name() string { return g.name }

// kernels returns kernels for a GPU, whose availability is given.
func (m *machine) kernels(name string, available error) kernel.Backend {
	return kernel.Backend{Name: name, Hardware: "sm90", Available: func() error { return available },
		Open: func(kernel.Options) (kernel.Device, error) {
			m.opened = append(m.opened, name)
			d, err := op.On(cuda.OpenDetached(cuda.H200))
			return gpu{d, name, m}, err
		}}
}

// Automatic choice uses a GPU that can run the model, and otherwise the CPU; it reports why a GPU that exists is not
// used. Named kernels, ranks and experts in two memories never fall back.
func TestTheDeviceThatIsOpened(t *testing.T) {
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	old, full := errors.New("the driver is too old"), errors.New("too little memory")
	host := errors.Join(full, placement.ErrHost)
	for _, c := range []struct {
		name             string
		hopper, portable error // why kernels are not available
		fits             error
		q                Request
		opened           []string
		want, warn, err  string
	}{
		{name: "a GPU", opened: []string{"cuda"}, want: "cuda"},
		{name: "the name auto", q: Request{Kernels: AutoKernels}, opened: []string{"cuda"}, want: "cuda"},
		{name: "another GPU", hopper: kernel.ErrAbsent, opened: []string{"cuda-portable"}, want: "cuda-portable"},
		{name: "no GPU", hopper: kernel.ErrAbsent, portable: kernel.ErrAbsent, want: "cpu"},
		{name: "an old driver", hopper: old, portable: old, want: "cpu", warn: "on the CPU: the driver is too old"},
		{name: "a small GPU", fits: full, opened: []string{"cuda"}, want: "cpu", warn: "CPU: too little memory"},
		{name: "a small host", fits: host, opened: []string{"cuda"}, err: "--kernels cpu runs the model anyway"},
		{name: "named kernels of a small GPU", q: Request{Kernels: "cuda"}, fits: full, opened: []string{"cuda"},
			err: "too little memory"},
		{name: "named kernels of no GPU", q: Request{Kernels: "cuda"}, hopper: kernel.ErrAbsent, err: "cuda"},
		{name: "a rank that cannot divide the heads", q: Request{Kernels: "cuda", Of: kernel.Member{Ranks: 7}},
			opened: []string{"cuda"}, err: "7"},
		{name: "packed weights", q: Request{Options: kernel.Options{Pack: true}}, want: "cpu"},
		{name: "experts in two memories", q: Request{Experts: ExpertsSplit}, opened: []string{"cuda"}, want: "cuda"},
		{name: "experts in two memories without a GPU", q: Request{Experts: ExpertsSplit}, hopper: kernel.ErrAbsent,
			portable: kernel.ErrAbsent, err: "omit --experts"},
		{name: "experts in two memories of a small GPU", q: Request{Experts: ExpertsMove}, fits: full,
			opened: []string{"cuda"}, err: "too little memory"},
		{name: "packed experts in two memories", q: Request{Experts: ExpertsSplit, Options: kernel.Options{Pack: true}},
			err: "--pack applies to the CPU only"},
	} {
		m, warned := machine{}, ""
		q := c.q
		q.Source, q.Warn, q.Workers = src, func(text string) { warned += text }, 1
		q.Fits = func(kernel.Device, kernel.Member) error { return c.fits }
		dev, err := Open(kernel.NewRegistry([]kernel.Backend{m.kernels("cuda", c.hopper),
			m.kernels("cuda-portable", c.portable)}, cpu.Backends()), q)
		got := ""
		if err == nil {
			if got = dev.Name(); dev.Hardware().Arch == "cpu" {
				got = "cpu"
			}
		}
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: opened %q, want %q; error %v, want %q", c.name, got, c.want, err, c.err)
		}
		if !slices.Equal(m.opened, c.opened) {
			t.Errorf("%s: tried %v, want %v", c.name, m.opened, c.opened)
		}
		if (warned == "") != (c.warn == "") || !strings.Contains(warned, c.warn) {
			t.Errorf("%s: warned %q, want %q", c.name, warned, c.warn)
		}
		if err == nil {
			if err := dev.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(m.closed, m.opened) {
			t.Errorf("%s: opened %v, but closed %v", c.name, m.opened, m.closed)
		}
	}
}

// The kernels of a build are in the order of preference; the reference is last.
func TestKernelsOfABuild(t *testing.T) {
	var names []string
	for _, b := range Registry().Backends() {
		names = append(names, b.Name)
	}
	own := len(cpu.Backends())
	if want := []string{op.Name, op.PortableName, "ref"}; own == 0 || !slices.Equal(names[own:], want) {
		t.Errorf("the kernels are %v, want those of the CPU, then %v", names, want)
	}
}

// limited is a GPU with a limited bus.
type limited struct {
	kernel.Device
	rate int64
}

func (d limited) Hardware() kernel.Hardware {
	h := d.Device.Hardware()
	h.BusRate = d.rate
	return h
}

// A limit of the bus bounds its rate, and no limit, or one above the rate, leaves it as it is.
func TestALimitedBus(t *testing.T) {
	d, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := kernel.NewRegistry()
	whole, source := FiguresOf(r, d, limited{Device: d}, 3)
	if whole.CPU.Cores != 3 || whole.Bus.Rate < 2000 || source != "" {
		t.Fatalf("%d cores, a bus of %v bytes/us, from %q", whole.CPU.Cores, whole.Bus.Rate, source)
	}
	for rate, want := range map[int64]float64{0: whole.Bus.Rate, 1e9: 1000, 1e15: whole.Bus.Rate} {
		if got, _ := FiguresOf(r, limited{d, rate}, d, 1); got.Bus.Rate != want {
			t.Errorf("with a limit of %d bytes/s the bus has a rate of %v bytes/us, want %v", rate, got.Bus.Rate, want)
		}
	}
}
