//go:build linux && amd64 && !nocuda

package cuda

import (
	"os"
	"testing"
)

// Calls to the C library, which every machine has, reach C functions, copy their arguments, reuse frames and allocate
// nothing.
func TestInvokeReachesCAndAllocatesNothing(t *testing.T) {
	lib, err := openLibrary("libc.so.6")
	if err != nil {
		t.Skipf("no glibc on this machine: %v", err)
	}
	getpid, err := lib.symbol("getpid")
	if err != nil {
		t.Fatal(err)
	}
	labs, err := lib.symbol("labs")
	if err != nil {
		t.Fatal(err)
	}
	if got := invoke(getpid, nil); int(got) != os.Getpid() {
		t.Errorf("getpid gave %d, want %d", got, os.Getpid())
	}
	d := &driver{}
	d.address[cuInit] = labs // returns its argument; 0 means success
	f := new(frame)
	if err := d.call(f, cuInit, 0); err != nil {
		t.Errorf("status 0 gave %v", err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := d.call(f, cuInit, 0); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

func BenchmarkInvoke(b *testing.B) {
	lib, err := openLibrary("libc.so.6")
	if err != nil {
		b.Skip(err)
	}
	labs, err := lib.symbol("labs")
	if err != nil {
		b.Fatal(err)
	}
	d := &driver{}
	d.address[cuInit], d.address[cuCtxSetCurrent] = labs, labs
	f := new(frame)
	b.ReportAllocs()
	for b.Loop() {
		_ = d.call(f, cuInit, 0)
	}
}
