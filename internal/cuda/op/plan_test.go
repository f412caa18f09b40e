package op

import (
	"math"
	"testing"

	"sparrow/kernel/cuda"
	"sparrow/layout"
	"sparrow/plan"
)

// planned returns the only segment of a batch on an H200.
func planned(t *testing.T, m plan.Model, p plan.Policy, batch string) *plan.Segment {
	t.Helper()
	hw, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan.ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m, p)
	if err != nil {
		t.Fatal(err)
	}
	built, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(built.Segments) != 1 {
		t.Fatalf("%s: %d segments, want 1", batch, len(built.Segments))
	}
	return &built.Segments[0]
}

// Plans have the same row limits and scratch memory as the operations, for one and two units of heads, and for rows
// that are and are not divided into segments.
func TestPlansCountWhatOperationsTake(t *testing.T) {
	hw, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	v32, err := plan.ModelFor("deepseek_v32")
	if err != nil {
		t.Fatal(err)
	}
	v4, err := plan.ModelFor("deepseek_v4-pro")
	if err != nil {
		t.Fatal(err)
	}
	flash, err := plan.ModelFor("deepseek_v4-flash")
	if err != nil {
		t.Fatal(err)
	}
	next, err := plan.ModelFor("glm5_next")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		model  plan.Model
		policy plan.Policy
		batch  string
		kind   layout.Kind
		rows   int
		width  int // number of keys in a row's lists
		most   int // width of the widest lists of any plan
		chosen int // bytes of the selection of one row
	}{
		{"block rows", v32, plan.Policy{KV: "fp8-656"}, "decode:100x3000", layout.FP8Row656, 100, 2048, 2048, 4 * 2048},
		{"many block rows", v32, plan.Policy{KV: "fp8-656"}, "decode:3000x3000", layout.FP8Row656, 3000, 2048,
			2048, 4 * 2048},
		{"block rows cut after 256 keys", v32, plan.Policy{KV: "fp8-656", SplitKeys: plan.Split256},
			"decode:100x3000", layout.FP8Row656, 100, 2048, 2048, 4 * 2048},
		{"whole block rows", v32, plan.Policy{KV: "fp8-656", SplitKeys: plan.SplitWhole}, "decode:100x3000",
			layout.FP8Row656, 100, 2048, 2048, 4 * 2048},
		{"raw rows", v32, plan.Policy{KV: "fp8-576"}, "decode:100x3000", layout.FP8Row576, 100, 2048, 2048, 4 * 2048},
		{"V4 entries", v4, plan.Policy{}, "decode:100x3000", layout.V4Row584, 100, 128 + 1024, 128 + 1024,
			4 * (128 + 1024)},
		{"V4 entries of short contexts among long ones", flash, plan.Policy{}, "decode:100x3000", layout.V4Row584, 100,
			128 + 64, 128 + 8192, 4 * (128 + 512)},
		{"rows without rotation", next, plan.Policy{KV: "fp8"}, "decode:100x3000", layout.FP8Row528, 100, 2051, 2051,
			4 * 2051},
		{"bf16 rows without rotation", next, plan.Policy{KV: "bf16"}, "decode:100x3000", layout.BF16Row1024, 100, 2051,
			2051, 4 * 2051},
		{"V4 entries of long contexts", v4, plan.Policy{}, "decode:3x1048576", layout.V4Row584, 3, 128 + 8192,
			128 + 8192, 4 * (128 + 1024)},
	} {
		for _, heads := range []int{16, 64, 65, 128} {
			c.model.Heads = heads
			s := planned(t, c.model, c.policy, c.batch)
			segments, _ := cuda.SparseSegments(int32(c.width), int32(s.SplitKeys.Keys()))
			if c.kind == layout.V4Row584 {
				segments, _ = cuda.SparseSegmentsWithin(int32(c.width), int32(c.most))
			}
			group := min(int64(c.rows), int64(rowsPerLaunch(hw.SMs, cuda.SparseUnits(1, int32(heads), segments))))
			partial, stats := cuda.SparseScratch(c.kind, int32(group), int32(heads), segments)
			scores := int64(s.Indexer.RowsPerChunk) * int64(s.Indexer.ScoreWidth) * 4
			want := int64(c.rows*c.chosen) + max(scores, partial+stats)
			if s.TransientBytes != want {
				t.Errorf("%s, %d heads: the plan counts %d bytes, the operations take %d", c.name, heads,
					s.TransientBytes, want)
			}
			if n := int32(s.RowsPerLaunch); cuda.SparseUnits(n, int32(heads), 1) > math.MaxInt32 ||
				n < math.MaxInt32 && cuda.SparseUnits(n+1, int32(heads), 1) <= math.MaxInt32 {
				t.Errorf("%s, %d heads: %d rows of a launch are not the most whose units an int32 counts", c.name,
					heads, n)
			}
		}
	}
	v3, err := plan.ModelFor("deepseek_v3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kv    string
		kind  layout.Kind
		batch string
		rows  int
		keys  int // capacity of a page table in keys
	}{
		{"fp8-656", layout.FP8Row656, "decode:100x3000", 100, 4096},
		{"fp8-576", layout.FP8Row576, "decode:1x100", 1, 128},
		{"bf16", layout.BF16Row1152, "decode:3000x3000", 3000, 4096},
		{"bf16", layout.BF16Row1152, "decode:3x100000", 3, 131072},
	} {
		for _, heads := range []int{16, 65, 128} {
			for _, split := range []plan.KeySplit{plan.SplitUnset, plan.SplitWhole, plan.Split512} {
				v3.Heads = heads
				s := planned(t, v3, plan.Policy{KV: c.kv, SplitKeys: split}, c.batch)
				segments, _ := cuda.LatentSegments(int32(c.keys), int32(s.SplitKeys.Keys()))
				group := min(int64(c.rows), int64(rowsPerLaunch(hw.SMs, cuda.SparseUnits(1, int32(heads), segments))))
				partial, stats := cuda.SparseScratch(c.kind, int32(group), int32(heads), segments)
				if s.TransientBytes != partial+stats {
					t.Errorf("every key of %s, %s rows, %d heads, %v: the plan counts %d bytes, the operations take %d",
						c.batch, c.kv, heads, s.SplitKeys, s.TransientBytes, partial+stats)
				}
			}
		}
	}
	s := planned(t, v32, plan.Policy{}, "extend:2000")
	keys := int64(2000 * (1152 + v32.Heads*(v32.QKDim+v32.VDim)*2))
	if want := keys + cuda.DensePlanBytes(2000); s.TransientBytes != want {
		t.Errorf("dense rows: the plan counts %d bytes, the operation takes %d", s.TransientBytes, want)
	}
	if n := int64(s.RowsPerLaunch); n*int64(v32.Heads) > math.MaxInt32 || (n+1)*int64(v32.Heads) <= math.MaxInt32 {
		t.Errorf("%d dense rows of a launch are not the most whose heads an int32 counts", n)
	}
}
