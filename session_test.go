package sparrow

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/model/synth"
)

// Sizes of the sessions below. Those of a whole day are 150 turns up to 200,000 tokens; they take long on two cores.
var (
	sessionTurns  = flag.Int("session-turns", 6, "turns of a session")
	sessionTokens = flag.Int("session-tokens", 2400, "tokens that a session grows to")
	sessionModel  = flag.String("session-model", "", "only this one: v32-tiny or v4-tiny")
)

// longContext is the context of the checkpoints that sessions run on.
const longContext = 262144

// tinyLong writes one of the smallest checkpoints with a long context.
func tinyLong(t *testing.T, preset string) string {
	t.Helper()
	text, err := synth.PresetConfig(preset)
	if err != nil {
		t.Fatal(err)
	}
	const before = `"max_position_embeddings": 16384`
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s has another context", preset)
	}
	text = []byte(strings.Replace(string(text), before, fmt.Sprintf(`"max_position_embeddings": %d`, longContext), 1))
	c, err := synth.New(preset, text, synth.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), preset)
	if err := c.Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// session is an agent at work: every turn its prompt is the one before, the answer, and what a tool returned.
type session struct {
	tenant  string
	rng     *rand.Rand
	history []int32
	known   int // tokens at the beginning of history that an earlier turn has computed

	computed, cached int             // sums over all turns: of known, and of what came from the cache
	first            []time.Duration // time to the first token of each turn
}

func newSession(seed uint64) *session {
	return &session{tenant: fmt.Sprint("agent-", seed), rng: rand.New(rand.NewPCG(seed, 48))}
}

// read lets a tool return something.
func (s *session) read(tokens int) {
	for range tokens {
		s.history = append(s.history, 3+s.rng.Int32N(600))
	}
}

// turn asks once. The row of an answer's last token is computed only when it is part of a prompt.
func (s *session) turn(e *Engine) error {
	began, answered := time.Now(), false
	st, err := e.Stream(context.Background(), Request{Tokens: slices.Clone(s.history), Sampling: greedy(),
		MaxTokens: 12, IgnoreEOS: true, Tenant: s.tenant})
	if err != nil {
		return err
	}
	asked := len(s.history)
	for ev := range st.All() {
		if ev.Err != nil {
			return ev.Err
		}
		for _, token := range ev.Tokens {
			if !answered {
				answered = true
				s.first = append(s.first, time.Since(began))
			}
			s.history = append(s.history, token.ID)
		}
		if ev.Usage != nil {
			s.computed += s.known
			s.cached += min(ev.Usage.CachedTokens, s.known)
		}
	}
	s.known = len(s.history) - 1
	if s.known < asked {
		return fmt.Errorf("%s: no answer", s.tenant)
	}
	return nil
}

// run is a whole session.
func (s *session) run(e *Engine, turns, tokens int) error {
	for i := range turns {
		s.read(max(1, (i+1)*tokens/turns-len(s.history)))
		if err := s.turn(e); err != nil {
			return err
		}
	}
	return nil
}

// report prints the share of tokens from the cache, and times to the first token: of the first turn, and of both
// halves.
func (s *session) report(t *testing.T, what string) {
	n := len(s.first)
	sorted := slices.Sorted(slices.Values(s.first[1:]))
	t.Logf("%s, %s: %.2f%% of %d tokens from the cache; first token: turn 1 %v, then median %v, last %v, most %v", what,
		s.tenant, 100*float64(s.cached)/float64(s.computed), s.computed, s.first[0].Round(time.Millisecond),
		sorted[len(sorted)/2].Round(time.Millisecond), s.first[n-1].Round(time.Millisecond),
		sorted[len(sorted)-1].Round(time.Millisecond))
}

func sessionModels(t *testing.T, run func(t *testing.T, dir string)) {
	notUnderRace(t)
	for _, name := range []string{"v32-tiny", "v4-tiny"} {
		if *sessionModel == "" || *sessionModel == name {
			t.Run(name, func(t *testing.T) { run(t, tinyLong(t, name)) })
		}
	}
}

// Of the tokens that an earlier turn has computed, nearly all come from the cache: what is lost is the end of a page.
func TestALongSession(t *testing.T) {
	sessionModels(t, func(t *testing.T, dir string) {
		e := start(t, Config{Model: dir, CacheTokens: 3 * *sessionTokens / 2})
		s := newSession(1)
		if err := s.run(e, *sessionTurns, *sessionTokens); err != nil {
			t.Fatal(err)
		}
		s.report(t, "alone")
		lost := s.computed - s.cached
		if page := e.Info().PageTokens; lost > *sessionTurns*page {
			t.Errorf("%d of %d tokens were computed again, more than a page of %d for each of %d turns", lost,
				s.computed, page, *sessionTurns)
		}
		if *sessionTokens >= 100_000 && 100*lost > s.computed {
			t.Errorf("%d of %d tokens were computed again, more than 1%%", lost, s.computed)
		}
	})
}

// Eight sessions at once with a cache for four: the rest is in host memory and files.
func TestEightSessionsAtOnce(t *testing.T) {
	sessionModels(t, func(t *testing.T, dir string) {
		const sessions = 8
		turns, tokens := *sessionTurns*2/3, *sessionTokens/2
		e := start(t, Config{Model: dir, CacheTokens: 4 * tokens, Tiers: tier.Options{
			HostBytes: int64(tokens) * 2 * 8192, DiskDir: t.TempDir(), DiskBytes: 8 << 30, Wait: time.Hour}})
		done := make(chan error)
		var list []*session
		for i := range sessions {
			s := newSession(uint64(i + 1))
			list = append(list, s)
			go func() { done <- s.run(e, turns, tokens) }()
		}
		for range sessions {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			return
		}
		computed, cached := 0, 0
		for _, s := range list {
			s.report(t, "eight at once")
			computed, cached = computed+s.computed, cached+s.cached
		}
		t.Logf("together %.2f%%", 100*float64(cached)/float64(computed))
		slack := sessions * turns * e.Info().PageTokens // the end of a page for each turn
		if lost := computed - cached; 20*(lost-slack) > computed {
			t.Errorf("%d of %d tokens were computed again, more than 5%% and the ends of pages", lost, computed)
		}
	})
}

// An edit in the middle of a conversation recomputes only what follows it, and the trace states where the prefix ended.
func TestAnEditInTheMiddleOfASession(t *testing.T) {
	sessionModels(t, func(t *testing.T, dir string) {
		e := start(t, Config{Model: dir, CacheTokens: 4096})
		s := newSession(1)
		s.read(1200)
		if err := s.turn(e); err != nil {
			t.Fatal(err)
		}
		const at = 700
		s.history[at] = 3 + (s.history[at]-2)%600
		out, err := e.Generate(context.Background(), Request{Tokens: s.history, Sampling: greedy(), MaxTokens: 1,
			Tenant: s.tenant, Trace: true})
		if err != nil {
			t.Fatal(err)
		}
		page := e.Info().PageTokens
		if n := out.Usage.CachedTokens; n > at || n < at-2*page {
			t.Errorf("%d tokens came from the cache, and the edit is at %d; a page has %d", n, at, page)
		}
		m := out.Trace.Match
		if m.At > at || m.At < at-page {
			t.Errorf("the trace says that the prefix ended at %d: %s", m.At, m.Stop)
		}
		t.Logf("the prefix ended at %d: %s", m.At, m.Stop)
	})
}
