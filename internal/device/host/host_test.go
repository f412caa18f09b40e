package host_test

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"sparrow/internal/block"
	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

func TestAllocIsAlignedAndZero(t *testing.T) {
	for _, n := range []int64{0, 1, 63, 64, 4097} {
		b, err := host.Memory{}.Alloc(n)
		if err != nil || b.Len() != n {
			t.Fatalf("alloc of %d bytes: buffer %v, error %v", n, b, err)
		}
		bytes := []byte(b.(kernel.HostBuffer))
		if n > 0 && uintptr(unsafe.Pointer(&bytes[0]))%64 != 0 {
			t.Errorf("%d bytes are not aligned to a cache line", n)
		}
		for i, v := range bytes {
			if v != 0 {
				t.Fatalf("byte %d of %d is %d", i, n, v)
			}
		}
	}
	for _, n := range []int64{-1, 1 << 47, math.MaxInt64} {
		if _, err := (host.Memory{}).Alloc(n); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("alloc of %d bytes: error %v", n, err)
		}
	}
}

// Prepare uses aligned weights in place. It also uses block formats in place at any address, because GGUF files align
// tensors to 32 bytes, which is not a multiple of most block sizes. Bytes that are not aligned for float32 are copied.
func TestPrepare(t *testing.T) {
	b, err := host.Memory{}.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	raw := []byte(b.(kernel.HostBuffer))
	for i := range raw {
		raw[i] = byte(i)
	}
	for _, c := range []struct {
		skip int
		d    kernel.DType
		same bool
	}{{0, kernel.F32, true}, {4, kernel.F32, true}, {2, kernel.F32, false}, {2, kernel.BF16, true},
		{1, kernel.BF16, false}, {1, kernel.E4M3, true}, {32, kernel.Blocks(block.Q8_0), true},
		{3, kernel.Blocks(block.Q6_K), true}} {
		cols := max(8/c.d.Size(), 1)
		bytes := cols * c.d.Size()
		w := kernel.Weight{Data: kernel.Tensor{Buf: kernel.HostBuffer(raw), Off: int64(c.skip), DType: c.d, Rows: 1,
			Cols: cols, Stride: cols}}
		if c.d == kernel.E4M3 {
			w.Scale = kernel.Tensor{Buf: kernel.HostBuffer(raw), DType: kernel.F32, Rows: 1, Cols: 1, Stride: 1}
			w.BlockRows, w.BlockCols = 128, 128
		}
		m, err := host.Memory{}.Matrix(w, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		got := host.Bytes(m.Data)
		if string(got) != string(raw[c.skip:c.skip+bytes]) {
			t.Errorf("%v at byte %d: the prepared bytes differ", c.d, c.skip)
		}
		if same := &got[0] == &raw[c.skip]; same != c.same {
			t.Errorf("%v at byte %d: uses the bytes in place: %v, want %v", c.d, c.skip, same, c.same)
		}
		if uintptr(unsafe.Pointer(&got[0]))%uintptr(c.d.Align()) != 0 {
			t.Errorf("%v at byte %d is not aligned for its elements", c.d, c.skip)
		}
	}
}

func TestReadAndWriteStayInside(t *testing.T) {
	x, err := kernel.New(host.Memory{}, kernel.I32, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.WriteI32(host.Memory{}, x, []int32{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	got := make([]int32, 2)
	if err := kernel.ReadI32(host.Memory{}, got, x.Slice(1, 2)); err != nil || got[0] != 3 || got[1] != 4 {
		t.Errorf("row 1 is %v, error %v", got, err)
	}
	if err := kernel.WriteI32(host.Memory{}, x, make([]int32, 5)); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("writing five bytes to four: got %v, want ErrArgument", err)
	}
	if err := kernel.ReadI32(host.Memory{}, make([]int32, 3), x.Slice(1, 2)); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("reading three bytes from two: got %v, want ErrArgument", err)
	}
}

// With pages of three tokens, slot 7 is token 1 of page 2.
func TestPlace(t *testing.T) {
	mem, err := kernel.New(host.Memory{}, kernel.U8, 3, layout.BF16{}.PageBytes(3))
	if err != nil {
		t.Fatal(err)
	}
	p := kernel.Pool{Mem: mem, Layout: layout.BF16Row1152, PageTokens: 3}
	page, token, err := host.Place("test", p, 7)
	if err != nil || token != 1 || &page[0] != &host.Bytes(mem)[2*layout.BF16{}.PageBytes(3)] {
		t.Errorf("slot 7 is token %d, error %v", token, err)
	}
	for _, slot := range []int32{-1, 9} {
		if _, _, err := host.Place("test", p, slot); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("slot %d of 9: got %v, want ErrArgument", slot, err)
		}
	}
}
