package engine

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/sample"
)

// Invariants of this file: the log probabilities of given tokens are the log-softmax of the rows of logits before these
// tokens. They are bitwise equal alone or in a batch, in chunks or whole, with and without a cached prefix. Rows of a
// cached prefix are computed only if their logits are requested.

// scoresOf runs a request and returns the scores of each choice.
func scoresOf(t testing.TB, j *Job) [][]sample.Scored {
	t.Helper()
	out := make([][]sample.Scored, j.Choices())
	for ev := range j.events() {
		if ev.Err != nil {
			t.Fatal(ev.Err)
		}
		out[ev.Choice] = append(out[ev.Choice], ev.Scores...)
	}
	return out
}

func scoreOnly(prompt []int32, from int) Request {
	return Request{Prompt: prompt, Sampling: greedy(), Score: &Score{From: from, Top: 3, Only: true}}
}

func TestScoresAreTheLogSoftmaxOfTheRowsBefore(t *testing.T) {
	prompt := tokens(1, 150)
	want := []float64{0}
	e := start(t, testmodel.V32(t), Config{}, after(func(works []step.Work, res step.Result) {
		for i := range works[0].Logits {
			row, sum := res.Row(i), 0.0
			at := works[0].Cached + len(works[0].Tokens) - works[0].Logits + i + 1
			if at == len(prompt) {
				return
			}
			for _, v := range row {
				sum += math.Exp(float64(v))
			}
			want = append(want, float64(row[prompt[at]])-math.Log(sum))
		}
	}))
	got := scoresOf(t, open(t, e, scoreOnly(prompt, 0)))[0]
	if len(got) != len(prompt) || len(want) != len(prompt) {
		t.Fatalf("%d tokens have scores and %d rows have logits, want %d", len(got), len(want), len(prompt))
	}
	for i, s := range got {
		if s.Token != prompt[i] || math.Abs(s.Logprob-want[i]) > 1e-6 || (i == 0) != (s.Rank == 0) {
			t.Fatalf("token %d: score %+v, want token %d with log probability %v", i, s, prompt[i], want[i])
		}
		if i > 0 && (len(s.Top) != 3 || s.Rank <= 3 && s.Top[s.Rank-1].Logprob != s.Logprob ||
			s.Rank > 3 && s.Top[2].Logprob < s.Logprob) {
			t.Fatalf("token %d: rank %d, log probability %v, alternatives %v", i, s.Rank, s.Logprob, s.Top)
		}
	}
	if st := e.Stats(); st.ScoredTokens != int64(len(prompt)) || st.OutputTokens != 0 || st.Finished != 1 {
		t.Errorf("%d tokens scored, %d generated, %d requests finished", st.ScoredTokens, st.OutputTokens, st.Finished)
	}
}

func TestScoresDoNotDependOnHowTheyAreComputed(t *testing.T) {
	notUnderRace(t)
	for name, dir := range map[string]string{"V3.2": testmodel.V32(t), "V4": testmodel.V4(t)} {
		if standIn != nil && name == "V4" {
			continue // a GPU does not support all operations of this model
		}
		t.Run(name, func(t *testing.T) {
			prompt := tokens(1, 700)
			computed := 0
			e := start(t, dir, Config{}, counted(&computed), checked(t))
			whole := scoresOf(t, open(t, e, scoreOnly(prompt, 0)))[0]
			if computed != len(prompt) || len(whole) != len(prompt) {
				t.Fatalf("%d tokens computed, %d scored", computed, len(whole))
			}
			same := func(what string, got, want []sample.Scored) {
				t.Helper()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: the scores differ", what)
				}
			}
			computed = 0
			same("cached", scoresOf(t, open(t, e, scoreOnly(prompt, 650)))[0], whole[650:])
			if page := e.info.PageTokens; computed != len(prompt)-649/page*page {
				t.Errorf("scoring the last 50 tokens of a cached prompt computed %d rows", computed)
			}
			same("all again", scoresOf(t, open(t, e, scoreOnly(prompt, 0)))[0], whole)

			small := start(t, dir, Config{StepTokens: 48}, checked(t))
			same("in chunks", scoresOf(t, open(t, small, scoreOnly(prompt, 0)))[0], whole)

			jobs := []*Job{open(t, small, scoreOnly(prompt, 0)), open(t, small, scoreOnly(tokens(2, 300), 0)),
				open(t, small, Request{Prompt: tokens(3, 90), Sampling: greedy(), MaxTokens: 8}),
				open(t, small, scoreOnly(prompt, 600))}
			same("in a batch", scoresOf(t, jobs[0])[0], whole)
			same("the end of it in a batch", scoresOf(t, jobs[3])[0], whole[600:])

			computed = 0
			all := scoresOf(t, open(t, e, Request{Prompt: prompt[:640], Sampling: greedy(), Score: &Score{From: 640,
				Top: 3, Continuations: [][]int32{prompt[640:], tokens(4, 5), prompt[640:660]}}}))
			same("a continuation", all[0], whole[640:])
			same("a shorter one", all[2], whole[640:660])
			if len(all[1]) != 5 {
				t.Errorf("%d scores of a continuation of 5 tokens", len(all[1]))
			}
		})
	}
}

// A request with scores generates the same tokens as without scores. In deterministic mode scoring a generated token
// gives the log probability that it had when it was generated.
func TestScoredPromptsGenerateTheSame(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{Policy: deterministic("")})
	r := Request{Prompt: tokens(1, 200), Sampling: greedy(), MaxTokens: 20, IgnoreEOS: true}
	r.Sampling.Logprobs = true
	plain := generate(t, e, r)
	var logprobs []float64
	for ev := range open(t, e, r).events() {
		if ev.Token >= 0 {
			logprobs = append(logprobs, ev.Logprob)
		}
	}
	r.Score = &Score{}
	sameTokens(t, "with scores", generate(t, e, r).Choices[0], plain.Choices[0])
	given := slices.Concat(r.Prompt, plain.Choices[0].Tokens)
	for i, s := range scoresOf(t, open(t, e, scoreOnly(given, 200)))[0] {
		if s.Logprob != logprobs[i] || s.Rank != 1 {
			t.Errorf("token %d: log probability %v when generated, %v when scored, rank %d", i, logprobs[i], s.Logprob,
				s.Rank)
		}
	}
}

// A request's own parameters stay as the caller set them.
func TestTheCallersScoreStays(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	s := Score{From: 1, Top: 2, Continuations: [][]int32{{1}, {2, 3}}}
	want := Score{From: 1, Top: 2, Continuations: [][]int32{{1}, {2, 3}}}
	r := Request{Prompt: tokens(1, 5), Sampling: greedy(), Score: &s}
	if j := open(t, e, r); j.Choices() != 2 || !j.choices[1].scoresOnly() {
		t.Errorf("%d choices", j.Choices())
	}
	if !reflect.DeepEqual(s, want) || r.Sampling.N != 1 {
		t.Errorf("the caller's parameters are %+v for %d choices, were %+v", s, r.Sampling.N, want)
	}
}

func TestScoresThatCannotBe(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{ContextTokens: 256})
	for name, c := range map[string]struct {
		score  Score
		prompt int
		field  string
	}{
		"too many alternatives":   {Score{Top: 21}, 5, "prompt_logprobs"},
		"from after the prompt":   {Score{From: 6}, 5, "score"},
		"no continuation":         {Score{Continuations: [][]int32{}}, 5, "continuations"},
		"an empty continuation":   {Score{Continuations: [][]int32{{1}, {}}}, 5, "continuations"},
		"an id past the end":      {Score{Continuations: [][]int32{{1 << 30}}}, 5, "continuations"},
		"longer than the context": {Score{Only: true}, 257, "prompt"},
	} {
		_, err := e.Submit(Request{Prompt: tokens(1, c.prompt), Sampling: greedy(), Score: &c.score})
		var field *RequestError
		if !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := scoresOf(t, open(t, e, scoreOnly(tokens(1, 256), 0)))[0]; len(got) != 256 {
		t.Errorf("a prompt that fills the context has %d scores", len(got))
	}
	if got := scoresOf(t, open(t, e, scoreOnly(tokens(1, 9), 1)))[0]; len(got) != 8 || got[0].Token != tokens(1, 9)[1] {
		t.Errorf("a prompt scored from its second token on: %v", got)
	}
	if got := scoresOf(t, open(t, e, scoreOnly(tokens(1, 1), 0)))[0]; len(got) != 1 || got[0].Rank != 0 {
		t.Errorf("a prompt of one token: %v", got)
	}
}
