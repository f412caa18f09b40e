package cuda

import (
	"testing"

	"sparrow/kernel"
)

// On a limited GPU, kernels run on some of the multiprocessors, captured or not, and copies take at least the time that
// their bytes need at the limited rate.
func TestGPULimits(t *testing.T) {
	r := onGPU(t) // loads portable kernels into the driver's cache
	if r.d.Properties().SMs < 64 {
		t.Skip("needs a GPU of 64 multiprocessors")
	}
	l := kernel.Limits{Profile: "test", Memory: 1 << 30, SMs: 32, Bus: 4e9}
	d, err := OpenLimited(0, *portableTier, l)
	check(t, err)
	defer func() { check(t, d.Close()) }()
	t.Log(d.Limits(), d.Properties())
	if n := d.Properties().SMs; n > 32 || n < 16 {
		t.Errorf("%d multiprocessors, want 32 or a little less", n)
	}
	k, err := d.LoadKernels()
	check(t, err)
	defer func() { check(t, k.Close()) }()
	s, err := d.NewStream()
	check(t, err)
	defer func() { check(t, s.Close()) }()

	const bytes = 64 << 20
	host, err := d.AllocHost(bytes)
	check(t, err)
	defer func() { check(t, host.Free()) }()
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(i * 7)
	}
	to, err := d.Alloc(bytes)
	check(t, err)
	defer func() { check(t, to.Free()) }()
	begin, err := d.NewEvent()
	check(t, err)
	end, err := d.NewEvent()
	check(t, err)
	defer func() { check(t, begin.Close()); check(t, end.Close()) }()
	// A copy of 64 MiB takes 16.8 ms at 4 GB/s, and 1.2 ms on the real bus.
	copied := func() error { return s.CopyToDevice(to.Ptr(), host.Bytes()) }
	g, err := s.Capture(copied)
	check(t, err)
	for name, run := range map[string]func() error{"plain": copied, "captured": func() error { return g.Launch(s) }} {
		check(t, begin.Record(s))
		check(t, run())
		check(t, end.Record(s))
		check(t, end.Sync())
		took, err := end.Since(begin)
		check(t, err)
		t.Logf("%s: %v", name, took)
		// The test uses the device's clock and only a lower bound, because a busy machine may be slower.
		if took.Seconds() < 0.99*bytes/4e9 {
			t.Errorf("%s: %d bytes took %v, less than 4 GB/s allow", name, bytes, took)
		}
	}
	check(t, g.Close())
	back := make([]byte, bytes)
	check(t, s.CopyToHost(back, to.Ptr()))
	check(t, s.Sync())
	sameBytes(t, "copied", back, host.Bytes())

	// The same kernel gives the same bytes on the limited and on the whole GPU.
	rows, columns := int32(33), int32(7168)
	x := make([]uint16, int(rows)*int(columns))
	for i := range x {
		x[i] = uint16(0x3f80 + i%97)
	}
	quantised := func(d *Device, k *Kernels, s *Stream) []byte {
		var list []*Buffer
		take := func(n int64) Ptr {
			b, err := d.Alloc(n)
			check(t, err)
			list = append(list, b)
			return b.Ptr()
		}
		in, codes := take(int64(2*len(x))), take(int64(len(x)))
		scales := take(int64(4 * rows * columns / 128))
		check(t, s.CopyToDevice(in, bytesOf(x)))
		check(t, QuantiseRows(k, s, &QuantiseRowsArgs{X: in, Codes: codes, Scales: scales, XStride: int64(columns),
			CodeStride: int64(columns), ScaleStride: int64(rows), Rows: rows, Columns: columns}))
		out := make([]byte, len(x))
		check(t, s.CopyToHost(out, codes))
		check(t, s.Sync())
		for _, b := range list {
			check(t, b.Free())
		}
		return out
	}
	sameBytes(t, "codes", quantised(d, k, s), quantised(r.d, r.k, r.s))
}
