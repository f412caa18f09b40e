package verify

import (
	"fmt"
	"slices"

	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/step"
	"sparrow/plan"
	"sparrow/weight"
)

// Drafted holds the results that an independent implementation computed with a drafter of blocks (dspark spec, 11), in
// addition to a
// Golden.
type Drafted struct {
	// One element for each step of a run that verifies every draft: the length before the step, the token that the
	// block begins with, the drafts, their confidences, the target's tokens of all verified rows, and the number of
	// drafts that were accepted.
	Position, Anchor, Accepted []int32
	Draft, Target              [][]int32
	Confidence                 [][]float32
	// Logits of the drafts of the first steps, before and after the Markov head, [steps][block][vocabulary].
	Base, Logits [][][]float32
	// Probe has blocks after other lengths of the prompt. They begin with the prompt's own token.
	Probe struct {
		Length     []int32
		Draft      [][]int32
		Base       [][]float32 // [probes*block][vocabulary]
		Confidence [][]float32
	}
	// Forced is a run with given drafts, and the target's logits after the accepted ones.
	Forced struct {
		Position, Accepted []int32
		Draft              [][]int32
		Logits             [][]float32
	}
}

// readDrafted reads the part of a case about a drafter of blocks, or returns nil if there is none.
func (r *reader) readDrafted(name string) *Drafted {
	if _, ok := r.from.Tensor(name + ".spec.position"); !ok {
		return nil
	}
	d := &Drafted{Position: r.ints(name + ".spec.position"), Anchor: r.ints(name + ".spec.anchor"),
		Accepted: r.ints(name + ".spec.accepted"), Draft: r.selection(name + ".spec.draft"),
		Target: r.selection(name + ".spec.target"), Confidence: r.matrix(name + ".spec.confidence")}
	for i := 0; ; i++ {
		at := fmt.Sprintf("%s.step%d.", name, i)
		if _, ok := r.from.Tensor(at + "logits"); !ok {
			break
		}
		d.Base, d.Logits = append(d.Base, r.matrix(at+"base_logits")), append(d.Logits, r.matrix(at+"logits"))
	}
	p, f := &d.Probe, &d.Forced
	p.Length, p.Draft = r.ints(name+".probe.length"), r.selection(name+".probe.draft")
	p.Base, p.Confidence = r.matrix(name+".probe.base_logits"), r.matrix(name+".probe.confidence")
	f.Position, f.Accepted = r.ints(name+".forced.position"), r.ints(name+".forced.accepted")
	f.Draft, f.Logits = r.selection(name+".forced.draft"), r.matrix(name+".forced.logits")
	return d
}

// Blocks is the comparison of the drafts of a case with the oracle's.
type Blocks struct {
	Blocks          int     `json:"blocks"` // steps and probes
	Drafts          int     `json:"drafts"`
	DraftsEqual     int     `json:"drafts_equal"`
	Steps           int     `json:"steps"`
	AcceptedEqual   int     `json:"accepted_equal"` // steps in which the tokens of all verified rows equal the oracle's
	LogitError      float64 `json:"logit_error"`    // largest error of logits with the Markov head
	BaseError       float64 `json:"base_error"`     // largest error of logits without the Markov head
	ConfidenceError float64 `json:"confidence_error"`
	MedianCosine    float64 `json:"median_cosine"` // median cosine of logits without the Markov head
	Forced          int     `json:"forced"`
	ForcedEqual     int     `json:"forced_equal"` // runs with the oracle's acceptance length
	ForcedError     float64 `json:"forced_error"` // largest error of the target's logits after accepted drafts
	ForcedCosine    float64 `json:"forced_cosine"`
}

// blockRun drafts and verifies one case.
type blockRun struct {
	m      model.Model
	r      *step.Runner
	g      *Golden
	tokens []int32 // tokens of the prompt and the greedy continuation
	table  []int32
	state  model.State
	markov *markov
	out    *Blocks
	cos    []float64
	forced []float64
}

// draftBlocks compares the drafts of a case. The model must draft in blocks.
func draftBlocks(dir string, m model.Model, cfg plan.Config, g *Golden, chunk int) (*Blocks, error) {
	cfg.N = cfg.Model.Block + 1
	n := len(g.Input)
	total := n + len(g.Greedy) + cfg.N
	pages := (total + cfg.Page - 1) / cfg.Page
	if err := m.Allocate(&cfg, pages+1); err != nil {
		return nil, err
	}
	r, err := step.New(m, cfg, step.Limits{Rows: max(n, cfg.N), Requests: 1, Context: total})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	x := &blockRun{m: m, r: r, g: g, tokens: slices.Concat(g.Input, g.Greedy), out: &Blocks{}}
	if x.markov, err = readMarkov(dir); err != nil {
		return nil, err
	}
	for p := range pages { // pages are not in order, and page 0 is unused
		x.table = append(x.table, int32(pages-p))
	}
	for _, run := range []func() error{x.steps, x.force} {
		if err := x.prompt(chunk); err != nil {
			return nil, err
		}
		if err := run(); err != nil {
			return nil, fmt.Errorf("verify: case %s: %w", g.Name, err)
		}
		x.state.Release()
	}
	x.out.MedianCosine, x.out.ForcedCosine = median(x.cos), median(x.forced)
	return x.out, nil
}

// prompt computes the prompt of a new sequence.
func (x *blockRun) prompt(chunk int) (err error) {
	s, ok := x.m.(model.Stateful)
	if !ok {
		return fmt.Errorf("verify: the model drafts in blocks but has no states; models like this are not supported")
	}
	if x.state, err = s.NewState(); err != nil {
		return err
	}
	n := len(x.g.Input)
	if chunk <= 0 {
		chunk = n
	}
	for at := 0; at < n; at += chunk {
		part := x.g.Input[at:min(at+chunk, n)]
		if _, err := x.r.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: part, Cached: at, Pages: x.table,
			State: x.state}}); err != nil {
			return fmt.Errorf("verify: case %s: prompt from position %d: %w", x.g.Name, at, err)
		}
	}
	return nil
}

// steps drafts after the prompt and inside it, and verifies the oracle's drafts.
func (x *blockRun) steps() error {
	d := x.g.Drafted
	for i, length := range d.Probe.Length {
		n := len(d.Probe.Draft[i])
		if err := x.block(int(length), d.Probe.Draft[i], d.Probe.Confidence[i], d.Probe.Base[i*n:(i+1)*n],
			nil); err != nil {
			return err
		}
	}
	for i, at := range d.Position {
		var base, logits [][]float32
		if i < len(d.Logits) {
			base, logits = d.Base[i], d.Logits[i]
		}
		if err := x.block(int(at), d.Draft[i], d.Confidence[i], base, logits); err != nil {
			return err
		}
		rows, err := x.verify(int(at), d.Draft[i], int(d.Accepted[i]))
		if err != nil {
			return err
		}
		x.out.Steps++
		equal := true
		for j, want := range d.Target[i] {
			equal = equal && argmax(rows[j]) == want
		}
		if equal {
			x.out.AcceptedEqual++
		}
	}
	return nil
}

// force verifies given drafts.
func (x *blockRun) force() error {
	f := &x.g.Drafted.Forced
	for i, at := range f.Position {
		rows, err := x.verify(int(at), f.Draft[i], int(f.Accepted[i]))
		if err != nil {
			return err
		}
		right := 0
		for right < len(f.Draft[i]) && argmax(rows[right]) == f.Draft[i][right] {
			right++
		}
		x.out.Forced++
		if right == int(f.Accepted[i]) {
			x.out.ForcedEqual++
		}
		got := rows[f.Accepted[i]]
		x.out.ForcedError = max(x.out.ForcedError, maxDiff(got, f.Logits[i]))
		x.forced = append(x.forced, cosine(got, f.Logits[i]))
	}
	return nil
}

// block drafts a block after the given number of tokens and compares the drafts with the oracle's.
func (x *blockRun) block(length int, draft []int32, confidence []float32, base, logits [][]float32) error {
	res, err := x.r.Draft([]step.Draft{{Kind: plan.ModeDraft, Tokens: x.tokens[length : length+1], Cached: length - 1,
		Pages: x.table, State: x.state, Logits: true}}, false)
	if err != nil {
		return fmt.Errorf("drafting a block after %d tokens: %w", length, err)
	}
	x.out.Blocks++
	before, equal := x.tokens[length], true
	for i, want := range draft {
		row, sure := res.Drafted(0, i)
		token, _, _ := res.Best(row)
		x.out.Drafts++
		if token == want {
			x.out.DraftsEqual++
		}
		got := res.Row(row)
		if base != nil {
			plain := x.markov.without(got, before)
			x.out.BaseError = max(x.out.BaseError, maxDiff(plain, base[i]))
			x.cos = append(x.cos, cosine(plain, base[i]))
		}
		if equal { // if tokens differ, the Markov head has read another token than the oracle
			if logits != nil {
				x.out.LogitError = max(x.out.LogitError, maxDiff(got, logits[i]))
			}
			x.out.ConfidenceError = max(x.out.ConfidenceError, maxDiff([]float32{sure}, confidence[i:i+1]))
		}
		equal, before = equal && token == want, token
	}
	return nil
}

// verify computes the rows of the token at position length and of the drafts after it, keeps the accepted drafts, and
// returns the logits of all rows.
func (x *blockRun) verify(length int, draft []int32, accepted int) ([][]float32, error) {
	tokens := append([]int32{x.tokens[length]}, draft...)
	res, err := x.r.Run([]step.Work{{Kind: plan.ModeVerify, Tokens: tokens, Cached: length, Pages: x.table,
		State: x.state, Logits: len(tokens)}})
	if err != nil {
		return nil, fmt.Errorf("computing %d rows after %d tokens: %w", len(tokens), length, err)
	}
	var rows [][]float32
	for i := range tokens {
		rows = append(rows, slices.Clone(res.Row(i)))
	}
	return rows, x.state.Truncate(length + 1 + accepted)
}

// markov is the Markov head of a checkpoint. Its part of the logits is subtracted, because the oracle has most logits
// without it.
type markov struct {
	before, after []float32 // [vocabulary, rank]
	rank          int
}

func readMarkov(dir string) (*markov, error) {
	c, err := config.Read(dir)
	if err != nil {
		return nil, err
	}
	v4, ok := c.(*config.V4)
	if !ok || v4.DSpark == nil {
		return nil, fmt.Errorf("verify: %s has golden drafts of a DSpark head, but config.json does not describe one",
			dir)
	}
	from, err := weight.Open(dir)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	m := &markov{rank: v4.DSpark.Rank}
	for name, to := range map[string]*[]float32{"markov_w1": &m.before, "markov_w2": &m.after} {
		name = fmt.Sprintf("mtp.%d.markov_head.%s.weight", v4.DSpark.Stages-1, name)
		t, ok := from.Tensor(name)
		if !ok {
			return nil, fmt.Errorf("verify: %s: no tensor %s", dir, name)
		}
		if *to, err = weight.ReadF32(t); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// without returns logits minus the Markov head's part after a token.
func (m *markov) without(logits []float32, before int32) []float32 {
	e := m.before[int(before)*m.rank : (int(before)+1)*m.rank]
	out := make([]float32, len(logits))
	for t, v := range logits {
		sum := 0.0
		for i, w := range m.after[t*m.rank : (t+1)*m.rank] {
			sum += float64(w) * float64(e[i])
		}
		out[t] = float32(float64(v) - sum)
	}
	return out
}
