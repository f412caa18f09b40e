package openai

// Limits on a request. Limits on counts bound the time for checking a request. Ranges are OpenAI's, where OpenAI
// documents one.
const (
	MaxMessages     = 8192
	MaxParts        = 1024 // text parts of a message
	MaxTools        = 512
	MaxToolCalls    = 512  // tool calls of a message
	MaxPrompts      = 1024 // prompts of a text completion
	MaxChoices      = 1024 // choices of a request: prompts times n
	MaxStops        = 16
	MaxStopBytes    = 1024 // bytes of a stop string
	MaxStopTokenIDs = 256
	MaxLogitBias    = 1024 // entries of logit_bias
	MaxKwargs       = 64   // entries of chat_template_kwargs
	MaxSaltBytes    = 256
	MaxPriority     = 1 << 20

	MaxN           = 128
	MaxTopLogprobs = 20
	MaxDraft       = 7
	MaxTopK        = 1 << 30
	MaxTokens      = 1 << 30 // maximum of max_tokens and similar fields; the server checks the context length
	MaxTokenID     = 1<<31 - 1

	MaxTemperature = 2.0
	MaxPenalty     = 2.0  // maximum magnitude of frequency_penalty and presence_penalty
	MaxRepetition  = 10.0 // maximum of repetition_penalty; its reciprocal is the minimum
	MaxBias        = 100.0
)

// DefaultCompletionTokens is the default of max_tokens for a text completion, as OpenAI documents it. A chat completion
// without a limit runs until the model stops or the context is full.
const DefaultCompletionTokens = 16

// Unlimited, as the value of max_tokens or max_completion_tokens, requests as many tokens as the context holds.
const Unlimited = -1
