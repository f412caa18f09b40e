package sched

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"sparrow/internal/kv"
)

// machine is a simulated machine with the times of its batches.
type machine struct {
	name string
	// batch returns the time of a batch in seconds from numbers of rows and thousands of context tokens.
	batch func(decodes, decodeContext, prompts, promptContext float64) float64
	// far is the number of additional seconds for each prompt row after the threshold.
	far   float64
	stall time.Duration
	step  int
	// kept is the allowed longest gap as a multiple of stall; 0 means 1.2.
	kept float64
}

var machines = []machine{
	// These times were measured with the built-in model on two cores.
	{"small model on a CPU", func(d, dc, p, pc float64) float64 {
		return 4e-4 + 2e-4*d + 1e-5*dc + 5e-4*p + 2e-5*pc
	}, 8e-4, 100 * time.Millisecond, 512, 0},
	// The time per row is small compared with reading the weights, and decreases with the number of rows.
	{"large model on a GPU", func(d, dc, p, pc float64) float64 {
		return max(8e-3+5e-5*d+1e-6*dc, 4e-5*(d+p)) + 3e-5*p + 4e-7*pc
	}, 2e-5, 50 * time.Millisecond, 8192, 0},
	// Decoding alone takes longer than the limit, so that prompts may add half of the limit; the smallest chunk adds
	// more.
	{"large model on a CPU", func(d, dc, p, pc float64) float64 {
		return 0.4 + 5e-3*d + 1e-2*p + 1e-4*pc
	}, 1e-2, 100 * time.Millisecond, 512, 8},
}

// rig runs a scheduler on a simulated machine. Times vary randomly, mostly within 5 % of the expected time; if noise is
// set, one batch in 200 takes twice as long.
type rig struct {
	s       *Scheduler
	m       *machine
	r       *rand.Rand
	noise   bool
	spread  float64 // standard deviation of the logarithm of times
	clock   float64
	longest float64 // longest batch that decoding sequences waited for, without batches that were made slow at random
	prompts int     // number of computed prompt tokens
	waited  int     // number of batches that decoding sequences waited for
	over    int     // number of those batches that took more than 1.2 times the limit
}

// threshold is the number of prompt tokens above which the machines become slower.
const threshold = 256

func newRig(t *testing.T, m *machine, stall time.Duration, noise bool) *rig {
	t.Helper()
	pool, err := kv.New(kv.Config{Pages: 8192, PageTokens: 64, Reuse: false, Main: "rows", Index: "keys"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New([]*kv.Pool{pool}, Limits{BatchTokens: m.step, MaxRunning: 80, MaxStall: stall,
		Threshold: threshold})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{s: s, m: m, r: rand.New(rand.NewPCG(1, 2)), noise: noise}
}

func (g *rig) step(t *testing.T) {
	t.Helper()
	items := g.s.Schedule()
	var d, dc, p, pc, far float64
	for _, it := range items {
		n, context := float64(len(it.Tokens)), float64(len(it.Tokens))*float64(it.Cached)/1000
		if it.Decode {
			d, dc = d+n, dc+context
		} else {
			p, pc = p+n, pc+context
			far += min(n, max(float64(it.Cached)+n-threshold, 0))
			g.prompts += len(it.Tokens)
		}
	}
	took := (g.m.batch(d, dc, p, pc) + far*g.m.far) * (0.95 + 0.1*g.r.Float64())
	took *= math.Exp(g.spread * g.r.NormFloat64())
	late := g.noise && g.r.IntN(200) == 0
	if late {
		took *= 2
	}
	g.clock += took
	if d > 0 && !late {
		g.longest = max(g.longest, took)
		g.waited++
		if took > 1.2*g.m.stall.Seconds() {
			g.over++
		}
	}
	for i := range items {
		it := &items[i]
		if err := g.s.Done(it); err != nil {
			t.Fatal(err)
		}
		if !it.Last {
			continue
		}
		if it.Seq.Owner == "prompt" {
			g.s.Remove(it.Seq)
		} else {
			it.Seq.Tokens = append(it.Seq.Tokens, 1)
		}
	}
	g.s.Took(g.s.Load(), time.Duration(took*float64(time.Second)))
}

func (g *rig) add(t *testing.T, owner string, tokens int) {
	t.Helper()
	if err := g.s.Add(&Sequence{Tokens: make([]int32, tokens), Owner: owner}); err != nil {
		t.Fatal(err)
	}
}

// prefill starts streams, lets them run, and then computes prompts of 16000 tokens at the same time, two at a time, and
// short prompts in between. It returns the prompt tokens per second.
func (g *rig) prefill(t *testing.T, streams int) float64 {
	t.Helper()
	for range streams {
		g.add(t, "stream", 32)
	}
	for range 40 {
		g.step(t)
	}
	g.longest, g.prompts, g.waited, g.over = 0, 0, 0, 0
	from := g.clock
	for range 3 {
		g.add(t, "prompt", 16000)
		g.add(t, "prompt", 16000)
		for g.s.Running() > streams || g.s.Waiting() > 0 {
			g.step(t)
		}
		for range 40 { // many short prompts must not change the estimated cost of long prompts
			g.add(t, "prompt", 1+g.r.IntN(100))
			g.step(t)
		}
	}
	return float64(g.prompts) / (g.clock - from)
}

// Prompts delay running streams for no longer than the limit allows, beginning with the first prompt. The limit reduces
// the speed of prompts by at most a quarter. If this limit cannot be met, the scheduler reports the delay.
func TestPromptsDoNotStallStreams(t *testing.T) {
	for i := range machines {
		m := &machines[i]
		for _, streams := range []int{8, 64} {
			for _, noise := range []bool{false, true} {
				free := newRig(t, m, 0, noise)
				full := free.prefill(t, streams)
				g := newRig(t, m, m.stall, noise)
				speed := g.prefill(t, streams)
				t.Logf("%s, %d streams, noise %v: gap %.0f ms, %.0f tokens/s; without the limit %.0f ms, %.0f "+
					"tokens/s; kept %v", m.name, streams, noise, 1000*g.longest, speed, 1000*free.longest, full,
					g.s.Stall())
				if m.kept > 0 {
					if kept := g.s.Stall().Seconds(); kept < m.stall.Seconds() || g.longest > 1.2*kept {
						t.Errorf("%s, %d streams: gaps of %.0f ms, but Stall reports %.0f ms", m.name, streams,
							1000*g.longest, 1000*kept)
					}
					continue
				}
				if most := 1.2 * m.stall.Seconds(); g.longest > most || g.s.Stall() != 0 {
					t.Errorf("%s, %d streams, noise %v: a gap of %.0f ms, want at most %.0f ms; Stall reports %v",
						m.name, streams, noise, 1000*g.longest, 1000*most, g.s.Stall())
				}
				if speed < 0.75*full {
					t.Errorf("%s, %d streams, noise %v: %.0f prompt tokens/s, %.0f without the limit", m.name, streams,
						noise, speed, full)
				}
				if free.longest < 1.2*m.stall.Seconds() {
					t.Errorf("%s: without the limit the longest gap is only %.0f ms, so the test checks nothing",
						m.name,
						1000*free.longest)
				}
			}
		}
	}
}

// On a shared machine, where a batch may take half or twice the time of the previous batch, nearly all gaps are within
// 1.2 times the limit.
func TestStallsOnASharedMachine(t *testing.T) {
	for i := range machines[:2] {
		m := &machines[i]
		for _, streams := range []int{8, 64} {
			g := newRig(t, m, m.stall, false)
			g.spread = 0.25
			speed := g.prefill(t, streams)
			free := newRig(t, m, 0, false)
			free.spread = 0.25
			full := free.prefill(t, streams)
			t.Logf("%s, %d streams: %d of %d gaps over the limit, longest %.0f ms; %.0f tokens/s of %.0f", m.name,
				streams, g.over, g.waited, 1000*g.longest, speed, full)
			if g.over*100 > g.waited {
				t.Errorf("%s, %d streams: %d of %d gaps are longer than 1.2 times %v", m.name, streams, g.over,
					g.waited, m.stall)
			}
			if speed < full/2 {
				t.Errorf("%s, %d streams: %.0f prompt tokens/s, %.0f without the limit", m.name, streams, speed, full)
			}
		}
	}
}

// While nothing decodes, chunks are as large as the batch, and prompts of several requests share a batch. When the
// machine becomes ten times slower, chunks adapt within a few batches.
func TestChunksFollowTheMachine(t *testing.T) {
	slow := 1.0
	m := machine{"", func(d, dc, p, pc float64) float64 { return slow * (1e-3 + 2e-4*d + 5e-4*p + 1e-6*(dc+pc)) },
		0, 100 * time.Millisecond, 512, 0}
	g := newRig(t, &m, m.stall, false)
	g.add(t, "prompt", 2000)
	g.step(t)
	if g.prompts != 512 {
		t.Errorf("without decodes a chunk has %d tokens, want 512", g.prompts)
	}
	for g.s.Running() > 0 {
		g.step(t)
	}
	g.add(t, "stream", 16)
	for range 20 {
		g.step(t)
	}
	for range 2 {
		g.add(t, "prompt", 100_000)
	}
	chunk := func() int {
		before := g.prompts
		g.step(t)
		return g.prompts - before
	}
	for range 20 {
		chunk()
	}
	if n := chunk(); n < 120 || n > 200 || len(g.s.next.items) != 3 {
		t.Errorf("with a stream the batch has %d tokens of %d sequences; want about 170 tokens of 3 sequences", n,
			len(g.s.next.items))
	}
	slow = 10
	for range 16 {
		chunk()
	}
	if n := chunk(); n > SmallestChunk {
		t.Errorf("on a machine that takes 5 ms for a token, a chunk has %d tokens", n)
	}
}

// The time of a prompt is predicted after other prompts were computed, and grows with the number of keys that its
// tokens attend to.
func TestPromptTime(t *testing.T) {
	m := machine{"", func(d, dc, p, pc float64) float64 { return 1e-3 + 2e-4*d + 5e-4*p + 1e-4*pc }, 0,
		100 * time.Millisecond, 512, 0}
	g := newRig(t, &m, m.stall, false)
	if d := g.s.PromptTime(1000, 0); d != 0 {
		t.Errorf("PromptTime returned %v before any prompt was computed", d)
	}
	for i := range 20 {
		g.add(t, "prompt", 100+450*i)
		for g.s.Running()+g.s.Waiting() > 0 {
			g.step(t)
		}
	}
	for _, c := range []struct {
		tokens, cached int
		want           float64
	}{{0, 5000, 0}, {400, 0, 0.2}, {400, 4000, 0.36}, {4000, 4000, 4.4}} {
		if got := g.s.PromptTime(c.tokens, c.cached).Seconds(); math.Abs(got-c.want) > 0.15*c.want {
			t.Errorf("%d tokens after %d cached tokens: %.3f s, want %.3f s", c.tokens, c.cached, got, c.want)
		}
	}
}

// The time that decoding sequences have already waited is subtracted from the time for prompts of their next batch, and
// only of that batch.
func TestWaitedTimeIsNotGivenToPrompts(t *testing.T) {
	m := &machines[0]
	g := newRig(t, m, m.stall, false)
	for range 10 {
		g.add(t, "stream", 20)
	}
	g.add(t, "prompt", 100_000)
	batch := func(waited time.Duration) int {
		if waited > 0 {
			g.s.Waited(waited)
		}
		before := g.prompts
		g.step(t)
		return g.prompts - before
	}
	for range 40 {
		batch(0)
	}
	whole, half, again := batch(0), batch(m.stall/2), batch(0)
	if most := whole * 2 / 3; half > most || half < whole/5 || again < whole*9/10 {
		t.Errorf("%d prompt tokens in a batch with streams, %d after the streams have waited for half of the time, "+
			"then %d",
			whole, half, again)
	}
	if got := batch(10 * m.stall); got != SmallestChunk {
		t.Errorf("%d prompt tokens after the streams have waited for too long, want %d", got, SmallestChunk)
	}
}
