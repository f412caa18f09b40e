package cuda

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"sparrow/internal/cuda/image"
	"sparrow/layout"
)

func someSparse() SparseAttendArgs {
	return SparseAttendArgs{
		Streams: [2]SelectionView{{Base: somewhere, PageBytes: 64 * 1152, Indices: somewhere, Lens: somewhere,
			IndexStride: 2048, LenStride: 1, Slots: 640, Width: 2048, PageShift: 6, PageMask: 63}},
		Q: somewhere, Out: somewhere, QStride: 128 * 576, OutStride: 128 * 512, Rows: 3, Heads: 128, Segments: 1,
		SegmentBlocks: 32, ScoreScale: 1, ValueScale: 1,
	}
}

func TestSparseLauncherNamesTheArgumentThatIsWrong(t *testing.T) {
	k, s := &Kernels{device: OpenDetached(Properties{})}, &Stream{} // bf16 rows need tensor maps of the device
	for says, change := range map[string]func(*SparseAttendArgs){
		"":                           func(*SparseAttendArgs) {},
		"first pool is not given":    func(a *SparseAttendArgs) { a.Streams[0].Base = 0 },
		"first indices is not given": func(a *SparseAttendArgs) { a.Streams[0].Indices = 0 },
		"first width 0":              func(a *SparseAttendArgs) { a.Streams[0].Width = 0 },
		"first page bytes 65536":     func(a *SparseAttendArgs) { a.Streams[0].PageBytes = 65536 },
		"first index stride 2000":    func(a *SparseAttendArgs) { a.Streams[0].IndexStride = 2000 },
		"second stream of 64 keys": func(a *SparseAttendArgs) {
			a.Streams[1] = a.Streams[0]
			a.Streams[1].Width = 64
		},
		"pages of 17179869184 bytes":  func(a *SparseAttendArgs) { a.Streams[0].PageBytes = 16 << 30 },
		"q at 0x8":                    func(a *SparseAttendArgs) { a.Q = 8 },
		"q stride 65536":              func(a *SparseAttendArgs) { a.QStride = 128 * 512 },
		"out stride 65532":            func(a *SparseAttendArgs) { a.OutStride = 128*512 - 4 },
		"lse stride 100":              func(a *SparseAttendArgs) { a.LSE, a.LSEStride = somewhere, 100 },
		"heads 0":                     func(a *SparseAttendArgs) { a.Heads = 0 },
		"rows -1":                     func(a *SparseAttendArgs) { a.Rows = -1 },
		"1 segments of 31 blocks":     func(a *SparseAttendArgs) { a.SegmentBlocks = 31 },
		"partial is not given":        func(a *SparseAttendArgs) { a.Segments, a.SegmentBlocks = 4, 8 },
		"score scale NaN":             func(a *SparseAttendArgs) { a.ScoreScale = float32(math.NaN()) },
		"score scale 1 and value sca": func(a *SparseAttendArgs) { a.ValueScale = 0 },
	} {
		err := SparseAttend(k, s, layout.BF16Row1152, with(someSparse(), change))
		switch {
		case says == "" && !errors.Is(err, image.ErrUnknown):
			t.Errorf("correct arguments gave %v, want to get as far as the kernel", err)
		case says != "" && (!errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), says)):
			t.Errorf("got %v, want an argument error that says %q", err, says)
		}
	}
	flat := func(slots int32) error {
		return SparseAttendFlat(k, s, with(someSparse(), func(a *SparseAttendArgs) {
			a.QStride = 128 * V4Dim
			v := &a.Streams[0]
			v.Slots, v.PageShift, v.PageMask, v.PageBytes = slots, 31, math.MaxInt32, int64(slots)*2*V4Dim
		}))
	}
	if err := flat(64<<20 + 1); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "want at most "+
		"68719476736") {
		t.Errorf("a pool of more than 64 GiB: %v", err)
	}
	if err := flat(64 << 20); errors.Is(err, ErrArgument) {
		t.Errorf("a pool of 64 GiB: %v", err)
	}
	if err := SparseAttend(k, s, layout.F32Row2304, with(someSparse(), func(*SparseAttendArgs) {})); !errors.Is(err,
		ErrArgument) || !strings.Contains(err.Error(), "f32-2304") {
		t.Errorf("rows of float32: %v", err)
	}
	if err := SparseAttend(k, s, layout.BF16Row1152,
		with(someSparse(), func(a *SparseAttendArgs) { a.Rows = 0 })); err != nil {
		t.Errorf("no rows: %v", err)
	}
}

// Kernels of bf16 rows store whole rows through the second map. That map exists even if parts of rows are stored
// elsewhere.
func TestMapsOfBF16RowsCoverQueriesAndOutputs(t *testing.T) {
	type dims struct {
		base                uintptr
		columns, heads      uint64
		rows, head, between uint64
	}
	for name, c := range map[string]struct {
		change func(*SparseAttendArgs)
		launch func(*Kernels, *Stream, *SparseAttendArgs) error
		want   []dims
	}{
		"576 values": {func(*SparseAttendArgs) {}, attendBF16,
			[]dims{{0x300000, 576, 128, 3, 1152, 128 * 1152}, {0x400000, 512, 128, 3, 1024, 128 * 1024}}},
		"576 values in segments, with room between rows": {func(a *SparseAttendArgs) {
			a.Segments, a.SegmentBlocks, a.Partial, a.Stats = 4, 8, somewhere, somewhere
			a.Heads, a.QStride, a.OutStride = 100, 60000, 52000
		}, attendBF16, []dims{{0x300000, 576, 100, 3, 1152, 120000}, {0x400000, 512, 100, 3, 1024, 104000}}},
		"512 values": {func(*SparseAttendArgs) {}, SparseAttendFlat,
			[]dims{{0x300000, 512, 128, 3, 1024, 128 * 1152}, {0x400000, 512, 128, 3, 1024, 128 * 1024}}},
	} {
		var got []dims
		answer := func(s symbol, args []uintptr) int {
			if s == cuTensorMapEncodeTiled {
				size, stride := args[4], args[5]
				got = append(got, dims{args[3], word(size, 0), word(size, 1), word(size, 2), word(stride, 0),
					word(stride, 1)})
			}
			return 0
		}
		k := &Kernels{device: &Device{driver: &driver{devices: 1, answer: answer}, context: 1}}
		a := someSparse()
		a.Q, a.Out = 0x300000, 0x400000
		c.change(&a)
		if err := c.launch(k, &Stream{}, &a); !errors.Is(err, image.ErrUnknown) {
			t.Errorf("%s: %v, want to get as far as the kernel", name, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: maps %+v, want %+v", name, got, c.want)
		}
	}
}

func attendBF16(k *Kernels, s *Stream, a *SparseAttendArgs) error {
	return SparseAttend(k, s, layout.BF16Row1152, a)
}

// word returns the i-th word of a frame at an address that was passed to the driver.
func word(address uintptr, i int) uint64 {
	return *(*uint64)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&address)), 8*i))
}

func TestSegmentsHoldEveryRow(t *testing.T) {
	for _, c := range []struct{ width, keys, segments, blocks int32 }{
		{0, 512, 1, 1}, {1, 512, 1, 1}, {512, 512, 1, 8}, {513, 512, 1, 9}, {640, 512, 1, 10}, {641, 512, 2, 8},
		{2048, 512, 4, 8}, {8192, 512, 16, 8}, {8193, 512, 15, 9}, {1 << 20, 512, 16, 1024}, {640, 256, 1, 10},
		{641, 256, 3, 4}, {2048, 256, 8, 4}, {8192, 256, 16, 8}, {2048, 0, 1, 32}, {0, 0, 1, 1}, {2047, 0, 1, 32},
	} {
		segments, blocks := SparseSegments(c.width, c.keys)
		if segments != c.segments || blocks != c.blocks {
			t.Errorf("width %d, cut after %d: %d segments of %d blocks, want %d of %d", c.width, c.keys, segments,
				blocks, c.segments, c.blocks)
		}
		if segments*blocks*sparseKeys < c.width || segments > decodeMaxSegments {
			t.Errorf("width %d: %d segments of %d blocks do not hold it", c.width, segments, blocks)
		}
	}
	if p, s := SparseScratch(layout.FP8Row656, 2, 100, 4); p != 2*4*128*1024 || s != 2*4*100*16 {
		t.Errorf("scratch of %d and %d bytes", p, s)
	}
	if p, s := SparseScratch(layout.FP8Row656, 2, 128, 1); p != 0 || s != 0 {
		t.Errorf("one segment needs %d and %d bytes", p, s)
	}
}

func TestFewUnitsAreSharedByBlocks(t *testing.T) {
	for _, c := range []struct {
		kernels  map[layout.Kind]sparseRows
		kind     layout.Kind
		units    int64
		segments int32
		kernel   string
		blocks   int32
	}{
		{sparseKernels, layout.FP8Row656, 8, 4, "sparrow_sparse_block_duo", 16},
		{sparseKernels, layout.FP8Row576, 66, 4, "sparrow_sparse_raw_duo", 132},
		{sparseKernels, layout.FP8Row656, 67, 4, "sparrow_sparse_block", 67},
		// Rows that are not divided write their result directly, which only the V4.1 kernel of two blocks supports.
		{sparseKernels, layout.FP8Row656, 2, 1, "sparrow_sparse_block", 2},
		{sparseKernels, layout.V4Row584, 8, 4, "sparrow_sparse_entry", 8},
		{sparseKernels, layout.V41Row288, 8, 4, "sparrow_sparse_shared_duo", 16},
		{sparseKernels, layout.V41Row288, 66, 1, "sparrow_sparse_shared_duo", 132},
		{sparseKernels, layout.V41Row288, 67, 1, "sparrow_sparse_shared", 67},
		{sparseKernels, layout.BF16Row1152, 8, 4, "sparrow_sparse_bf16", 8},
		{latentKernels, layout.FP8Row656, 16, 8, "sparrow_latent_block_oct", 128},
		{latentKernels, layout.FP8Row656, 33, 8, "sparrow_latent_block_quad", 132},
		{latentKernels, layout.FP8Row656, 34, 8, "sparrow_latent_block_duo", 68},
		{latentKernels, layout.FP8Row656, 67, 8, "sparrow_latent_block", 67},
		{latentKernels, layout.FP8Row656, 4, 1, "sparrow_latent_block", 4},
		{latentKernels, layout.FP8Row576, 8, 8, "sparrow_latent_raw_duo", 16},
	} {
		if kernel, blocks := c.kernels[c.kind].launch(c.units, c.segments, 132); kernel != c.kernel ||
			blocks != c.blocks {
			t.Errorf("%v, %d units in %d segments: %d blocks of %s, want %d of %s", c.kind, c.units, c.segments, blocks,
				kernel, c.blocks, c.kernel)
		}
	}
}

func TestSelectionsAddressPages(t *testing.T) {
	for _, c := range []struct {
		tokens, slots, shift, mask int32
	}{{64, 640, 6, 63}, {2, 100, 1, 1}, {256, 512, 8, 255}, {1000, 1000, 31, math.MaxInt32},
		{1000, 7, 31, math.MaxInt32}} {
		v, err := PoolView{Base: somewhere, PageBytes: 1 << 20, PageTokens: c.tokens, Slots: c.slots}.Select(somewhere,
			8, 8, somewhere, 1)
		if err != nil || v.PageShift != c.shift || v.PageMask != c.mask || v.Scales != int64(c.tokens)*576 {
			t.Errorf("pages of %d, %d slots: shift %d mask %d scales %d, %v", c.tokens, c.slots, v.PageShift,
				v.PageMask, v.Scales, err)
		}
	}
	if _, err := (PoolView{PageTokens: 100, Slots: 300}).Select(somewhere, 8, 8, somewhere, 1); !errors.Is(err,
		ErrArgument) {
		t.Errorf("pages of 100 rows: %v", err)
	}
}
