package sglang

import (
	"testing"

	"sparrow/internal/wire"
)

// Fields that a request omits get SGLang's defaults; other fields keep the values of the request.
func TestRequests(t *testing.T) {
	read := func(body string) (*Request, *wire.Error) {
		return Decode("m")(&wire.Decoder{Strict: true}, []byte(body))
	}
	r, err := read(`{"input_ids":[1,2]}`)
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "m" || *r.MaxTokens != 128 || len(r.Prompt.Tokens) != 1 || len(r.Prompt.Tokens[0]) != 2 ||
		r.Logprobs != nil || r.LogprobStart != 0 || r.TopK != nil {
		t.Errorf("%+v, %d tokens", r, *r.MaxTokens)
	}
	r, err = read(`{"model":"x","text":"hi","return_logprob":true,"logprob_start_len":3,"routed_experts_start_len":4,
		"extra_key":"s","sampling_params":{"max_new_tokens":5,"min_new_tokens":2,"top_k":-1,"stop":"a","sampling_seed":6,
		"no_stop_trim":true,"ignore_eos":true}}`)
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "x" || len(r.Prompt.Texts) != 1 || r.Prompt.Texts[0] != "hi" || *r.MaxTokens != 5 ||
		*r.MinTokens != 2 || *r.TopK != 0 || len(r.Stop) != 1 || r.Stop[0] != "a" || *r.Seed != 6 || !r.IncludeStop ||
		!r.IgnoreEOS || r.Logprobs == nil || *r.Logprobs != 0 || r.LogprobStart != 3 || r.ExpertsStart != 4 ||
		r.CacheSalt != "s" {
		t.Errorf("%+v", r)
	}
	for _, body := range []string{`{}`, `{"text":"a","input_ids":[1]}`, `{"input_ids":[[1]]}`} {
		if _, err := read(body); err == nil || err.Param != "input_ids" {
			t.Errorf("%s: %v", body, err)
		}
	}
}
