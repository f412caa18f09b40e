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
	"sparrow/internal/testmodel"
)

// These flags set the sizes of the sessions below; `make sessions` runs long sessions.
var (
	sessionTurns  = flag.Int("session-turns", 3, "turns of a session")
	sessionTokens = flag.Int("session-tokens", 600, "tokens that a session grows to")
	sessionModel  = flag.String("session-model", "", "run only this model: v32-tiny or v4-tiny")
)

// longContext is the context length, in tokens, of the checkpoints in these tests.
const longContext = 262144

// tinyLong writes a checkpoint of one of the smallest presets with a long context, and returns its folder.
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

// session simulates an agent: the prompt of every turn is the previous prompt, the answer, and the output of a tool.
type session struct {
	tenant  string
	rng     *rand.Rand
	history []int32
	known   int // tokens at the beginning of history that an earlier turn has computed

	computed, cached int             // sums over all turns: known tokens, and tokens found in the cache
	lost             []int           // known tokens that were computed again, for each turn
	first            []time.Duration // time to the first token of each turn
}

func newSession(seed uint64) *session {
	return &session{tenant: fmt.Sprint("agent-", seed), rng: rand.New(rand.NewPCG(seed, 48))}
}

// read appends random tokens to the history as the output of a tool.
func (s *session) read(tokens int) {
	for range tokens {
		s.history = append(s.history, 3+s.rng.Int32N(600))
	}
}

// turn sends one request. The row of an answer's last token is not known afterwards, because it is computed only as
// part of the next prompt.
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
			s.lost = append(s.lost, max(s.known-ev.Usage.CachedTokens, 0))
		}
	}
	s.known = len(s.history) - 1
	if s.known < asked {
		return fmt.Errorf("%s: no answer", s.tenant)
	}
	return nil
}

// run runs all turns of a session. It prints its progress from time to time, because long sessions take minutes.
func (s *session) run(t *testing.T, e *Engine, turns, tokens int) error {
	for i := range turns {
		s.read(max(1, (i+1)*tokens/turns-len(s.history)))
		if err := s.turn(e); err != nil {
			return err
		}
		if (i+1)%25 == 0 {
			t.Logf("%s: turn %d, %d tokens, %d of %d known ones from the cache, %.2f s to the first", s.tenant, i+1,
				len(s.history), s.cached, s.computed, s.first[i].Seconds())
		}
	}
	return nil
}

// report prints the share of tokens from the cache, and the times to the first token of each turn.
func (s *session) report(t *testing.T, what string) {
	var times strings.Builder
	for i, d := range s.first {
		if i%25 == 0 {
			fmt.Fprintf(&times, "\n  turns from %3d:", i+1)
		}
		fmt.Fprintf(&times, " %.2f", d.Seconds())
	}
	sorted := slices.Sorted(slices.Values(s.first))
	t.Logf("%s, %s: %.2f%% of %d known tokens from the cache; at most %d computed again in a turn;\n"+
		"  seconds to the first token, median %.2f:%s", what, s.tenant, 100*float64(s.cached)/float64(s.computed),
		s.computed, slices.Max(s.lost), sorted[len(sorted)/2].Seconds(), times.String())
}

// tierBytes returns the bytes that a tier needs per token: layers of bfloat16 rows and keys, or 1/256 of a page of 256
// tokens with the states of its window.
func tierBytes(dir string) int64 {
	const row = 2*576 + 132
	switch filepath.Base(dir) {
	case "v32":
		return row
	case "v32-tiny":
		return 3 * row
	}
	return 3030
}

// sessionModels runs a test with a model of each kind of cache. Short sessions need no long context, and use the
// smallest models.
func sessionModels(t *testing.T, run func(t *testing.T, dir string)) {
	notUnderRace(t)
	for _, name := range []string{"v32-tiny", "v4-tiny"} {
		if *sessionModel == "" || *sessionModel == name {
			t.Run(name, func(t *testing.T) {
				switch {
				case *sessionTokens > 4096:
					run(t, tinyLong(t, name))
				case name == "v32-tiny":
					run(t, testmodel.V32(t))
				default:
					run(t, testmodel.V4(t))
				}
			})
		}
	}
}

// Nearly all tokens that an earlier turn computed come from the cache; only tokens of the last, incomplete page are
// computed again.
func TestALongSession(t *testing.T) {
	sessionModels(t, func(t *testing.T, dir string) {
		e := start(t, Config{Model: dir, CacheTokens: 3 * *sessionTokens / 2})
		s := newSession(1)
		if err := s.run(t, e, *sessionTurns, *sessionTokens); err != nil {
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

// Eight concurrent sessions run with a cache for four of them and host memory for two; the pages of the others are in
// files.
func TestEightSessionsAtOnce(t *testing.T) {
	sessionModels(t, func(t *testing.T, dir string) {
		const sessions, room, host = 8, 4, 2
		turns, tokens := *sessionTurns, *sessionTokens
		// The wait for a tier is unlimited, so that the speed of the disk does not decide which tokens are computed
		// again.
		e := start(t, Config{Model: dir, CacheTokens: room * tokens, Tiers: tier.Options{Wait: time.Hour,
			HostBytes: int64(host*tokens) * tierBytes(dir), DiskDir: t.TempDir(), DiskBytes: 16 << 30}})
		done := make(chan error)
		var list []*session
		for i := range sessions {
			s := newSession(uint64(i + 1))
			list = append(list, s)
			go func() { done <- s.run(t, e, turns, tokens) }()
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
		back := int64(0)
		for _, c := range e.Stats().Tiers.Tiers {
			t.Logf("%s: %d pages of %d bytes stored, %d came back", c.Tier, c.Stored, c.Bytes/max(c.Pages, 1), c.Hits)
			back += c.Hits
		}
		if back == 0 {
			t.Error("no page came back from a tier")
		}
		lost := computed - cached
		if tokens < 20_000 {
			lost -= sessions * turns * e.Info().PageTokens // each turn may lose one incomplete page
		}
		if 20*lost > computed {
			t.Errorf("%d of %d tokens were computed again, more than 5%%", computed-cached, computed)
		}
	})
}

// After an edit in the middle of a conversation only the tokens after the edit are computed again, and the trace states
// where the cached prefix ended.
func TestAnEditInTheMiddleOfASession(t *testing.T) {
	sessionModels(t, func(t *testing.T, dir string) {
		e := start(t, Config{Model: dir, CacheTokens: 4096})
		s := newSession(1)
		s.read(900)
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
			t.Errorf("%d tokens came from the cache, want all full pages before the edit at token %d; a page has %d "+
				"tokens", n, at, page)
		}
		m := out.Trace.Match
		if m.At > at || m.At < at-page {
			t.Errorf("the trace reports that the prefix ended at token %d: %s", m.At, m.Stop)
		}
		t.Logf("the prefix ended at token %d: %s", m.At, m.Stop)
	})
}
