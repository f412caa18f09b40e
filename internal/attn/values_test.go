package attn_test

import (
	"slices"
	"testing"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
	"sparrow/sample"
)

// cpuPlan plans a batch of DeepSeek-V3.2 on a CPU.
func cpuPlan(t *testing.T, b plan.Batch) (*plan.Plan, *plan.Config) {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ModelFor("deepseek_v32")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m, plan.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	return p, &cfg
}

// A page number of a token that is outside the pool, or negative, is refused. Pages after the last token are not
// checked.
func TestPagesOutsideThePoolAreRefused(t *testing.T) {
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(130), plan.DecodeRequest(64))
	_, cfg := cpuPlan(t, b)
	for _, c := range []struct {
		tables [][]int32
		ok     bool
	}{{[][]int32{{0, 8, 3}, {9}}, true}, {[][]int32{{0, 10, 3}, {9}}, false}, {[][]int32{{0, 1, -1}, {9}}, false},
		{[][]int32{{0, 1, 2}, {-5}}, false}, {[][]int32{{0, 1, 2, -1}, {9, 77}}, true}} {
		batch := attn.Batch{Config: cfg, Batch: &b, Tables: c.tables, PageTokens: 64}
		if err := batch.CheckPages(10); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.tables, err)
		}
	}
}

// The array WholeRows lists the rows of logits of requests that need whole rows instead of a token. A row is an index
// among the rows of logits of all requests.
func TestWholeRows(t *testing.T) {
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(10), plan.DecodeRequest(20), plan.DecodeRequest(30),
		plan.DecodeRequest(40))
	for i := range b.Requests {
		b.Requests[i].Logits, b.Requests[i].Best = 1, i != 1 && i != 3
	}
	b.Draws = true
	p, cfg := cpuPlan(t, b)
	if p.WholeLogits != 2 {
		t.Fatalf("%d whole rows", p.WholeLogits)
	}
	words := make([]int32, p.InputWords)
	block := attn.NewBlock(p, words)
	draw := sample.Draw{Inverse: 2, TopP: 0.5, Random: 7, TopK: 3}
	in := &attn.Batch{Plan: p, Config: cfg, Batch: &b, Draws: [][]sample.Draw{nil, nil, {draw}}}
	if err := block.FillSampling(in); err != nil {
		t.Fatal(err)
	}
	if got := block.Array(plan.WholeRows); !slices.Equal(got, []int32{1, 3}) {
		t.Errorf("whole rows %v", got)
	}
	for row := range 4 {
		got := sample.Drawn(block.Array(plan.Draws)[row*sample.DrawWords:])
		if want := (row == 2); (got == draw) != want || !want && got != (sample.Draw{}) {
			t.Errorf("row %d draws %+v", row, got)
		}
	}
	in.Draws[1] = []sample.Draw{draw}
	if err := block.FillSampling(in); err == nil {
		t.Error("a request that wants whole rows draws")
	}
}

// The memory for block maxima holds one value for every block of a row of scores, rounded up to 16 bytes.
func TestBlocksOfScores(t *testing.T) {
	for _, width := range []int{64, 127, 128, 129, 256, 257} {
		s := &plan.Segment{Indexer: plan.Indexer{Kind: plan.IndexerPagedSplit, RowsPerChunk: 3, ScoreWidth: width,
			Heads: 8}}
		x := attn.Indexer{Heads: 8, TopK: 4, Block: 32}
		a := kernel.MeasureArena()
		if _, err := x.Arrange(a, &plan.Plan{}, s, &plan.Launch{Rows: 5}, layout.IndexPage132, kernel.F32); err != nil {
			t.Fatal(err)
		}
		with := a.High()
		x.Block = 0
		a = kernel.MeasureArena()
		if _, err := x.Arrange(a, &plan.Plan{}, s, &plan.Launch{Rows: 5}, layout.IndexPage132, kernel.F32); err != nil {
			t.Fatal(err)
		}
		blocks := ((width+31)/32 + 3) / 4 * 4
		if got, want := with-a.High(), int64((3*blocks*4+255)/256*256); got != want {
			t.Errorf("%d scores: %d bytes for the scores of blocks, want %d", width, got, want)
		}
	}
}
