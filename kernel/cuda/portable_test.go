package cuda

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/layout"
)

// cards lists devices that the portable kernels support, with the maximum shared memory of a block.
var cards = map[string]Properties{
	"a100":    {Name: "A100", Major: 8, Minor: 0, SMs: 108, SharedOptinBytes: 166912, MemoryBytes: 80e9},
	"rtx3090": {Name: "RTX 3090", Major: 8, Minor: 6, SMs: 82, SharedOptinBytes: 101376, MemoryBytes: 24e9},
	"rtx4090": {Name: "RTX 4090", Major: 8, Minor: 9, SMs: 128, SharedOptinBytes: 101376, MemoryBytes: 24e9},
	"b200":    {Name: "B200", Major: 10, Minor: 0, SMs: 148, SharedOptinBytes: 232448, MemoryBytes: 180e9},
	"rtx5090": {Name: "RTX 5090", Major: 12, Minor: 0, SMs: 170, SharedOptinBytes: 101376, MemoryBytes: 32e9},
}

// Every operation that has a kernel for Hopper also has a portable kernel, which fits every card.
func TestPortableKernelsAreThereOnEveryCard(t *testing.T) {
	for name, card := range cards {
		t.Run(name, func(t *testing.T) {
			d := OpenDetached(card)
			k, err := d.LoadKernels()
			check(t, err)
			s, err := d.NewStream()
			check(t, err)
			if s.SetOverlap(true); s.overlap || !d.Portable() || !strings.Contains(k.Compiled(), "CUDA_CACHE_PATH") {
				t.Errorf("overlap %v, portable %v, %q", s.overlap, d.Portable(), k.Compiled())
			}
			launchEverything(t, d, k, s)
			newer := slices.ContainsFunc(k.modules, func(m *Module) bool { return m.name == "sm89-product-fp8" })
			older := slices.ContainsFunc(k.modules, func(m *Module) bool { return m.name == "sm80-product-fp8" })
			if fp8 := d.capability() >= 89; newer != fp8 || older == fp8 {
				t.Errorf("products of FP8: from the image for 8.9 %v, for 8.0 %v", newer, older)
			}
			if _, err := k.Function("sparrow_topk_spread"); !errors.Is(err, ErrUnavailable) ||
				!strings.Contains(err.Error(), "sparrow_topk_spread: image sm90-topk-topk_spread is for sm_90a") {
				t.Errorf("a kernel for Hopper: %v", err)
			}
			check(t, errors.Join(s.Close(), k.Close(), d.Close()))
		})
	}
}

// launchEverything calls every launcher that has kernels of two tiers, with valid arguments.
func launchEverything(t *testing.T, d *Device, k *Kernels, s *Stream) {
	t.Helper()
	for _, kind := range []ProductType{ProductFP8, ProductBF16} {
		for _, rows := range []int32{1, 16, 17, 64, 65, 4096} {
			x := someProduct()
			x.Type, x.Rows, x.ScaleStride = kind, rows, 4096
			call, err := x.Encode(d)
			check(t, err)
			check(t, Multiply(k, s, &call))
			if x.SumBytes(d) != 0 {
				t.Error("portable products take memory for sums")
			}
		}
	}
	for _, shape := range []ExpertShape{{Experts: 8, Hidden: 64, Inner: 32},
		{Experts: 8, Hidden: 64, Inner: 32, BF16: true}, {Experts: 8, Hidden: 64, Inner: 32, E2M1: true},
		{Experts: 8, Hidden: 64, Inner: 32, E2M1: true, BF16: true}} {
		m := func(columns int64) Matrix {
			return Matrix{Data: somewhere, Scales: somewhere, Stride: columns, ScaleStride: max(columns/32, 1)}
		}
		check(t, PackExpert(k, s, shape, 3, m(64), m(64), m(32), somePacked))
		for _, rows := range []int32{1, 16, 17, 200} {
			x := Experts{Shape: shape, Packed: somePacked, X: somewhere, Out: somewhere, IDs: somewhere,
				Weights: somewhere, Scratch: somewhere, XStride: 64, OutStride: 64, IDStride: 8, WeightStride: 8,
				Rows: rows, Top: 8}
			a, err := x.Encode()
			check(t, err)
			check(t, RunExperts(k, s, shape, &a))
		}
	}
	for f := range packedFormats {
		check(t, PackWeight(k, s, f, &PackPackedArgs{First: somewhere, To: somewhere, Stride: 256, Rows: 272,
			Columns: 512, BlockRows: 1, BlockColumns: 32}))
		for _, rows := range []int32{1, 16, 17, 64, 65, 4096} {
			x := PackedProduct{Format: f, Weight: somewhere, Factors: somewhere, X: somewhere, Out: somewhere,
				XStride: 4096, OutStride: 272, Rows: rows, Columns: 272, K: 4096, Sums: somewhere, Arrived: somewhere}
			if x.SumBytes(d) == 0 {
				t.Errorf("%s, %d rows: k is not divided", f, rows)
			}
			check(t, MultiplyPacked(k, s, &x))
		}
		shape := ExpertShape{Experts: 8, Hidden: 64, Inner: 32, BF16: true, Packed: f, PackedDown: f}
		for _, rows := range []int32{1, 17, 200} {
			x := Experts{Shape: shape, Packed: somePacked, X: somewhere, Out: somewhere, IDs: somewhere,
				Weights: somewhere, Scratch: somewhere, XStride: 64, OutStride: 64, IDStride: 8, WeightStride: 8,
				Rows: rows, Top: 8}
			a, err := x.Encode()
			check(t, err)
			check(t, RunExperts(k, s, shape, &a))
		}
	}
	for _, heads := range []int32{32, 64} {
		ragged := IndexRagged{Queries: somewhere, Keys: somewhere, Scales: somewhere, Weights: somewhere,
			KeyStart: somewhere, KeyEnd: somewhere, Scores: somewhere, Stride: 64, Rows: 5, KeyCount: 64, Heads: heads}
		a, err := ragged.Encode(d)
		check(t, err)
		check(t, ScoreRagged(k, s, heads, &a))
		for next := int32(1); next <= 4; next++ {
			paged := IndexPaged{Queries: somewhere, Cache: somewhere, PageBytes: layout.IndexPageBytes, Pages: 9,
				Weights: somewhere, ContextLengths: somewhere, BlockTable: somewhere, Scores: somewhere, Stride: 512,
				TableStride: 8, Requests: 3, NextN: next, Heads: heads, MaxContext: 512, MaxBlocks: 8}
			a, err := paged.Encode(d)
			check(t, err)
			check(t, ScorePaged(k, s, heads, &a))
		}
	}
	topk := someTopK()
	check(t, SelectTopK(k, s, &topk))
	if n := TopKScratch(k, 1, 1<<20, 2048); n != 0 {
		t.Errorf("portable selection takes scratch of %d entries", n)
	}
	for _, kind := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.V4Row584} {
		for _, segments := range []int32{1, 4} {
			a := someSparse()
			a.Segments, a.Partial, a.Stats = segments, somewhere, somewhere
			check(t, SparseAttend(k, s, kind, &a))
			check(t, SparseAttendFlat(k, s, &a))
			if latentKernels[kind].kernel != "" {
				a.Streams[1].Lens = somewhere
				check(t, LatentAttend(k, s, kind, &a))
			}
		}
	}
	for _, heads := range [][2]int32{{64, 64}, {128, 128}, {192, 256}} {
		x := someDense()
		x.Nope, x.Values = heads[0], heads[1]
		x.QStride, x.KVStride, x.OutStride = int64(3*(x.Nope+64)), int64(3*(x.Nope+x.Values)), int64(3*x.Values)
		a, err := x.Encode(d)
		check(t, err)
		check(t, DenseAttend(k, s, x.Nope, x.Values, &a))
	}
}

// No portable kernel uses more than 99 KiB of shared memory, which a block of a consumer card has.
func TestPortableKernelsFitConsumerCards(t *testing.T) {
	for _, im := range loadManifest(t).Images {
		for _, k := range im.Kernels {
			if im.PTX && k.Dynamic+k.SharedBytes > 101376 {
				t.Errorf("%s: kernel %s takes %d + %d bytes of shared memory, a block may have 101376", im.Name, k.Name,
					k.Dynamic, k.SharedBytes)
			}
		}
	}
}

// Distances within a tile of 128 rows have 32 bits in portable products, so rows that are further apart are refused.
func TestPortableProductsRefuseRowsFarApart(t *testing.T) {
	d := OpenDetached(cards["rtx3090"])
	for _, kind := range []ProductType{ProductFP8, ProductBF16} {
		size, _, _ := kind.element()
		most := int64(1<<25-16) / size
		for _, stride := range []int64{most, most + 16/size} {
			weight, input := someProduct(), someProduct()
			weight.WeightStride, input.InputStride = stride, stride
			for _, x := range []Product{weight, input} {
				x.Type = kind
				_, err := x.Encode(d)
				if far := stride > most; far != errors.Is(err, ErrArgument) || far != (err != nil) {
					t.Errorf("%v, %d elements between rows of the weight, %d of the input: %v", kind, x.WeightStride,
						x.InputStride, err)
				}
			}
		}
	}
}

func TestPlainMapsHoldTheTensor(t *testing.T) {
	d := OpenDetached(cards["rtx3090"])
	m, err := d.encodeTensorMap(MapSpec{Type: MapBF16, Base: somewhere, Dims: []uint64{64, 7, 3},
		Strides: []uint64{128, 4096}, Box: []uint32{64, 7, 1}})
	check(t, err)
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(m[at:]) }
	if word(0) != uint64(somewhere) || word(8) != 64 || word(16) != 7 || word(24) != 3 || word(48) != 128 ||
		word(56) != 4096 {
		t.Errorf("map %x", m)
	}
}
