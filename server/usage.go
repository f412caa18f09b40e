package server

import (
	"sparrow"
	"sparrow/api/openai"
)

// usageOf returns the usage of a request for the response. Details are always included, so that 0 is distinguished from
// unknown.
func usageOf(u *sparrow.Usage) *openai.Usage {
	return &openai.Usage{
		PromptTokens:        u.PromptTokens,
		CompletionTokens:    u.CompletionTokens,
		TotalTokens:         u.PromptTokens + u.CompletionTokens,
		PromptTokensDetails: &openai.PromptTokensDetails{CachedTokens: u.CachedTokens},
		CompletionTokensDetails: &openai.CompletionTokensDetails{
			ReasoningTokens:          u.ReasoningTokens,
			AcceptedPredictionTokens: u.AcceptedTokens,
			RejectedPredictionTokens: u.DraftedTokens - u.AcceptedTokens,
		},
	}
}

// running counts the usage of a stream so far, if every chunk has usage.
type running struct {
	on     bool
	counts openai.Counts
}

func (r *running) start(promptTokens int) { r.counts.Prompt = promptTokens }

func (r *running) count(ev *sparrow.Event) { r.counts.Completion += len(ev.Tokens) }

// so returns the usage so far, or nil if chunks have no usage.
func (r *running) so() *openai.Counts {
	if !r.on {
		return nil
	}
	return &r.counts
}

// finishOf returns the finish reason of a choice in OpenAI's format. Failed and cancelled choices have none.
func finishOf(f sparrow.Finish) openai.FinishReason {
	switch f {
	case sparrow.FinishLength:
		return openai.FinishLength
	case sparrow.FinishToolCalls:
		return openai.FinishToolCalls
	case sparrow.FinishStop:
		return openai.FinishStop
	}
	return ""
}
