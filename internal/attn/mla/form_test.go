package mla

import (
	"encoding/binary"
	"fmt"
	"testing"

	"sparrow/internal/attn"
	"sparrow/internal/num"
	"sparrow/internal/testkit/turns"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// shortPrompt runs the attention of DeepSeek-V3.2 over a prompt with few keys, without the projections.
type shortPrompt struct {
	turns.Bench
	cfg  plan.Config
	pass *Pass
	w    Weights
	c    Cache
}

// promptDims returns the dimensions of DeepSeek-V3.2 with the given number of heads; the released model has 128.
func promptDims(heads int) kernel.LatentDims {
	return kernel.LatentDims{Heads: heads, Nope: 128, Rope: 64, V: 128, Latent: 512}
}

// upProjection returns a random kv_b in e4m3 with block scales, as in the released checkpoint.
func upProjection(t turns.Bench, heads int) kernel.Matrix {
	t.Helper()
	d := promptDims(heads)
	rows, cols := d.KVB(), d.Latent
	codes := make(kernel.HostBuffer, rows*cols)
	for i := range codes {
		codes[i] = num.E4M3(float32(i*37%101-50) * 4)
	}
	var scales kernel.HostBuffer
	for range rows / 128 * cols / 128 {
		scales = binary.LittleEndian.AppendUint32(scales, 0x39800000) // 2^-12
	}
	m, err := t.Dev.Prepare(kernel.Weight{
		Data: kernel.Tensor{Buf: codes, DType: kernel.E4M3, Rows: rows, Cols: cols, Stride: cols},
		Scale: kernel.Tensor{Buf: scales, DType: kernel.F32, Rows: rows / 128, Cols: cols / 128,
			Stride: cols / 128},
		BlockRows: 128, BlockCols: 128}, kernel.Latent)
	t.Must(err)
	return m
}

// newShortPrompt plans and prepares a prompt of n tokens.
func newShortPrompt(t turns.Bench, w Weights, c Cache, n int, policy plan.Policy) (p *shortPrompt, free func()) {
	t.Helper()
	facts, err := plan.ModelFor("deepseek_v32")
	t.Must(err)
	facts.Heads = w.KVB.Out() / 256
	hw, err := plan.HardwareFor(t.Dev.Hardware().Arch)
	t.Must(err)
	p = &shortPrompt{Bench: t, w: w, c: c}
	policy.KV, policy.DenseThreshold = c.Main.Layout.String(), facts.K
	p.cfg, _, err = plan.Resolve(hw, facts, policy)
	t.Must(err)
	request := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(n, 0))
	built, err := plan.Build(p.cfg, request)
	t.Must(err)
	b := attn.Batch{Plan: built, Config: &p.cfg, Batch: &request, PageTokens: p.cfg.Page, Tables: [][]int32{nil}}
	for i := range (n + p.cfg.Page - 1) / p.cfg.Page {
		b.Tables[0] = append(b.Tables[0], int32(i))
	}
	a, err := New(t.Dev, kernel.NewBuilder(t.Dev, kernel.Member{}), Params{Dims: promptDims(facts.Heads), QLora: 16,
		IndexHeads: facts.IndexHeads, TopK: facts.K, Scale: 0.07, InvFreq: make([]float32, 32)})
	t.Must(err)
	var in attn.Inputs
	arrange := func(mem *kernel.Arena) {
		in = attn.TakeInputs(b.Plan, mem)
		p.pass, err = a.Arrange(b.Plan, b.Config, in, mem, Layouts{c.Main.Layout, layout.IndexPage132})
		t.Must(err)
	}
	measured := kernel.MeasureArena()
	arrange(measured)
	mem, err := kernel.NewArena(t.Dev, measured.High())
	t.Must(err)
	arrange(mem)
	words := make([]int32, b.Plan.InputWords)
	t.Must(p.pass.Prepare(&b, attn.NewBlock(b.Plan, words)))
	t.Must(kernel.WriteI32(t.Dev, in.Block, words))
	t.Fill(p.pass.query, 0.3)
	return p, func() { mem.Free(t.Dev) }
}

// run enqueues selection and attention of the prompt rows, in the form of the plan.
func (p *shortPrompt) run() error {
	for i := range p.pass.launches {
		l := &p.pass.launches[i]
		if l.segment.Form == plan.FormDenseMHA {
			p.pass.dense(l, &p.w, p.c)
		} else {
			p.pass.sparse(0, l, &p.w, p.c, kernel.Tensor{})
		}
	}
	return p.pass.list.Run()
}

// BenchmarkShortPrompt compares the dense form with the sparse form of prompts in which every key is selected, so that
// neither form scores keys. The dense form up-projects the gathered rows; the sparse form projects queries to latent
// space and outputs back.
func BenchmarkShortPrompt(b *testing.B) {
	turns.EachDevice(b, func(t turns.Bench) {
		for _, c := range []struct {
			heads int
			kind  layout.Kind
		}{{128, layout.BF16Row1152}, {128, layout.FP8Row656}, {16, layout.BF16Row1152}} {
			l, err := layout.MainOf(c.kind)
			t.Must(err)
			w := Weights{KVB: upProjection(t, c.heads), Index: &IndexWeights{}}
			cache := Cache{Main: t.Pool(c.kind, 32, 64, l.PageBytes(64), func(page []byte, slot int, row []float32) {
				l.Encode(page, slot, row[:layout.RowDim])
			})}
			for _, n := range []int{128, 256, 512, 1024, 2048} {
				t.B.Run(fmt.Sprintf("%d heads, %v/%d", c.heads, c.kind, n), func(b *testing.B) {
					t := t.On(b)
					dense, free := newShortPrompt(t, w, cache, n, plan.Policy{})
					defer free()
					sparse, free := newShortPrompt(t, w, cache, n, plan.Policy{Dense: plan.SwitchOff})
					defer free()
					for _, s := range []*shortPrompt{dense, sparse} {
						if s.pass.plan.Segments[0].Scores() || len(s.pass.launches) != 1 {
							t.Fatal("the plan scores, or cuts the prompt")
						}
					}
					forms := []turns.Form{{Name: "sparse", Run: sparse.run}, {Name: "dense", Run: dense.run}}
					t.Report(t.Time(forms...), forms...)
					t.Same("outputs", t.Values(dense.pass.out), t.Values(sparse.pass.out), 0.05)
				})
			}
		}
	})
}
