package formula

import (
	"fmt"

	"sparrow/internal/attn/mla"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/plan"
)

// Shape holds the sizes and the kind of a model.
type Shape struct {
	Vocab   int
	Context int  // context length in tokens
	Windows bool // New returns a Windowed model
	// Plain makes the next token depend only on the last token, in a model without windows. Capacity planning uses it,
	// because its contexts are long and its tokens are not compared.
	Plain bool
	// Script, if not nil, determines the next token, in a model without windows.
	Script Script
}

// Script returns the token that follows a sequence. hash is the hash of the sequence, and tokens returns its tokens.
type Script func(hash uint64, tokens func() []int32) int32

// New returns a model of the given shape on a device.
func New(s Shape, dev *Device) (model.Model, error) {
	if s.Windows {
		return newWindowed(s, dev), nil
	}
	return newModel(s, dev)
}

// With a small top-k, plans contain both rows of dense attention, which uses slots, and of sparse attention, which uses
// page tables.
const topK = 128

// residual holds the hash after every row of the last pass, which a draft pass continues from.
type residual struct {
	hash []uint64
	rows int // number of valid rows; 0 if none is valid
}

// Model has the structure of DeepSeek-V3.2.
type Model struct {
	dev    *Device
	plain  bool
	config config.Config
	facts  plan.Model
	attn   *mla.Attention

	pageTokens, pages int
	marks             []uint64  // [slots] marks of the target's rows
	draftMarks        []uint64  // [slots] marks of the drafting layer's rows
	logits            []float32 // [vocabulary] buffer for the logits of a row
	script            Script
	tokens            []int32 // [slots] tokens of the rows, if there is a script
}

// newModel returns a model with a drafting layer.
func newModel(s Shape, dev *Device) (*Model, error) {
	m := &Model{dev: dev, plain: s.Plain, script: s.Script, logits: make([]float32, s.Vocab),
		config: config.Config{Family: config.DeepseekV32, Vocab: s.Vocab, Hidden: 1, Layers: 1, NextN: 1,
			MaxPositions: s.Context, Indexer: config.Indexer{Heads: 1, Dim: 128, TopK: topK}},
		facts: plan.Model{Family: plan.DeepSeekV32, Heads: 1, K: topK, IndexHeads: 1, QKDim: 96, VDim: 32, Layers: 1,
			NextN: 1, Context: s.Context, LayerSupportsDense: true}}
	var err error
	m.attn, err = mla.New(dev, kernel.NewBuilder(dev, kernel.Member{}), mla.Params{
		Dims:  kernel.LatentDims{Heads: 1, Nope: 32, Rope: 64, V: 32, Latent: 512},
		QLora: 1, IndexHeads: 1, TopK: topK, Scale: 1, CosScale: 1, InvFreq: make([]float32, 32)})
	return m, err
}

// Config returns the description of the model.
func (m *Model) Config() *config.Config { return &m.config }

// Facts returns the properties that the planner reads.
func (m *Model) Facts() plan.Model { return m.facts }

// Device returns the device of the model.
func (m *Model) Device() kernel.Machine { return m.dev }

// DraftHead returns nil, because the model has a drafting layer.
func (m *Model) DraftHead() error { return nil }

// Allocate allocates the cache.
func (m *Model) Allocate(cfg *plan.Config, pages int) error {
	m.pageTokens, m.pages = cfg.Page, pages
	m.marks, m.draftMarks = make([]uint64, pages*cfg.Page), make([]uint64, pages*cfg.Page)
	if m.script != nil {
		m.tokens = make([]int32, pages*cfg.Page)
	}
	return nil
}

// PageBytes returns the bytes of a page.
func (m *Model) PageBytes(cfg *plan.Config) int64 { return int64(cfg.Page) * 16 }

// workspace holds the hashes from which draft passes continue.
type workspace struct {
	m             *Model
	target, chain residual
}

// Bind allocates a workspace.
func (m *Model) Bind(_ *kernel.Arena, rows int) model.Workspace {
	return &workspace{m, residual{hash: make([]uint64, rows)}, residual{hash: make([]uint64, rows)}}
}

// Arrange prepares the passes of a plan.
func (w *workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.dev.try(OpArrange); err != nil {
		return nil, err
	}
	if p.Rows > len(w.target.hash) {
		return nil, fmt.Errorf("formula: workspace holds %d rows, pass has %d", len(w.target.hash), p.Rows)
	}
	main, index, err := model.Kinds(cfg)
	if err != nil {
		return nil, err
	}
	s := &pass{m: m, work: w}
	s.take(&m.config, p, a)
	s.attn, err = m.attn.Arrange(p, cfg, s.in, a, mla.Layouts{Main: main, Index: index})
	return s, err
}
