package sparrow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/plan"
	"sparrow/record"
)

// everyRow returns a Record of all data of every row.
func everyRow() *Record {
	return &Record{Selections: true, Scores: true, Experts: true, Tokens: RecordAll}
}

// recorded runs a request and returns its only answer.
func recorded(t *testing.T, e *Engine, r Request) Answer {
	t.Helper()
	got, err := e.Generate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return got.Choices[0]
}

// sameRows checks that two lists of recorded rows are bitwise equal.
func sameRows(t *testing.T, what string, got, want []record.Row) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d recorded rows, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			g, _ := json.Marshal(&record.Rows{Rows: got[i : i+1]})
			w, _ := json.Marshal(&record.Rows{Rows: want[i : i+1]})
			t.Errorf("%s: row %d is\n%.400s\nwant\n%.400s", what, i, g, w)
			return
		}
	}
}

func sameAnswer(t *testing.T, what string, got, want Answer) {
	t.Helper()
	if !reflect.DeepEqual(got.Tokens, want.Tokens) || !reflect.DeepEqual(got.Scored, want.Scored) {
		t.Errorf("%s: tokens or log probabilities differ", what)
	}
}

// The recorded choices of a row do not depend on the chunks of the prompt, on the rest of the batch, on drafts, or on
// which rows and data are recorded. Without recording the answers are the same.
func TestRecordedRowsDependOnTheirSequenceAlone(t *testing.T) {
	notUnderRace(t)
	for _, dir := range []string{tinyFP8, "testdata/oracle/glm_moe_dsa-1", testmodel.V4(t)} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c := Config{Model: dir, CacheTokens: 4096, NoReuse: true, Policy: plan.Policy{Deterministic: true}}
			whole := start(t, c)
			ask := Request{Tokens: tokens(3, 300), MaxTokens: 6, Sampling: greedy(), Record: everyRow()}
			ask.Sampling.Logprobs = true
			want := recorded(t, whole, ask)
			if n := len(want.Recorded.Rows); n != 300+6-1 || want.Recorded.NotComputed != nil {
				t.Fatalf("%d rows, %v not computed", n, want.Recorded.NotComputed)
			}
			for i, r := range want.Recorded.Rows {
				if r.Position != i {
					t.Fatalf("row %d has position %d", i, r.Position)
				}
			}
			if last := want.Recorded.Rows[299]; !slices.ContainsFunc(last.Layers, func(l record.Layer) bool {
				return len(l.Selected) > 0 && len(l.Scores) == 4*record.CountPositions(l.Selected)
			}) || len(last.Experts) == 0 {
				t.Fatalf("the last row of the prompt: %+v", last)
			}
			plain := ask
			plain.Record = nil
			sameAnswer(t, "without recording", recorded(t, whole, plain), want)

			c.StepTokens = 32
			sameRows(t, "in chunks", recorded(t, start(t, c), ask).Recorded.Rows, want.Recorded.Rows)

			// Other requests run at the same time: prompts and decodes, some of which record other rows.
			var others sync.WaitGroup
			for i := range 3 {
				r := Request{Tokens: tokens(20+i, 30+60*i), MaxTokens: 10, Sampling: seeded(int64(i))}
				if i%2 == 0 {
					r.Record = &Record{Experts: true}
				}
				others.Go(func() {
					if _, err := whole.Generate(context.Background(), r); err != nil {
						t.Error(err)
					}
				})
			}
			among := recorded(t, whole, ask)
			others.Wait()
			sameRows(t, "among others", among.Recorded.Rows, want.Recorded.Rows)
			sameAnswer(t, "among others", among, want)

			output := ask
			output.Record = &Record{Selections: true, Scores: true, Experts: true}
			sameRows(t, "rows of the output", recorded(t, whole, output).Recorded.Rows, want.Recorded.Rows[299:])
			output.Record.Tokens, output.Record.From, output.Record.To = RecordRange, 290, 303
			sameRows(t, "rows 290 to 303", recorded(t, whole, output).Recorded.Rows, want.Recorded.Rows[290:303])
		})
	}
}

// Rows of rejected drafts are not recorded, and rows of accepted drafts equal those of plain decoding.
func TestRecordedRowsOfDrafts(t *testing.T) {
	notUnderRace(t)
	ask := Request{Prompt: strings.Repeat("the red door is open and the blue door is shut. ", 30), MaxTokens: 24,
		Sampling: greedy(), Record: &Record{Selections: true, Experts: true}}
	// Verified rows are computed with the same arithmetic as decoded rows.
	plain := recorded(t, start(t, Config{NoReuse: true, Draft: spec.Off()}), ask)
	three, err := spec.Fixed(3)
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, Config{NoReuse: true, Draft: three})
	drafted := recorded(t, e, ask)
	if s := e.Stats(); s.Accepted == 0 || s.Drafted == s.Accepted {
		t.Fatalf("%d drafts, %d accepted: want some of both", s.Drafted, s.Accepted)
	}
	sameRows(t, "drafted", drafted.Recorded.Rows, plain.Recorded.Rows)
}

// Rows that come from the prefix cache are reported as missing, and the records of other rows are unchanged.
func TestCachedRowsAreNotRecorded(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{Model: tinyFP8, CacheTokens: 4096})
	ask := Request{Tokens: tokens(5, 300), MaxTokens: 5, Sampling: greedy(), Record: everyRow()}
	first, again := recorded(t, e, ask), recorded(t, e, ask)
	want := []record.Range{{0, 256}} // the cache holds whole pages
	if !slices.Equal(again.Recorded.NotComputed, want) {
		t.Fatalf("not computed: %v, want %v", again.Recorded.NotComputed, want)
	}
	sameRows(t, "rows after a cached prefix", again.Recorded.Rows, first.Recorded.Rows[256:])
}

// A preempted sequence is computed again, and each of its rows is recorded once.
func TestPreemptedRowsAreRecordedOnce(t *testing.T) {
	notUnderRace(t)
	c := Config{Model: tinyFP8, CacheTokens: 256, NoReuse: true, Policy: plan.Policy{Deterministic: true}}
	small := start(t, c)
	c.CacheTokens = 4096
	large := start(t, c)
	ask := func(i int) Request {
		return Request{Tokens: tokens(i, 60), MaxTokens: 90, Sampling: greedy(), Record: everyRow()}
	}
	got := make([]Answer, 3)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			r, err := small.Generate(context.Background(), ask(i))
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = r.Choices[0]
		})
	}
	all.Wait()
	if small.Stats().Preempted == 0 {
		t.Fatal("no sequence was preempted")
	}
	for i := range got {
		sameRows(t, fmt.Sprintf("request %d", i), got[i].Recorded.Rows, recorded(t, large, ask(i)).Recorded.Rows)
	}
}

// Replaying recorded choices gives answers and log probabilities bitwise equal to the recorded run; replaying other
// choices changes them. This holds for selections and experts, alone and together, for prompts and answers, in chunks,
// and with other requests.
func TestReplay(t *testing.T) {
	notUnderRace(t)
	for _, dir := range []string{"testdata/oracle/deepseek_v32-1", "testdata/oracle/glm_moe_dsa-1",
		testmodel.V4(t)} {
		t.Run(dir, func(t *testing.T) {
			e := start(t, Config{Model: dir, CacheTokens: 4096})
			ask := Request{Tokens: tokens(7, 300), MaxTokens: 5, Sampling: greedy(), Record: everyRow()}
			ask.Sampling.Logprobs, ask.Sampling.TopLogprobs = true, 5
			want := recorded(t, e, ask)
			rows := wired(t, want.Recorded.Rows)
			again := ask
			again.Replay = rows
			got := recorded(t, e, again)
			sameAnswer(t, "replayed", got, want)
			if got.Recorded.NotComputed != nil {
				t.Errorf("a replayed request took %v from the cache", got.Recorded.NotComputed)
			}
			// Only some rows are replayed; the engine chooses for the other rows. The answer is the same.
			again.Replay = rows[100:303]
			sameAnswer(t, "some rows replayed", recorded(t, e, again), want)
			for _, x := range []struct {
				name      string
				selects   bool
				experts   bool
				different bool
			}{{"selections", true, false, true}, {"experts", false, true, true}} {
				again.Replay = other(rows, x.selects, x.experts)
				got := recorded(t, e, again)
				if reflect.DeepEqual(got.Tokens, want.Tokens) {
					t.Errorf("replaying other %s did not change the answer", x.name)
				}
				// The newly recorded choices equal the replayed choices.
				for i := range got.Recorded.Rows[:300] {
					for l := range rows[i].Layers {
						g, w := got.Recorded.Rows[i].Layers[l].Selected, again.Replay[i].Layers[l].Selected
						if x.selects && !bytes.Equal(g, w) {
							t.Fatalf("row %d layer %d: recorded selection %v, replayed selection %v", i, l, g, w)
						}
					}
					for l := range rows[i].Experts {
						g, w := got.Recorded.Rows[i].Experts[l], again.Replay[i].Experts[l]
						if x.experts && !reflect.DeepEqual(g, w) {
							t.Fatalf("row %d: recorded experts %v, replayed experts %v", i, g, w)
						}
					}
				}
			}
			// No other request reuses pages that were computed with replayed choices.
			ask.Record = nil
			sameAnswer(t, "after replays", recorded(t, e, ask), want)
		})
	}
}

// wired encodes rows as for HTTP and returns the decoded rows.
func wired(t *testing.T, rows []record.Row) []record.Row {
	t.Helper()
	text, err := json.Marshal(&record.Rows{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	var back record.Rows
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return back.Rows
}

// other returns rows that select the first keys instead of the recorded keys, or whose expert weights are in reverse
// order.
func other(rows []record.Row, selects, experts bool) []record.Row {
	out := slices.Clone(rows)
	for i := range out {
		out[i].Layers, out[i].Experts = slices.Clone(out[i].Layers), slices.Clone(out[i].Experts)
		for j := range out[i].Layers {
			if l := &out[i].Layers[j]; selects && len(l.Selected) > 0 {
				list := make([]int32, record.CountPositions(l.Selected))
				for p := range list {
					list[p] = int32(p)
				}
				l.Selected, l.Scores = record.AppendPositions(nil, list, max(l.Group, 1)), nil
			}
		}
		for j := range out[i].Experts {
			if x := &out[i].Experts[j]; experts {
				w := x.Weights
				x.Weights = nil
				for at := len(w) - 4; at >= 0; at -= 4 {
					x.Weights = append(x.Weights, w[at:at+4]...)
				}
			}
		}
	}
	return out
}

// Trainers replay choices for prompts that are only scored: the log probabilities equal those of the same rows with the
// same choices.
func TestReplayedScores(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{Model: "testdata/oracle/deepseek_v32-1", CacheTokens: 4096})
	ask := Request{Tokens: tokens(9, 150), Sampling: greedy(), Record: everyRow(), Score: &Score{Only: true}}
	want := recorded(t, e, ask)
	if len(want.Scored) != 150 || len(want.Recorded.Rows) != 150 {
		t.Fatalf("%d scores, %d rows", len(want.Scored), len(want.Recorded.Rows))
	}
	ask.Replay = want.Recorded.Rows
	sameAnswer(t, "replayed", recorded(t, e, ask), want)
	ask.Replay = other(want.Recorded.Rows, false, true)
	if reflect.DeepEqual(recorded(t, e, ask).Scored, want.Scored) {
		t.Error("replaying other experts did not change the scores")
	}
}

// The records of all running requests together are limited, and their memory is released when the requests end.
func TestRecordsInFlight(t *testing.T) {
	e := start(t, Config{Model: tinyFP8, CacheTokens: 1024, RecordBytes: 1 << 18})
	ask := Request{Tokens: tokens(2, 100), MaxTokens: 300, Sampling: greedy(), IgnoreEOS: true,
		Record: &Record{Selections: true}}
	var running []*Stream
	var err error
	for err == nil && len(running) < 20 {
		var s *Stream
		if s, err = e.Stream(context.Background(), ask); err == nil {
			running = append(running, s)
		}
	}
	if !errors.Is(err, ErrQueueFull) || len(running) < 4 {
		t.Errorf("with %d running requests: error %v", len(running), err)
	}
	for _, s := range running {
		s.Close()
		for range s.All() {
		}
	}
	ask.MaxTokens = 3
	recorded(t, e, ask)
}

// If prompt rows and decoded rows are bitwise equal, a prompt that contains the answer gives the log probabilities of
// that answer.
func TestReplayedRollout(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{Model: "testdata/oracle/glm_moe_dsa-1", CacheTokens: 4096,
		Policy: plan.Policy{Deterministic: true}})
	ask := Request{Tokens: tokens(11, 150), MaxTokens: 8, Sampling: greedy(), Record: everyRow()}
	ask.Sampling.Logprobs = true
	rollout := recorded(t, e, ask)
	all := slices.Clone(ask.Tokens)
	for _, x := range rollout.Tokens {
		all = append(all, x.ID)
	}
	scored := recorded(t, e, Request{Tokens: all, Sampling: greedy(), Score: &Score{From: 150, Only: true},
		Record: everyRow(), Replay: rollout.Recorded.Rows})
	if len(scored.Scored) != 8 {
		t.Fatalf("%d tokens were scored", len(scored.Scored))
	}
	for i, x := range scored.Scored {
		if x.ID != rollout.Tokens[i].ID || x.Logprob != rollout.Tokens[i].Logprob {
			t.Errorf("token %d has log probability %v, want %v from the rollout", i, x.Logprob,
				rollout.Tokens[i].Logprob)
		}
	}
	// The rollout did not compute the row of its last token.
	if n := len(rollout.Recorded.Rows); n != 157 || len(scored.Recorded.Rows) != 158 {
		t.Fatalf("%d rollout rows and %d scored rows", n, len(scored.Recorded.Rows))
	}
	for i, want := range rollout.Recorded.Rows {
		got := scored.Recorded.Rows[i]
		for l := range want.Layers {
			want.Layers[l].Scores, got.Layers[l].Scores = nil, nil // scores are not replayed
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("row %d did not use the replayed choices", i)
		}
	}
}

// Records and replays that are not possible are refused with a reason before anything runs.
func TestRecordRefusals(t *testing.T) {
	e := start(t, Config{Model: tinyFP8, CacheTokens: 1024, RecordBytes: 1 << 20})
	rows := recorded(t, e, Request{Tokens: tokens(2, 200), MaxTokens: 2, Sampling: greedy(),
		Record: &Record{Selections: true, Experts: true, Tokens: RecordRange, From: 150, To: 200}}).Recorded.Rows
	change := func(f func(r []record.Row)) []record.Row {
		out := other(rows, false, false)
		f(out)
		return out
	}
	far := record.AppendPositions(nil, []int32{3, 5000}, 1)
	for _, c := range []struct {
		name string
		r    Request
		want string
	}{
		{"nothing", Request{Record: &Record{}}, "selects nothing: set selections or experts"},
		{"a layer", Request{Record: &Record{Selections: true, Layers: []int{77}}}, "has layer 77"},
		{"a range", Request{Record: &Record{Selections: true, Tokens: RecordRange, From: 5, To: 5}}, "[5, 5]"},
		{"bytes", Request{Record: everyRow(), MaxTokens: 800}, "1.0 MiB are allowed"},
		{"no rows", Request{Replay: []record.Row{}}, "no rows"},
		{"a gap", Request{Replay: append(slices.Clone(rows[:3]), rows[5:]...)}, "want position 153"},
		{"positions", Request{Replay: change(func(r []record.Row) {
			r[1].Layers[0] = record.Layer{Keys: 152, Selected: far}
		})}, "layer 0: position 5000 is selected, but only positions below 152 exist"},
		{"keys", Request{Replay: change(func(r []record.Row) { r[1].Layers[0].Keys = 9 })}, "keys is 9"},
		{"a missing layer", Request{Replay: change(func(r []record.Row) { r[1].Layers = r[1].Layers[1:] })},
			"the selection of layer 0 is missing"},
		{"cut", Request{Replay: change(func(r []record.Row) { r[1].Layers[0].Selected = []byte{0x80} })}, "LEB128"},
		{"an expert", Request{Replay: change(func(r []record.Row) { r[0].Experts[0].IDs = []byte{255, 255} })},
			"ids have 2 bytes and weights 8"},
		{"weights", Request{Replay: change(func(r []record.Row) {
			r[0].Experts[0].Weights = record.AppendFloats(nil, slices.Repeat([]float32{float32(math.NaN())},
				len(r[0].Experts[0].Weights)/4))
		})}, "NaN"},
		{"the context", Request{Replay: change(func(r []record.Row) {
			for i := range r {
				r[i].Position += 1000
				r[i].Layers = nil
			}
		})}, "the context holds"},
	} {
		c.r.Tokens, c.r.Sampling = tokens(2, 200), greedy()
		_, err := e.Generate(context.Background(), c.r)
		var refused *RequestError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// Without max_tokens the rest of the context counts as the answer; the refusal names the largest limit that fits.
	open := Request{Tokens: tokens(2, 200), Sampling: greedy(), Record: &Record{Selections: true, Scores: true}}
	_, err := e.Generate(context.Background(), open)
	var fits int
	if _, told, ok := strings.Cut(fmt.Sprint(err), "max_tokens of at most "); ok {
		fmt.Sscanf(told, "%d", &fits)
	}
	if fits < 1 || !strings.Contains(err.Error(), "max_tokens is not set, so the estimate is for an answer of ") {
		t.Errorf("without max_tokens: %v", err)
	}
	for _, n := range []int{fits, fits + 1} {
		open.MaxTokens = n
		s, err := e.Stream(context.Background(), open)
		if (err == nil) != (n == fits) {
			t.Errorf("max_tokens %d: %v", n, err)
		}
		if err == nil {
			s.Close()
			for range s.All() {
			}
		}
	}
	off := start(t, Config{Model: tinyFP8, CacheTokens: 1024, RecordBytes: -1})
	if _, err := off.Generate(context.Background(), Request{Tokens: tokens(2, 9), Record: everyRow()}); err == nil ||
		!strings.Contains(err.Error(), "--record-bytes") {
		t.Errorf("with recording off: %v", err)
	}
	if _, err := off.Generate(context.Background(), Request{Tokens: tokens(2, 9), MaxTokens: 1}); err != nil {
		t.Errorf("a request that records nothing, with recording off: %v", err)
	}
	// A recorded row that attends to every key is refused at a position with more keys than a selection holds.
	long := recorded(t, e, Request{Tokens: tokens(2, 200), MaxTokens: 2, Sampling: greedy(),
		Record: &Record{Selections: true, Tokens: RecordRange, From: 190, To: 200}}).Recorded.Rows
	for i := range long[0].Layers {
		long[0].Layers[i].All, long[0].Layers[i].Selected = long[0].Layers[i].As == nil, nil
	}
	if _, err := e.Generate(context.Background(), Request{Tokens: tokens(2, 200), MaxTokens: 2, Sampling: greedy(),
		Replay: long}); err == nil || !strings.Contains(err.Error(), "a row attends to at most 128") {
		t.Errorf("all keys: %v", err)
	}
}
