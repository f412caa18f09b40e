package openai

import (
	"encoding/json"

	"sparrow/record"
)

// The object names of responses.
const (
	ObjectChat       = "chat.completion"
	ObjectChatChunk  = "chat.completion.chunk"
	ObjectCompletion = "text_completion"
	ObjectModel      = "model"
	ObjectList       = "list"
	ObjectScore      = "score"
)

// FinishReason is the reason why a choice ended. Empty means that the choice continues; it is null on the wire.
type FinishReason string

// MarshalJSON writes the reason or null.
func (f FinishReason) MarshalJSON() ([]byte, error) { return appendFinish(nil, f), nil }

// The reasons to finish.
const (
	FinishStop      FinishReason = "stop"       // the model ended its answer, or a stop string was reached
	FinishLength    FinishReason = "length"     // the token limit or the end of the context was reached
	FinishToolCalls FinishReason = "tool_calls" // the model called tools
	// FinishFunction replaces FinishToolCalls in an answer to a request with the older field functions.
	FinishFunction FinishReason = "function_call"
)

// Head holds the first fields of responses and of the chunks of a stream.
type Head struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Created           int64  `json:"created"` // seconds since 1970
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint,omitempty"`
}

// ChatResponse is the response to POST /v1/chat/completions; its field object is ObjectChat.
type ChatResponse struct {
	Head
	Choices []ChatChoice    `json:"choices"`
	Usage   Usage           `json:"usage"`
	Sparrow json.RawMessage `json:"sparrow,omitempty"` // trace, if requested
	// PromptLogprobs holds the logprobs of the prompt that all choices share, if requested.
	PromptLogprobs PromptLogprobs `json:"prompt_logprobs,omitempty"`
	PromptTokenIDs []int32        `json:"prompt_token_ids,omitempty"` // token ids of the prompt, if requested
	SGLExt         *SGLExt        `json:"sglext,omitempty"`           // fields of SGLang, if requested
	// KVTransfer is the address of the server that holds the KV pages of the prompt, if requested.
	KVTransfer *KVTransfer `json:"kv_transfer_params,omitempty"`
}

// ChatChoice is one answer.
type ChatChoice struct {
	Index        int             `json:"index"`
	Message      ResponseMessage `json:"message"`
	Logprobs     *ChatLogprobs   `json:"logprobs"` // null unless requested
	FinishReason FinishReason    `json:"finish_reason"`
	Sparrow      *record.Rows    `json:"sparrow,omitempty"` // recorded rows of the choice's tokens, if requested
	Rollout
}

// Rollout holds the fields of a choice for reinforcement learning, under vLLM's names, if requested. Streams do not
// have them.
type Rollout struct {
	TokenIDs []int32 `json:"token_ids,omitempty"`
	// RoutedExperts is a NumPy array file in base64: [tokens of prompt and answer - 1, layers, experts per token].
	RoutedExperts string `json:"routed_experts,omitempty"`
	Array         string `json:"-"` // the same data, encoded as SGLang does
}

// SGLExt holds the fields that SGLang adds to an answer: int32 in base64, in the order of Rollout.RoutedExperts.
type SGLExt struct {
	RoutedExperts string `json:"routed_experts"`
}

// ResponseMessage is the model's message.
type ResponseMessage struct {
	Role    string  `json:"role"`
	Content *string `json:"content"` // null if there are only tool calls
	// Refusal is always null: the field is part of the format, but the models have no separate channel for refusals.
	Refusal          *string    `json:"refusal"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	// FunctionCall is the call of an answer to a request with the older field functions.
	FunctionCall *FunctionCall `json:"function_call,omitempty"`
}

// CompletionResponse is the response to POST /v1/completions; its field object is ObjectCompletion. The events of a
// stream have the same format, and are written through [CompletionStream].
type CompletionResponse struct {
	Head
	Choices []CompletionChoice `json:"choices"`
	Usage   *Usage             `json:"usage"` // in a stream null or absent before the closing chunk
	Sparrow json.RawMessage    `json:"sparrow,omitempty"`
	SGLExt  *SGLExt            `json:"sglext,omitempty"` // fields of SGLang, if requested; never in a stream
	// KVTransfer is the address of the server that holds the KV pages of the prompt, if requested; never in a stream.
	KVTransfer *KVTransfer `json:"kv_transfer_params,omitempty"`
}

// CompletionChoice is one text or, in a stream, a piece of one. Only the last piece has a finish reason.
type CompletionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	Logprobs     *CompletionLogprobs `json:"logprobs"`
	FinishReason FinishReason        `json:"finish_reason"`

	PromptLogprobs PromptLogprobs `json:"prompt_logprobs,omitempty"`  // if requested; never in a stream
	Sparrow        *record.Rows   `json:"sparrow,omitempty"`          // recorded rows of its tokens, if requested
	PromptTokenIDs []int32        `json:"prompt_token_ids,omitempty"` // if requested; never in a stream
	Rollout
}

// Usage counts the tokens of a request.
type Usage struct {
	PromptTokens            int                      `json:"prompt_tokens"`
	CompletionTokens        int                      `json:"completion_tokens"`
	TotalTokens             int                      `json:"total_tokens"`
	PromptTokensDetails     *PromptTokensDetails     `json:"prompt_tokens_details,omitempty"`
	CompletionTokensDetails *CompletionTokensDetails `json:"completion_tokens_details,omitempty"`
}

// PromptTokensDetails counts prompt tokens that were read from the prefix cache.
type PromptTokensDetails struct {
	CachedTokens int `json:"cached_tokens"` // prompt tokens that were found in the prefix cache and not computed
}

// CompletionTokensDetails counts completion tokens by kind. Rejected drafts are not counted in completion_tokens.
type CompletionTokensDetails struct {
	ReasoningTokens          int `json:"reasoning_tokens"`
	AcceptedPredictionTokens int `json:"accepted_prediction_tokens"` // drafted tokens that were accepted
	RejectedPredictionTokens int `json:"rejected_prediction_tokens"` // drafted tokens that were rejected
}

// ModelList is the response to GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // ObjectList
	Data   []Model `json:"data"`
}

// Model is one served model. MaxModelLen is vLLM's addition: the maximum number of tokens of prompt and answer
// together.
type Model struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // ObjectModel
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitempty"`
}
