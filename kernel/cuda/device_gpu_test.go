package cuda

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"sparrow/internal/cuda/image"
	"sparrow/kernel"
	"sparrow/layout"
)

func TestGPUPropertiesAreRead(t *testing.T) {
	r := onGPU(t)
	p := r.d.Properties()
	t.Log(p)
	if p.SMs == 0 || p.L2Bytes == 0 || p.SharedOptinBytes < 48<<10 || p.ClockKHz == 0 || p.MemoryBytes == 0 ||
		p.DriverVersion < 12000 || !p.ClusterLaunch {
		t.Errorf("implausible properties %+v", p)
	}
	free, total, err := r.d.MemoryFree()
	check(t, err)
	if free <= 0 || free > total {
		t.Errorf("free %d of %d bytes", free, total)
	}
	if _, err := Open(1 << 20); !errors.Is(err, ErrArgument) {
		t.Errorf("opening a device that is not there gave %v", err)
	}
}

func TestGPUMemoryRoundTrips(t *testing.T) {
	r := onGPU(t)
	src := make([]byte, 1<<20+3)
	for i := range src {
		src[i] = byte(i * 7)
	}
	a, b := upload(r, src), r.poisoned(int64(len(src)))
	check(t, r.s.CopyOnDevice(b, a, int64(len(src))))
	sameBytes(t, "copied", r.download(b, int64(len(src))), src)
	check(t, r.s.Fill(b.Add(10), 0x5C, 100))
	sameBytes(t, "filled", r.download(b.Add(10), 100), bytes.Repeat([]byte{0x5C}, 100))
	check(t, r.s.FillWords(b, 0x01020304, 8))
	sameBytes(t, "words", r.download(b, 32), bytes.Repeat([]byte{4, 3, 2, 1}, 8))

	host, err := r.d.AllocHost(4096)
	check(t, err)
	copy(host.Bytes(), src)
	check(t, r.s.CopyToDevice(a, host.Bytes()))
	clear(host.Bytes()[:0])
	check(t, r.s.CopyToHost(host.Bytes()[2048:], a))
	check(t, r.s.Sync())
	sameBytes(t, "pinned", host.Bytes()[2048:], src[:2048])
	check(t, host.Free())
	check(t, host.Free())

	if _, err := r.d.Alloc(1 << 60); !isOutOfMemory(err) && !errors.Is(err, kernel.ErrMemory) {
		t.Errorf("an absurd allocation gave %v, want out of memory", err)
	}
	if _, err := r.d.Alloc(0); !errors.Is(err, ErrArgument) {
		t.Errorf("an empty allocation gave %v", err)
	}
}

func TestGPUPoolReusesMemory(t *testing.T) {
	r := onGPU(t)
	p := r.d.NewPool()
	a, err := p.Get(1000)
	check(t, err)
	check(t, p.Put(a))
	b, err := p.Get(600)
	check(t, err)
	if a != b {
		t.Errorf("a request of the same class got %#x, want the freed %#x", b, a)
	}
	if held, busy := p.Held(); held != 1024 || busy != 1024 {
		t.Errorf("held %d busy %d, want 1024 and 1024", held, busy)
	}
	if err := p.Put(a + 1); !errors.Is(err, ErrArgument) {
		t.Errorf("a foreign address gave %v", err)
	}
	check(t, p.Close())
	if held, busy := p.Held(); held != 0 || busy != 0 {
		t.Errorf("after Close held %d busy %d", held, busy)
	}
}

func TestGPUErrorsCarryTheDriversWords(t *testing.T) {
	r := onGPU(t)
	_, err := r.d.loadModule("junk", []byte("this is no kernel image"))
	var d *DriverError
	if !errors.As(err, &d) || d.Call != "cuModuleLoadDataEx" || d.Name == "unknown" || d.Text == "no description" {
		t.Errorf("loading junk gave %v", err)
	}
	t.Log(err)
}

func TestGPUFunctionsMatchTheManifest(t *testing.T) {
	r := onHopper(t)
	for _, im := range loadManifest(t).Images {
		if !im.Native() {
			continue // for portable kernels the driver's compiler decides
		}
		for _, k := range im.Kernels {
			fn, err := r.k.Function(k.Name)
			check(t, err)
			a := fn.Attributes()
			if a.Registers != k.Registers || a.SharedBytes != k.SharedBytes || a.LocalBytes != k.LocalBytes {
				t.Errorf("%s: driver says %+v, manifest %+v", k.Name, a, k)
			}
			if k.MaxThreads != 0 && a.MaxThreads > k.MaxThreads {
				t.Errorf("%s: driver allows %d threads, the source %d", k.Name, a.MaxThreads, k.MaxThreads)
			}
		}
	}
	if _, err := r.k.Function("no_such_kernel"); !errors.Is(err, image.ErrUnknown) {
		t.Errorf("an unknown kernel gave %v", err)
	}
}

func TestGPUPortableKernelsCompileFromPTX(t *testing.T) {
	r := onGPU(t)
	for _, im := range loadManifest(t).Images {
		if !im.PTX {
			continue
		}
		text, err := im.Text()
		check(t, err)
		m, err := r.d.loadModule(im.Name, text)
		check(t, err)
		for _, k := range im.Kernels {
			_, err := m.Function(k.Name)
			check(t, err)
		}
		check(t, m.Close())
	}
}

// copyArgs returns a launch that copies n bf16 rows in order, and its expected result.
func copyArgs(r *rig, n int) (args GatherSlotsArgs, want []byte) {
	want = make([]byte, n*layout.BF16RowBytes)
	for i := range want {
		want[i] = byte(i % 127)
	}
	slots := make([]int32, n)
	for i := range slots {
		slots[i] = int32(i)
	}
	return GatherSlotsArgs{
		Pool:   PoolView{Base: upload(r, want), PageBytes: 64 * layout.BF16RowBytes, PageTokens: 64, Slots: int32(n)},
		Source: SlotListView{Slots: upload(r, slots)}, Rows: r.poisoned(int64(len(want))),
		RowBytes: layout.BF16RowBytes, Count: int32(n), KScale: 1,
	}, want
}

func TestGPUGraphsReplay(t *testing.T) {
	r := onGPU(t)
	args, want := copyArgs(r, 128)
	g, err := r.s.Capture(func() error {
		for range 2 {
			if err := GatherSlots(r.k, r.s, layout.BF16Row1152, &args); err != nil {
				return err
			}
		}
		return nil
	})
	check(t, err)
	defer func() { check(t, g.Close()) }()
	if got := r.download(args.Rows, 1); got[0] != poison {
		t.Error("capture ran the kernel")
	}
	check(t, g.Launch(r.s))
	sameBytes(t, "replayed", r.download(args.Rows, int64(len(want))), want)
	boom := errors.New("boom")
	if _, err := r.s.Capture(func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a failing capture gave %v", err)
	}
	check(t, r.s.Sync())
}

func TestGPULaunchAttributes(t *testing.T) {
	r := onHopper(t)
	args, want := copyArgs(r, 256)
	fn, err := r.k.Function("gather_slots_bf16")
	check(t, err)
	for name, l := range map[string]Launch{
		"cluster":     {Cluster: Dim{X: 2}},
		"overlap":     {Overlap: true},
		"cooperative": {Coop: true},
		"all":         {Cluster: Dim{X: 4}, Overlap: true},
	} {
		l.Grid, l.Block = Dim{X: 32}, Dim{X: 256}
		check(t, r.s.Fill(args.Rows, poison, int64(len(want))))
		if err := Run(r.s, fn, l, &args); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameBytes(t, name, r.download(args.Rows, int64(len(want))), want)
	}
	wrong := struct{ A, B Ptr }{}
	if err := Run(r.s, fn, Launch{Grid: Dim{X: 1}, Block: Dim{X: 256}}, &wrong); !errors.Is(err, ErrArgument) {
		t.Errorf("an argument struct of the wrong size gave %v", err)
	}
	if err := Run(r.s, fn, Launch{Grid: Dim{X: 1}, Block: Dim{X: 2048}}, &args); !errors.Is(err, ErrArgument) {
		t.Errorf("a block of 2048 threads gave %v", err)
	}
	if err := Run(r.s, fn, Launch{Grid: Dim{X: 1}, Block: Dim{X: 256}, Shared: 100 << 10}, &args); !errors.Is(err,
		ErrArgument) {
		t.Errorf("shared memory without opting in gave %v", err)
	}
	if err := fn.allowShared(1 << 20); !errors.Is(err, ErrArgument) {
		t.Errorf("a megabyte of shared memory gave %v", err)
	}
	check(t, fn.allowShared(100<<10))
	check(t, Run(r.s, fn, Launch{Grid: Dim{X: 32}, Block: Dim{X: 256}, Shared: 100 << 10}, &args))
	check(t, r.s.Sync())
}

func TestGPUTensorMapIsEncoded(t *testing.T) {
	r := onHopper(t)
	m, err := r.d.encodeTensorMap(MapSpec{Type: MapU8, Base: r.alloc(84480), Dims: []uint64{128, 64, 10},
		Strides: []uint64{128, 8448}, Box: []uint32{128, 64, 1}, Swizzle: Swizzle128, L2: 3})
	check(t, err)
	if m == (TensorMap{}) {
		t.Error("the map is empty")
	}
}

func TestGPULaunchAllocatesNothingAndIsFast(t *testing.T) {
	r := onGPU(t)
	args, _ := copyArgs(r, 8)
	launch := func() {
		if err := GatherSlots(r.k, r.s, layout.BF16Row1152, &args); err != nil {
			t.Error(err)
		}
	}
	launch()
	if n := testing.AllocsPerRun(100, launch); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
	check(t, r.s.Sync())
	const n = 500
	start := time.Now()
	for range n {
		launch()
	}
	call := time.Since(start) / n
	check(t, r.s.Sync())
	t.Logf("launch: %v in the call, %v with the device", call, time.Since(start)/n)

	g, err := r.s.Capture(func() error {
		for range n {
			launch()
		}
		return nil
	})
	check(t, err)
	defer func() { check(t, g.Close()) }()
	a, err := r.d.NewEvent()
	check(t, err)
	b, err := r.d.NewEvent()
	check(t, err)
	for range 2 {
		check(t, a.Record(r.s))
		check(t, g.Launch(r.s))
		check(t, b.Record(r.s))
		check(t, b.Sync())
	}
	d, err := b.Since(a)
	check(t, err)
	t.Logf("graph node: %v", d/n)
	if d <= 0 {
		t.Errorf("a graph of %d kernels took %v", n, d)
	}
	check(t, errors.Join(a.Close(), b.Close()))
}
