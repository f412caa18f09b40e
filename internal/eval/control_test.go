package eval

import (
	"context"
	"flag"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sparrow"
	"sparrow/builtin"
	"sparrow/internal/device"
	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

var controlItems = flag.Int("control-items", 0,
	"items of find_one_2048 that the random-selection control runs; 50 is all, 0 is 1, or 2 with -long")

// randomDevice is a device whose selection ignores the indexer: a row with more than K visible keys gets K random keys
// in ascending order. All other operations, and rows with at most K keys, are computed as usual.
type randomDevice struct {
	kernel.Device
	random   *rand.Rand
	replaced int
}

// Do runs selections itself and passes all other operations to the device.
func (d *randomDevice) Do(op kernel.Op) error {
	switch a := op.(type) {
	case kernel.ScoreArgs:
		return d.Scores(a)
	case kernel.SelectArgs:
		return d.Select(a)
	}
	return d.Device.Do(op)
}

// Scores computes nothing, because random selections do not use scores.
func (d *randomDevice) Scores(a kernel.ScoreArgs) error { return a.Check() }

func (d *randomDevice) Select(a kernel.SelectArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	k := a.Out.Cols
	lens, out := make([]int32, a.Out.Rows), make([]int32, a.Out.Rows*k)
	if err := kernel.ReadI32(d, lens, a.Lens); err != nil {
		return err
	}
	for r, n := range lens {
		d.choose(out[r*k:(r+1)*k], int(n))
	}
	return kernel.WriteI32(d, a.Out, out)
}

// choose fills row with random positions below n in ascending order, and the rest of the row with -1.
func (d *randomDevice) choose(row []int32, n int) {
	if n <= len(row) {
		for i := range row {
			row[i] = int32(i)
			if i >= n {
				row[i] = -1
			}
		}
		return
	}
	d.replaced++
	chosen := make([]uint64, (n+63)/64)
	for left := len(row); left > 0; {
		p := d.random.IntN(n)
		if bit := uint64(1) << (p % 64); chosen[p/64]&bit == 0 {
			chosen[p/64] |= bit
			left--
		}
	}
	at := 0
	for i, word := range chosen {
		for ; word != 0; word &= word - 1 {
			row[at] = int32(64*i + bits.TrailingZeros64(word))
			at++
		}
	}
}

// stepper answers items by running steps directly, so that the device can be replaced. It computes one item at a time.
type stepper struct {
	turn  sync.Mutex // only one goroutine at a time may run steps of a model
	model model.Model
	cfg   plan.Config
	text  *sparrow.Engine // renders prompts and decodes outputs
	end   int32
}

func newStepper(t *testing.T, dev kernel.Device, text *sparrow.Engine) *stepper {
	t.Helper()
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return &stepper{model: m, cfg: cfg, text: text, end: int32(src.Config.EOS[0])}
}

func (s *stepper) About() About { return About{Model: builtin.Name} }

func (s *stepper) Answer(ctx context.Context, it *Item, most int) (Reply, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	_, prompt, err := s.text.Render(&it.Chat)
	if err != nil {
		return Reply{}, err
	}
	pages := (len(prompt)+most)/s.cfg.Page + 1
	if err := s.model.Allocate(&s.cfg, pages); err != nil {
		return Reply{}, err
	}
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(i)
	}
	const chunk = 512
	r, err := step.New(s.model, s.cfg, step.Limits{Rows: chunk, Requests: 1})
	if err != nil {
		return Reply{}, err
	}
	defer r.Close()
	out := Reply{Raw: true, PromptTokens: len(prompt)}
	var ids []int32
	for cached, kind := 0, plan.ModeExtend; out.CompletionTokens < most && ctx.Err() == nil; {
		w := step.Work{Kind: kind, Cached: cached, Pages: table}
		if rest := prompt[min(cached, len(prompt)):]; len(rest) > 0 {
			w.Tokens = rest[:min(chunk, len(rest))]
		} else {
			w.Tokens = ids[len(ids)-1:]
		}
		cached += len(w.Tokens)
		if cached >= len(prompt) {
			w.Logits, kind = 1, plan.ModeDecode
		}
		res, err := r.Run([]step.Work{w})
		if err != nil {
			return Reply{}, err
		}
		if w.Logits == 0 {
			continue
		}
		out.CompletionTokens++
		row := res.Row(0)
		best := int32(slices.Index(row, slices.Max(row)))
		if out.Ended = best == s.end; out.Ended {
			break
		}
		ids = append(ids, best)
	}
	if out.Text, err = s.text.Decode(ids); err != nil {
		return Reply{}, err
	}
	return out, ctx.Err()
}

// Selection matters: with random positions in place of the indexer's, facts in texts of 4,096 tokens are no longer
// found, while prompts with at most index_topk keys are answered as before. With the indexer's own selection the same
// steps find the facts.
func TestRandomSelectionFindsNothing(t *testing.T) {
	real, err := device.Registry().Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	})
	text := open(t, plan.Policy{})
	find, short := shippedTasks(t, "find_one_2048"), shippedTasks(t, "word1")
	allRight(t, newStepper(t, real, text), find, 1)

	device := &randomDevice{Device: real, random: rand.New(rand.NewPCG(1, 2))}
	random := newStepper(t, device, text)
	allRight(t, random, short, 1)
	if device.replaced != 0 {
		t.Errorf("%d rows of short prompts were replaced", device.replaced)
	}
	items := *controlItems
	switch {
	case items == 0 && *everything:
		items = 2
	case items == 0:
		items = 1
	}
	rep, err := Run(t.Context(), random, find, Options{Limit: items})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("random positions: %d of %d found, %d rows replaced", rep.Total.Exact, rep.Total.Items, device.replaced)
	if device.replaced == 0 || rep.Total.Errors > 0 {
		t.Errorf("%d rows replaced, %d errors", device.replaced, rep.Total.Errors)
	}
	if 2*rep.Total.Exact >= rep.Total.Items {
		t.Errorf("random positions found %d of %d facts; below half was expected", rep.Total.Exact, rep.Total.Items)
	}
}

// choose returns distinct ascending positions below the length.
func TestRandomChoice(t *testing.T) {
	d := &randomDevice{random: rand.New(rand.NewPCG(3, 4))}
	for _, n := range []int{0, 1, 7, 8, 9, 64, 65, 1000} {
		row := make([]int32, 8)
		d.choose(row, n)
		for i, p := range row {
			switch {
			case i >= n && p != -1, i < n && (p < 0 || int(p) >= n), i > 0 && i < n && p <= row[i-1]:
				t.Errorf("%d keys: %v", n, row)
			}
		}
	}
	if d.replaced != 4 {
		t.Errorf("%d rows replaced, want 4", d.replaced)
	}
}
