package dual

import (
	"fmt"
	"testing"
	"time"

	"sparrow/internal/attn"
	"sparrow/internal/testkit/turns"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// promptBench runs the attention of a layer of DeepSeek-V4-Flash over a prompt, without the projections and the
// indexer.
type promptBench struct {
	turns.Bench
	facts plan.Model
	a     *Attention
	w     Weights
	c     Cache
	mem   *kernel.Arena
}

// chunkOf plans the rows from cached to end of a prompt for a prefill kernel, and lays out the pass on an arena.
func (p *promptBench) chunkOf(mem *kernel.Arena, prefill plan.Kernel, cached, end int) (*attn.Batch, *Pass,
	attn.Inputs) {
	p.Helper()
	hw, err := plan.HardwareFor(p.Dev.Hardware().Arch)
	p.Must(err)
	cfg, _, err := plan.Resolve(hw, p.facts, plan.Policy{KV: "fp8", Prefill: prefill.String()})
	p.Must(err)
	request := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(end-cached, cached))
	built, err := plan.Build(cfg, request)
	p.Must(err)
	b := &attn.Batch{Plan: built, Config: &cfg, Batch: &request, PageTokens: cfg.Page, Tables: [][]int32{nil}}
	for i := range (end + cfg.Page - 1) / cfg.Page {
		b.Tables[0] = append(b.Tables[0], int32(i))
	}
	mem.Reset(0)
	in := attn.TakeInputs(built, mem)
	pass, err := p.a.Arrange(built, in, mem, Layouts{layout.V4Row584, layout.IndexPage132})
	p.Must(err)
	return b, pass, in
}

// chunk plans a chunk with chunkOf and fills its arrays, its queries and a selection of the visible groups of its rows.
func (p *promptBench) chunk(prefill plan.Kernel, cached, end int) *Pass {
	p.Helper()
	b, pass, in := p.chunkOf(p.mem, prefill, cached, end)
	words := make([]int32, b.Plan.InputWords)
	block := attn.NewBlock(b.Plan, words)
	p.Must(pass.Prepare(&Batch{Batch: b, Pages: len(b.Tables[0]),
		States: []*State{{of: p.a.States, slot: 0, len: cached, high: cached}}}, block))
	p.Must(kernel.WriteI32(p.Dev, in.Block, words))
	p.Fill(pass.projected.q, 0.2)
	k := p.facts.K
	selected := make([]int32, 0, b.Plan.Rows*k)
	for _, groups := range block.Array(plan.Groups) {
		for i := range k { // selects all groups, or one from each of k parts
			switch n := int(groups); {
			case n > k:
				selected = append(selected, int32(i*n/k))
			case i < n:
				selected = append(selected, int32(i))
			default:
				selected = append(selected, -1)
			}
		}
	}
	p.Must(kernel.WriteI32(p.Dev, pass.selected, selected))
	return pass
}

// form enqueues the attention of a chunk.
func (p *promptBench) form(pass *Pass) turns.Form {
	f := turns.Form{Name: "paged", Run: func() error {
		for i := range pass.launches {
			pass.paged(&pass.launches[i], &p.w, p.c)
		}
		return pass.list.Run()
	}}
	if pass.launches[0].segment.Form == plan.FormV4SparsePrefill {
		f.Name, f.Run = "flat", func() error {
			for i := range pass.launches {
				pass.flat(&pass.launches[i], &p.w, p.c)
			}
			return pass.list.Run()
		}
	}
	return f
}

// prompt measures a prompt of n tokens in chunks of 2048 on a CPU, or of 8192 on a GPU. It adds up the times of all
// chunks, for the gathered form including its gather, and for the form in place. At most four evenly spaced chunks are
// measured; each represents the chunks around it.
func (p *promptBench) prompt(n int) {
	p.Helper()
	size := 8192
	if p.Dev.Hardware().Arch == "cpu" {
		size = 2048
	}
	var sums [2]time.Duration
	kernels := [2]plan.Kernel{plan.V4Flat, plan.V4Paged}
	forms := make([]turns.Form, 2)
	chunks := (n + size - 1) / size
	each := (chunks + 3) / 4
	for p.B.Loop() {
		for first := 0; first < chunks; first += each {
			many := min(each, chunks-first)
			from := (first + many/2) * size
			end := min(from+size, n)
			var outs [2][]float32
			for i, k := range kernels {
				pass := p.chunk(k, from, end)
				forms[i] = p.form(pass)
				sums[i] += time.Duration(many) * p.Once(forms[i])
				out := pass.projected.out
				outs[i] = p.Values(out.Slice(out.Rows-1, out.Rows))
			}
			p.Same("outputs", outs[0], outs[1], 0.01)
		}
	}
	for i := range sums {
		sums[i] /= time.Duration(p.B.N)
	}
	p.Report(sums[:], forms...)
}

// BenchmarkPrompt compares the two prefill forms of DeepSeek-V4 in layers with each compressed stream.
func BenchmarkPrompt(b *testing.B) {
	const longest = 30 << 10
	turns.EachDevice(b, func(t turns.Bench) {
		facts, err := plan.ModelFor("deepseek_v4")
		t.Must(err)
		freq := make([]float32, 32)
		p := &promptBench{Bench: t, facts: facts}
		p.a, err = New(t.Dev, kernel.NewBuilder(t.Dev, kernel.Member{}), Params{Heads: facts.Heads, Dim: facts.QKDim,
			Rope:  layout.RopeDim,
			QLora: 16, OLora: 16, OGroups: 1, Window: facts.Window, IndexHeads: facts.IndexHeads, TopK: facts.K,
			MainFreq: freq, FarFreq: freq}, []*Weights{{Ratio: 0}, {Ratio: IndexRatio}, {Ratio: HeavyRatio}})
		t.Must(err)
		sinks, err := kernel.New(t.Dev, kernel.F32, 1, facts.Heads)
		t.Must(err)
		pool := func(ratio int) kernel.Pool {
			var l layout.V4Packed
			n := 256 / ratio
			return t.Pool(layout.V4Row584, longest/256, n, l.PageBytes(n),
				func(page []byte, slot int, row []float32) { l.Encode(page, n, slot, row[:layout.V4Dim]) })
		}
		measured := kernel.MeasureArena()
		for _, k := range []plan.Kernel{plan.V4Flat, plan.V4Paged} {
			rows := min(longest, 8<<10) // no chunk is larger
			if t.Dev.Hardware().Arch == "cpu" {
				rows = 2 << 10
			}
			p.chunkOf(measured, k, longest-rows, longest)
		}
		p.mem, err = kernel.NewArena(t.Dev, measured.High())
		t.Must(err)
		defer p.mem.Free(t.Dev)
		window := pool(1)
		for _, ratio := range []int{IndexRatio, HeavyRatio} {
			p.w = Weights{Ratio: ratio, Sinks: sinks}
			p.c = Cache{Window: window, Extra: pool(ratio)}
			for _, n := range []int{512, 4 << 10, 13 << 10, longest} {
				t.B.Run(fmt.Sprintf("ratio %d/%d", ratio, n), func(b *testing.B) {
					q := *p
					q.Bench = t.On(b)
					q.prompt(n)
				})
			}
		}
	})
}
