package cuda

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cuda/image"
	"sparrow/internal/testkit/table"
	"sparrow/layout"
)

// The golden table has shapes of released models and odd shapes. For each it lists the kernel of a product with its
// tiles and its shared memory, the segments of attention, and the scratch memory of launches.
func TestTableOfChoices(t *testing.T) {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	rows := []int32{1, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100, 128, 129, 300, 1024, 4097}
	d := OpenDetached(H200)
	for _, shape := range [][4]int32{ // columns, k, batch, columns of the whole matrix
		{2112, 7168, 1, 0}, {24576, 1536, 1, 0}, {7168, 16384, 1, 0}, {4608, 7168, 1, 0}, {7168, 2304, 1, 0},
		{256, 7168, 1, 0}, {129280, 7168, 1, 0}, {512, 128, 128, 0}, {128, 512, 128, 0}, {16, 16, 1, 0},
		{64, 7168, 1, 0},
		{1024, 4096, 1, 8192}, {4096, 32768, 1, 0}, {272, 240, 3, 0}, {8192, 1024, 1, 0}, {512, 4096, 1, 0},
	} {
		for _, kind := range []ProductType{ProductBF16, ProductFP8} {
			last := ""
			for _, n := range rows {
				x := Product{Type: kind, Rows: n, Columns: shape[0], K: shape[1], Batch: shape[2], Whole: shape[3]}
				c := x.choose(132)
				sums := x.SumBytes(d)
				x.Sums = somewhere
				withSums := x.choose(132)
				text := fmt.Sprintf("%+v, %d bytes of sums, with them %s", c, sums, withSums.kernel)
				if c.few {
					text += fmt.Sprintf(", %d bytes", x.fewBytes(&c, c.stages))
				}
				if text != last {
					add("%v %d x %d, batch %d of %d, from %d rows: %s", kind, shape[0], shape[1], shape[2], shape[3], n,
						text)
				}
				last = text
			}
		}
		for _, n := range []int32{1, 16, 17, 64} {
			x := Product{Type: ProductFP8, Folded: true, Rows: n, Columns: shape[0], K: shape[1], Batch: 1}
			c := x.choose(132)
			codes, scales := FoldedBytes(shape[0], shape[1])
			add("folded %d x %d, %d rows: %+v, unfolded %d, %d codes, %d scales", shape[0], shape[1], n, c,
				x.UnfoldedBytes(), codes, scales)
		}
	}
	for _, format := range slices.Sorted(maps.Keys(packedFormats)) {
		for _, shape := range [][2]int32{{2112, 7168}, {7168, 2304}, {272, 512}} {
			text, last := "", ""
			for _, n := range []int32{1, 9, 17, 65, 700, 5000} {
				x := PackedProduct{Format: format, Rows: n, Columns: shape[0], K: shape[1]}
				tiles, units, parts := x.size()
				if text = fmt.Sprintf(" %d %d %d, %d tokens, %d bytes, %s;", tiles, units, parts, x.tokens(),
					x.SumBytes(d), format.kernel(x.tokens())); text != last {
					add("%s %d x %d, %d rows:%s of %d bytes", format, shape[0], shape[1], n, text,
						format.Bytes(shape[0], shape[1]))
				}
				last = text
			}
		}
		add("%s: factor %v", format, format.Factor(3))
	}
	for _, width := range []int32{0, 1, 64, 65, 640, 641, 704, 2048, 2049, 8192, 9000, 100000} {
		var parts []string
		for _, keys := range []int32{0, 256, 512, 1024, 2048} {
			s, b := SparseSegments(width, keys)
			ls, lb := LatentSegments(width, keys)
			parts = append(parts, fmt.Sprintf("%d of %d (all keys: %d of %d)", s, b, ls, lb))
		}
		for _, most := range []int32{640, 700, 9000} {
			s, b := SparseSegmentsWithin(width, max(most, width))
			parts = append(parts, fmt.Sprintf("within %d %d of %d", most, s, b))
		}
		add("segments of %d keys: %s", width, strings.Join(parts, ", "))
	}
	for _, kind := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.V4Row584} {
		for _, heads := range []int32{1, 64, 65, 128} {
			for _, segments := range []int32{1, 3} {
				partial, stats := SparseScratch(kind, 5, heads, segments)
				add("scratch of %v, %d heads, %d segments: %d and %d bytes, %d units", kind, heads, segments, partial,
					stats, SparseUnits(5, heads, segments))
			}
		}
	}
	for _, e := range []ExpertShape{{Experts: 256, Hidden: 7168, Inner: 2048},
		{Experts: 256, Hidden: 4096, Inner: 2048, E2M1: true}, {Experts: 64, Hidden: 7168, Inner: 2048, BF16: true},
		{Experts: 8, Hidden: 4096, Inner: 1536, E2M1: true, BF16: true}, {Experts: 3, Hidden: 272, Inner: 80},
		{Experts: 384, Hidden: 7168, Inner: 2048, BF16: true, Packed: "u4_g32", PackedDown: "u4_g32"}} {
		a, b, c, f := e.PackedBytes()
		add("experts %+v: %d %d %d %d bytes", e, a, b, c, f)
		for _, n := range []int32{1, 16, 17, 64, 65, 129, 1024, 5000} {
			x := Experts{Shape: e, Packed: somePacked, X: somewhere, Out: somewhere, IDs: somewhere, Weights: somewhere,
				Scratch: somewhere, XStride: int64(e.Hidden), OutStride: int64(e.Hidden), IDStride: 8, WeightStride: 8,
				Rows: n, Top: min(8, e.Experts)}
			got, err := x.Encode()
			add("  %d rows: %d bytes, %+v, %v", n, e.ScratchBytes(n, x.Top), got, err)
		}
	}
	for _, n := range []int32{1, 100} {
		add("dense plan of %d rows: %d bytes; candidates %d", n, DensePlanBytes(n), CandidatesScratch(n, 129280, 20))
	}
	table.Check(t, "choices.txt", lines)
}

// launcher is a launch with valid arguments.
type launcher struct {
	name string
	args any // a pointer to the arguments
	call func(k *Kernels, s *Stream, args any) error
}

func launcherOf[T any](name string, args T, call func(*Kernels, *Stream, *T) error) launcher {
	return launcher{name, &args, func(k *Kernels, s *Stream, a any) error { return call(k, s, a.(*T)) }}
}

// Each argument of each launch is accepted or refused as in the golden table if it is missing, negative, one less or
// one more than another argument, or has another alignment. Removing a check changes a line of the table.
func TestTableOfRefusals(t *testing.T) {
	main := func(kind layout.Kind) func(*Kernels, *Stream, *WriteMainArgs) error {
		return func(k *Kernels, s *Stream, a *WriteMainArgs) error { return WriteMain(k, s, kind, a) }
	}
	d := &Device{}
	var lines []string
	for _, l := range []launcher{
		launcherOf("write bf16", someWrite(), main(layout.BF16Row1152)),
		launcherOf("write fp8-576", someWrite(), main(layout.FP8Row576)),
		launcherOf("gather slots", someSlots(), func(k *Kernels, s *Stream, a *GatherSlotsArgs) error {
			return GatherSlots(k, s, layout.FP8Row656, a)
		}),
		launcherOf("gather pages", somePages(), func(k *Kernels, s *Stream, a *GatherPagesArgs) error {
			return GatherPages(k, s, layout.FP8Row576, a)
		}),
		launcherOf("index keys", someKeys(), WriteIndexKeys),
		launcherOf("index queries", someQueries(), PrepareIndexQueries),
		launcherOf("write v4", someV4(), WriteV4),
		launcherOf("combine v4", someCombine(), CombineV4),
		launcherOf("top-k", someTopK(), SelectTopK),
		launcherOf("selected scores", someSelected(), SelectedScores),
		launcherOf("pick", somePick(), PickRows),
		launcherOf("put", somePut(), PutRows),
		launcherOf("mix", someMix(), HyperMix),
		launcherOf("post", somePost(), HyperPost),
		launcherOf("head norm", someHeads(), HeadNorm),
		launcherOf("compress", someCompress(), CompressGroups),
		launcherOf("tally", someTally(), TallyChoices),
		launcherOf("angles", someAngles(), ComputeAngles),
		launcherOf("gate", someGate(), GateRows),
		launcherOf("low rank", someLowRank(), MultiplyLowRank),
		launcherOf("gate and quantise", someGateQuantise(), GateQuantise),
		launcherOf("route", someRoute(), RouteExperts),
		launcherOf("candidates", someCandidates(), FindCandidates),
		launcherOf("sample", someSample(), SampleRows),
		launcherOf("accept", someAccept(), AcceptDrafts),
		launcherOf("draw", someDraw(), DrawValues),
		launcherOf("widen", someWiden(), WidenWeight),
		launcherOf("ragged scores", IndexRagged{Queries: somewhere, Keys: somewhere, Scales: somewhere,
			Weights: somewhere, KeyStart: somewhere, KeyEnd: somewhere, Scores: somewhere, Stride: 64, Rows: 2,
			KeyCount: 64, Heads: 64},
			func(_ *Kernels, _ *Stream, a *IndexRagged) error { _, err := a.Encode(d); return err }),
		launcherOf("paged scores", IndexPaged{Queries: somewhere, Cache: somewhere, PageBytes: layout.IndexPageBytes,
			Pages: 9, Weights: somewhere, ContextLengths: somewhere, BlockTable: somewhere, TableRows: somewhere,
			Scores: somewhere, Stride: 64, TableStride: 4, Requests: 2, NextN: 2, Heads: 64, MaxContext: 64,
			MaxBlocks: 4},
			func(_ *Kernels, _ *Stream, a *IndexPaged) error { _, err := a.Encode(d); return err }),
		launcherOf("experts", Experts{Shape: someShape, Packed: somePacked, X: somewhere, Out: somewhere,
			IDs: somewhere, Weights: somewhere, Scratch: somewhere, XStride: 32, OutStride: 32, IDStride: 8,
			WeightStride: 8, Rows: 65, Top: 8},
			func(_ *Kernels, _ *Stream, a *Experts) error { _, err := a.Encode(); return err }),
	} {
		k, s := &Kernels{device: &Device{}}, &Stream{}
		if err := l.call(k, s, l.args); !passed(err) {
			t.Errorf("%s: %v", l.name, err)
		}
		v := reflect.ValueOf(l.args).Elem()
		lines = append(lines, table.Numbers(l.name, v, func() string {
			if err := l.call(k, s, l.args); err == nil {
				return "nothing to do"
			} else if !passed(err) {
				return "refused"
			}
			return "taken"
		})...)
	}
	table.Check(t, "refusals.txt", lines)
}

// passed reports whether a call passed its checks and reached the kernel or the driver.
func passed(err error) bool {
	return err == nil || errors.Is(err, image.ErrUnknown) || errors.Is(err, ErrClosed)
}
