package eval

import (
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	"sparrow/plan"
)

// Choices are scored and not generated. The choice with the highest probability is nearly always right, and the choice
// with the highest probability per character always is.
func TestChoices(t *testing.T) {
	task, err := LoadFile(os.DirFS("testdata"), "choice.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, plan.Policy{})
	rep, err := Run(t.Context(), NewEngine(e), []Task{task}, Options{Failures: 5, Limit: 30})
	if err != nil {
		t.Fatal(err)
	}
	if n := rep.Total; n.Items != 30 || n.Exact < 28 || n.Final != 30 || n.Errors != 0 || n.CompletionTokens != 0 {
		t.Errorf("%+v; wrong are %+v", n, rep.Failures)
	}
	// A choice is scored as a continuation of the prompt: if the labels are wrong, the same items count as wrong.
	for _, it := range task.Items {
		it.Label = (it.Label + 1) % len(it.Choices)
	}
	rep, err = Run(t.Context(), NewEngine(e), []Task{task}, Options{Limit: 6})
	if err != nil || rep.Total.Final != 0 || rep.Total.Items != 6 {
		t.Errorf("with wrong labels %+v, %v", rep.Total, err)
	}
}

// Choices on another server are scored from the log probabilities of echoed prompts. All tokens that extend beyond the
// prompt count, including a token that is partly in the prompt; generated tokens do not.
func TestRemoteChoices(t *testing.T) {
	it := &Item{Prompt: "Äpfel sind", Choices: []string{" rot", " Türen"}, Label: 0, Answer: " rot"}
	one := `{"index": 0, "text": "", "logprobs": {"tokens": [], "top_logprobs": null,
		"text_offset": [0, 5, 8, 12, 14], "token_logprobs": [null, -1, -2, -4, -8]}}`
	two := `{"index": 1, "text": "", "logprobs": {"tokens": [], "top_logprobs": null,
		"text_offset": [0, 5, 10, 16], "token_logprobs": [null, -1, -16, -32]}}`
	other := `{"index": 2, "text": "", "logprobs": null}` // of no prompt that was sent
	h := fixed(t, 200,
		`{"choices": [`+two+`,`+other+`,`+one+`], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}`,
		func(req *http.Request, sent map[string]any) {
			prompts, _ := sent["prompt"].([]any)
			if req.URL.Path != "/v1/completions" || sent["echo"] != true || sent["add_special_tokens"] != false ||
				len(prompts) != 2 || prompts[1] != "Äpfel sind Türen" {
				t.Errorf("%s with %v", req.URL, sent)
			}
		})
	r, err := NewRemote(t.Context(), RemoteConfig{URL: h.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Answer(t.Context(), it, 50)
	if err != nil {
		t.Fatal(err)
	}
	if !Exact(it, &got) || got.Text != " rot" || math.Abs(got.Logprobs[0]+6) > 1e-9 || got.Logprobs[1] != -16 ||
		got.PromptTokens != 9 {
		t.Errorf("%+v", got)
	}
	for body, want := range map[string]string{
		`{"choices": [` + one + `]}`: "1 of 2 prompts",
		`{"choices": [{"index": 0, "logprobs": null}, {"index": 1, "logprobs": null}]}`: "must support echo",
	} {
		r, err := NewRemote(t.Context(), RemoteConfig{URL: fixed(t, 200, body, nil).URL, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Answer(t.Context(), it, 50); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// The value of an item with choices is the one with the highest probability per character, not per byte.
func TestChoicesAreComparedByTheirCharacters(t *testing.T) {
	it := &Item{Choices: []string{"ää", "bbb"}, Label: 1}
	for _, c := range []struct {
		logprobs     []float64
		exact, final bool
	}{{[]float64{-6, -8.4}, false, true}, {[]float64{-6, -9.6}, false, false}, {[]float64{-6, -5}, true, true}} {
		r := &Reply{Logprobs: c.logprobs}
		if Exact(it, r) != c.exact || Final(it, r) != c.final {
			t.Errorf("%v: exact %v, final %v", c.logprobs, Exact(it, r), Final(it, r))
		}
	}
}
