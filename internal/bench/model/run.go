package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"sparrow/internal/bench/pause"
	"sparrow/internal/device/group"
	"sparrow/internal/machine"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/unit"
	"sparrow/kernel"
	"sparrow/plan"
)

// Options selects what to measure.
type Options struct {
	Contexts []int // tokens in the cache; nil means 512, 2k, 8k, 32k and 128k on a CPU, 8k and 32k on a GPU
	Batches  []int // sequences; nil means 1 and 16 on a CPU, 1, 16, 64 and 128 on a GPU
	Chunk    int   // new tokens of a prefill chunk, over all sequences; 0 means 512 on a CPU, 8192 on a GPU
	// Experts is the placement of experts; the zero value places all on the device.
	Experts family.Placed
	// Prompts lists the lengths of whole prompts, measured instead of a chunk after each context. On a GPU, nil means
	// 8192 and 32768. A length of 0 is not measured, so that with the list [0] only decodes are measured.
	Prompts []int
	Policy  plan.Policy
	// Ranks lists further devices that share the model with the first device (docs/ranks.md), and Attention how they
	// share attention. Stages are timed on the first device. If attention is divided by requests, sequences are
	// assigned to ranks round-robin.
	Ranks     []kernel.Device
	Attention plan.Division
	Threads   int  // threads of all devices; only for the report
	Packed    bool // whether the device copies weights; only for the report
	Precise   bool // whether activations are not quantised; only for the report
	// Mapped states whether a CPU reads the weights from mapped files; only for the report.
	Mapped bool
	// Budget is the time for which the steps of one phase are repeated; 0 means 2 s on a CPU, 0.3 s on a GPU. A single
	// step may take longer.
	Budget time.Duration
	// PauseTime is the duration of the measurement of garbage collection pauses; 0 means Budget.
	PauseTime time.Duration
	// MemoryBytes is the maximum bytes of the cache; 0 means three quarters of the device's free memory.
	MemoryBytes int64
	Seed        uint64
	OnTensor    func(name string)
	OnCell      func(done, total int, what string)
}

func (o Options) withDefaults(gpu bool) Options {
	if gpu {
		if len(o.Contexts) == 0 {
			o.Contexts = []int{8 << 10, 32 << 10}
		}
		if len(o.Batches) == 0 {
			o.Batches = []int{1, 16, 64, 128}
		}
		if o.Chunk == 0 {
			o.Chunk = 8 << 10
		}
		if len(o.Prompts) == 0 {
			o.Prompts = []int{8 << 10, 32 << 10}
		}
		if o.Budget == 0 {
			o.Budget = 300 * time.Millisecond
		}
	}
	if len(o.Contexts) == 0 {
		o.Contexts = []int{512, 2 << 10, 8 << 10, 32 << 10, 128 << 10}
	}
	if len(o.Batches) == 0 {
		o.Batches = []int{1, 16}
	}
	if o.Chunk == 0 {
		o.Chunk = 512
	}
	if o.Budget == 0 {
		o.Budget = 2 * time.Second
	}
	if o.PauseTime == 0 {
		o.PauseTime = o.Budget
	}
	return o
}

func (o *Options) validate() error {
	var errs []error
	for _, c := range o.Contexts {
		if c < 0 {
			errs = append(errs, fmt.Errorf("bench: a context has %d tokens, want 0 or more", c))
		}
	}
	for _, b := range o.Batches {
		if b < 1 || b > o.Chunk {
			errs = append(errs,
				fmt.Errorf("bench: a batch has %d sequences, want 1 to %d: a prefill step divides its %d tokens "+
					"among them", b, o.Chunk, o.Chunk))
		}
	}
	return errors.Join(errs...)
}

// bench holds the loaded model and its cache during the measurements.
type bench struct {
	o      Options
	watch  *stopwatch
	model  model.Model
	cfg    plan.Config
	runner *step.Runner
	rng    *rand.Rand
	pages  []int32 // pages of a rank's cache, in random order
	gpu    bool
	load   Load
	group  *group.Group // nil for a single device
}

// Title returns the name of a model in reports: its folder or file, without the path.
func Title(src *family.Source) string { return filepath.Base(src.Name) }

// Run loads the model on the device and measures every cell. A cell that cannot be measured contains the reason.
func Run(ctx context.Context, src *family.Source, dev kernel.Device, o Options) (*Report, error) {
	gpu := dev.Hardware().Arch != "cpu"
	o = o.withDefaults(gpu)
	if err := o.validate(); err != nil {
		return nil, err
	}
	b, err := load(src, dev, o)
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.gpu = gpu
	if b.o.MemoryBytes == 0 {
		free, _, err := kernel.MemoryFree(dev)
		if err != nil {
			return nil, err
		}
		b.o.MemoryBytes = free / 4 * 3
	}
	r := &Report{Machine: machine.Here(), Date: time.Now().UTC(), Model: Title(src),
		Kernels: b.model.Device().Name(),
		Threads: o.Threads, Packed: o.Packed, Layout: b.cfg.Layout.String(), Index: b.cfg.IndexLayout.String(),
		Chunk: o.Chunk, Fill: b.filling(), Load: b.load}
	r.Precise, r.Load.Mapped = o.Precise && !gpu, o.Mapped && !gpu
	r.DenseOff, r.Deterministic = o.Policy.Dense == plan.SwitchOff, o.Policy.Deterministic
	for _, batch := range o.Batches {
		for _, c := range o.Contexts {
			r.Cells = append(r.Cells, Cell{Context: c, Batch: batch, Skipped: b.unfit(c, batch)})
		}
	}
	if err := some(r.Cells); err != nil {
		return nil, err
	}
	for _, n := range o.Prompts {
		if n > 0 {
			r.Prompts = append(r.Prompts, Prompt{Length: n, Skipped: b.unfit(n, 1)})
		}
	}
	if err := b.allocate(ctx, r.Cells, r.Prompts); err != nil {
		return nil, err
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if o.OnCell != nil {
			o.OnCell(i, len(r.Cells), fmt.Sprintf("context %d, batch %d", c.Context, c.Batch))
		}
		if c.Skipped != "" {
			continue
		}
		if err := b.measure(ctx, c); err != nil {
			return r, err
		}
	}
	for i := range r.Prompts {
		if p := &r.Prompts[i]; p.Skipped == "" {
			if err := b.prompt(ctx, p); err != nil {
				return r, err
			}
		}
	}
	if gpu {
		if g := b.runner.Graphs(); g.Failure != nil {
			r.Plain = g.Failure.Error()
		}
		return r, nil
	}
	if r.Flat, err = b.flat(ctx, r); err != nil {
		return r, err
	}
	if r.Pause, err = b.pauses(ctx, r.Cells); err != nil {
		return r, err
	}
	r.judge()
	return r, nil
}

// some returns an error if none of the cells can be measured.
func some(cells []Cell) error {
	for _, c := range cells {
		if c.Skipped == "" {
			return nil
		}
	}
	c := cells[0]
	return fmt.Errorf("bench: nothing can be measured: context %d, batch %d: %s; choose smaller contexts "+
		"(--contexts), batches (--batch) or another layout (--kv)", c.Context, c.Batch, c.Skipped)
}

func load(src *family.Source, dev kernel.Device, o Options) (*bench, error) {
	watch := &stopwatch{Device: dev, vocab: src.Config.Vocab}
	if dev.Hardware().Arch == "cpu" && len(o.Ranks) == 0 {
		watch.reads = newCounter()
	}
	begin := time.Now()
	b := &bench{o: o, watch: watch, rng: rand.New(rand.NewPCG(o.Seed, 3))}
	m, err := b.place(src)
	if err != nil {
		return nil, err
	}
	took := Load{Bytes: src.Weights.Bytes(), Seconds: time.Since(begin).Seconds()}
	if _, ok := m.(filled); !ok {
		return nil, fmt.Errorf("bench: %s belongs to family %v, whose cache cannot be filled with random values",
			src.Name, src.Config.Family)
	}
	hw, err := model.Hardware(dev)
	if err != nil {
		return nil, err
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), o.Policy)
	if err != nil {
		return nil, err
	}
	b.model, b.cfg, b.load = m, cfg, took
	return b, nil
}

// place loads the weights on the device and on the other ranks.
func (b *bench) place(src *family.Source) (_ model.Model, err error) {
	if len(b.o.Ranks) == 0 {
		return src.LoadPlaced(b.watch.whole(), b.o.Experts, b.o.OnTensor)
	}
	devs := []kernel.Device{lent{b.watch.whole()}}
	for _, d := range b.o.Ranks {
		devs = append(devs, lent{d})
	}
	if b.group, err = group.New(devs, group.Options{}); err != nil {
		return nil, err
	}
	m, err := src.LoadRanks(b.group, b.o.Attention, b.o.OnTensor)
	if err != nil {
		b.close()
	}
	return m, err
}

// lent wraps a device so that Close does nothing, because the caller of Run closes the device.
type lent struct{ kernel.Device }

func (lent) Close() error { return nil }

// close stops the threads of the ranks. No pass may be running.
func (b *bench) close() {
	if b.group != nil {
		_ = b.group.Close()
	}
}

// filling describes the contents of the cache, for the report.
func (b *bench) filling() string {
	const computed = "; decode steps and prefill chunks on top of them are computed"
	if _, ok := b.model.(model.Windowed); ok {
		return "random window entries, compressed entries and keys, states after whole pages as after a " +
			"reused prefix" + computed
	}
	return "random rows and keys" + computed
}

// perSequence returns the number of cache pages of each sequence of a cell.
func (b *bench) perSequence(context, batch int) int {
	return (context + b.new(batch) + b.cfg.Page - 1) / b.cfg.Page
}

// new returns the maximum number of new tokens of a sequence in a step of a cell.
func (b *bench) new(batch int) int {
	n := b.verified()
	if len(b.o.Prompts) > 0 {
		return n
	}
	return max(b.o.Chunk/batch, n)
}

// ranks returns the number of ranks with their own pages.
func (b *bench) ranks() int {
	if b.cfg.Model.ByRequests() {
		return b.cfg.Model.Ranks
	}
	return 1
}

// ofRank returns the maximum number of sequences of a batch whose pages are on one rank.
func (b *bench) ofRank(batch int) int { return (batch + b.ranks() - 1) / b.ranks() }

// table returns the rank of sequence i and the first have of its per pages.
func (b *bench) table(i, per, have int) (pages []int32, rank int) {
	rank = i % b.ranks()
	pages = slices.Clone(b.pages[i/b.ranks()*per:][:have])
	for p := range pages {
		pages[p] += int32(rank * len(b.pages))
	}
	return pages, rank
}

// unfit returns the reason why a cell cannot be measured, or "" if it can.
func (b *bench) unfit(context, batch int) string {
	if most := b.model.Config().MaxPositions; context+b.new(batch) > most {
		return fmt.Sprintf("the model has %d positions", most)
	}
	need := b.cacheBytes(context, batch)
	if need > b.o.MemoryBytes {
		return fmt.Sprintf("its cache takes %s, %s are free", unit.Bytes(need), unit.Bytes(b.o.MemoryBytes))
	}
	return ""
}

// allocate allocates a cache for the largest cell or prompt and fills it.
func (b *bench) allocate(ctx context.Context, cells []Cell, prompts []Prompt) error {
	pages, windows, l := 0, 0, step.Limits{}
	for _, c := range cells {
		if c.Skipped == "" {
			pages = max(pages, b.perSequence(c.Context, c.Batch)*b.ofRank(c.Batch))
			windows = max(windows, c.Batch*windowPages(b.model, b.cfg.Page, c.Context, b.new(c.Batch)))
			l.Rows, l.Requests, l.Context = max(l.Rows, b.o.Chunk, c.Batch*b.verified()), max(l.Requests, c.Batch),
				max(l.Context, c.Context+b.new(c.Batch))
		}
	}
	for _, p := range prompts {
		if p.Skipped == "" {
			pages, l.Context = max(pages, b.perSequence(p.Length, 1)), max(l.Context, p.Length)
			windows = max(windows, windowPages(b.model, b.cfg.Page, 0, p.Length))
		}
	}
	l.Prompts = l.Requests
	if pages == 0 {
		return nil
	}
	err := b.allocateCache(pages, windows, l.Requests)
	if err != nil {
		return err
	}
	if b.runner, err = step.New(b.model, b.cfg, l); err != nil {
		return err
	}
	b.pages = make([]int32, pages)
	for i, p := range b.rng.Perm(pages) {
		b.pages[i] = int32(p)
	}
	if d, ok := b.watch.Device.(kernel.Drawer); ok {
		for w := 0; w < windows && b.cfg.Model.Pooled(); w++ {
			if err := drawStates(d, b.model.(model.Paged).WindowParts(nil, w), b.o.Seed+uint64(w)); err != nil {
				return err
			}
		}
		return draw(d, b.model.(filled).Pools(), b.o.Seed)
	}
	return fill(ctx, b.model.Device(), b.model.(filled).Pools(), b.o.Seed)
}

// works returns the inputs of a step, one work per sequence: each has its own pages and n new tokens.
func (b *bench) works(kind plan.Mode, context, batch, n int) []step.Work {
	per := b.perSequence(context, batch)
	out := make([]step.Work, batch)
	for i := range out {
		pages, rank := b.table(i, per, (context+n+b.cfg.Page-1)/b.cfg.Page)
		// A GPU returns only the most probable token, as in greedy sampling.
		out[i] = step.Work{Kind: kind, Tokens: b.tokens(n), Cached: context, Rank: rank, Pages: pages, Logits: 1,
			Before: b.before(context), Best: b.gpu, Windows: b.windows(i, len(pages), context, n)}
		if kind == plan.ModeVerify {
			out[i].Logits = n
		}
	}
	return out
}

// before returns as many random tokens before the new tokens as the model reads.
func (b *bench) before(cached int) []int32 {
	m, ok := b.model.(model.Remembering)
	if !ok {
		return nil
	}
	return b.tokens(min(m.Remembers(), cached))
}

// tokens returns n random tokens of the vocabulary.
func (b *bench) tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(b.rng.IntN(b.watch.vocab))
	}
	return out
}

// measure times decode steps and prefill chunks of a cell. Every step writes its new rows to the same slots, so that
// the context does not change.
func (b *bench) measure(ctx context.Context, c *Cell) (err error) {
	if c.Decode, err = b.phase(ctx, plan.ModeDecode, c, 1); err == nil && len(b.o.Prompts) == 0 {
		c.Prefill, err = b.phase(ctx, plan.ModeExtend, c, b.o.Chunk/c.Batch)
	}
	if err != nil {
		return fmt.Errorf("bench: context %d, batch %d: %w", c.Context, c.Batch, err)
	}
	return b.measureBlocks(ctx, c)
}

// fewest and most are the minimum and maximum number of steps of a phase. A phase ends after maxBudgets times the
// budget, even after a single step, which then is measured without a warm-up.
const fewest, most, maxBudgets = 3, 400, 5

// phase times steps of a cell with n new tokens per sequence. A first step, to warm caches and allocate scratch memory,
// is not counted.
func (b *bench) phase(ctx context.Context, kind plan.Mode, c *Cell, n int) (*Phase, error) {
	j, err := b.job(kind, c.Context, c.Batch, n)
	if err != nil {
		return nil, err
	}
	defer j.release()
	p := &Phase{Tokens: n * c.Batch}
	if err := b.repeat(ctx, p, func() (time.Duration, Stages, error) { return b.timed(j) }); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := b.profile(p, 1, func(int) error { _, _, err := b.timed(j); return err }); err != nil {
		return nil, err
	}
	if kind != plan.ModeDecode {
		return p, nil
	}
	if _, waits := b.model.(model.Remembering); b.gpu && waits { // the host looks up table rows by token
		return p, nil
	}
	if b.gpu {
		return p, b.overlap(ctx, p, j)
	}
	return p, b.readsOf(ctx, p, j)
}

// repeat calls one until the budget is used. The first call, which warms caches and allocates scratch memory, is not
// counted.
func (b *bench) repeat(ctx context.Context, p *Phase, one func() (time.Duration, Stages, error)) error {
	var times []float64
	begin, before := time.Now(), b.hostWork()
	b.watch.ops.reset()
	for i := 0; ; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		took, stages, err := one()
		if err != nil {
			return err
		}
		if i == 0 && took < maxBudgets*b.o.Budget { // do not count the warm-up
			begin, before = time.Now(), b.hostWork()
			b.watch.ops.reset()
			continue
		}
		ms := float64(took.Nanoseconds()) / 1e6
		if len(times) == 0 || ms < slices.Min(times) {
			p.Stages = stages
		}
		times = append(times, ms)
		if spent := time.Since(begin); len(times) >= most || spent > b.o.Budget && len(times) >= fewest ||
			spent > maxBudgets*b.o.Budget {
			break
		}
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(math.Round(q*float64(len(times)-1)))] }
	p.StepMs, p.MedianMs, p.Spread, p.Steps = times[0], at(0.5), (at(0.9)-at(0.1))/at(0.5), len(times)
	p.TokensPerSecond, p.Kernels = 1e3*float64(p.Tokens)/p.StepMs, b.watch.ops.mean(len(times))
	p.Host = hostShare(before, b.hostWork(), len(times))
	return nil
}

// shares converts the stage times of a step to milliseconds, and sets Rest to the time outside all stages.
func shares(spent [stageCount]time.Duration, step time.Duration) (s Stages) {
	left := step
	for i, d := range spent {
		s[i] = float64(d.Nanoseconds()) / 1e6
		left -= d
	}
	s[Rest] += float64(left.Nanoseconds()) / 1e6
	return s
}

// flat times decode steps of one sequence at the two depths alternately, so that other load on the machine affects
// both.
func (b *bench) flat(ctx context.Context, r *Report) (*Flat, error) {
	if r.cell(flatDeep, 1) == nil || r.cell(flatShallow, 1) == nil {
		return nil, nil
	}
	f := &Flat{Shallow: flatShallow, Deep: flatDeep}
	var jobs [2]*job
	best := [2]*float64{&f.ShallowMs, &f.DeepMs}
	for i, context := range [2]int{flatShallow, flatDeep} {
		j, err := b.job(plan.ModeDecode, context, 1, 1)
		if err != nil {
			return nil, err
		}
		defer j.release()
		jobs[i] = j
	}
	for begin := time.Now(); f.Steps < most && (f.Steps < fewest || time.Since(begin) < 2*b.o.Budget); f.Steps++ {
		for i, j := range jobs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took, stages, err := b.timed(j)
			if err != nil {
				return nil, err
			}
			if ms := float64(took.Nanoseconds())/1e6 - stages[Scan]; f.Steps == 0 || ms < *best[i] {
				*best[i] = ms
			}
		}
	}
	return f, nil
}

// timed runs a step once and returns its time and the times of its stages.
func (b *bench) timed(j *job) (time.Duration, Stages, error) {
	if err := j.begin(); err != nil {
		return 0, Stages{}, err
	}
	defer j.end()
	if len(j.before) > 0 { // wait until the device has copied the states
		if err := b.model.Device().Sync(); err != nil {
			return 0, Stages{}, err
		}
	}
	b.watch.take()
	start := time.Now()
	_, err := b.runner.Run(j.works)
	took := time.Since(start)
	return took, shares(b.watch.take(), took), err
}

// pauses measures pauses of garbage collection while the smallest cell alternates between decode and prefill.
func (b *bench) pauses(ctx context.Context, cells []Cell) (*pause.Pause, error) {
	i := slices.IndexFunc(cells, func(c Cell) bool { return c.Skipped == "" })
	if i < 0 {
		return nil, nil
	}
	c := cells[i]
	var jobs []*job
	for _, kind := range [2]struct {
		mode plan.Mode
		n    int
	}{{plan.ModeDecode, 1}, {plan.ModeExtend, b.new(c.Batch)}} {
		j, err := b.job(kind.mode, c.Context, c.Batch, kind.n)
		if err != nil {
			return nil, err
		}
		defer j.release()
		jobs = append(jobs, j)
	}
	return pause.Measure(b.o.PauseTime, func(stop <-chan struct{}) error {
		for {
			for _, j := range jobs {
				select {
				case <-stop:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				default:
				}
				if _, _, err := b.timed(j); err != nil {
					return err
				}
			}
		}
	})
}
