package server

import (
	"sparrow"
	"sparrow/api/openai"
)

// completionRequests converts a text completion to one engine request per prompt; from returns the origin of request i.
func completionRequests(r *openai.CompletionRequest, from func(i int) origin) []sparrow.Request {
	list := make([]sparrow.Request, 0, r.Prompt.Len())
	add := func(text string, ids []int32) {
		out := common(&r.Options, from(len(list)))
		out.Prompt, out.Tokens = text, ids
		if limit := r.NewTokens(); limit != openai.Unlimited {
			out.MaxTokens = limit
		}
		if r.Logprobs != nil {
			out.Sampling.Logprobs, out.Sampling.TopLogprobs = true, *r.Logprobs
			if r.Echo {
				out.Score = scoreAtLeast(out.Score, *r.Logprobs)
			}
		}
		if out.Score != nil {
			out.Score.Only = r.NewTokens() == 0
		}
		list = append(list, out)
	}
	for _, text := range r.Prompt.Texts {
		add(text, nil)
	}
	for _, ids := range r.Prompt.Tokens {
		add("", ids)
	}
	return list
}

// plainPrompts reports whether text prompts are encoded without the model's special tokens.
func plainPrompts(r *openai.CompletionRequest) bool {
	return r.AddSpecialTokens != nil && !*r.AddSpecialTokens
}
