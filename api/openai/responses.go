package openai

import (
	"encoding/json"
	"sparrow/internal/wire"
)

// ObjectResponse is the object name of a response.
const ObjectResponse = "response"

// Response is the response to POST /v1/responses. It repeats the fields of the request, because clients read them
// there.
type Response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"` // ObjectResponse
	CreatedAt         int64              `json:"created_at"`
	CompletedAt       *int64             `json:"completed_at"`
	Status            string             `json:"status"`
	Background        bool               `json:"background"` // always false
	Error             *ResponseError     `json:"error"`
	IncompleteDetails *IncompleteDetails `json:"incomplete_details"`
	Model             string             `json:"model"`
	Output            []Item             `json:"output"`
	Usage             *ResponseUsage     `json:"usage"` // null until the response ends

	Instructions       *string           `json:"instructions"`
	MaxOutputTokens    *int              `json:"max_output_tokens"`
	Metadata           map[string]string `json:"metadata"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	PreviousResponseID *string           `json:"previous_response_id"`
	Reasoning          ReasoningEcho     `json:"reasoning"`
	Store              bool              `json:"store"`
	Temperature        float64           `json:"temperature"`
	TopP               float64           `json:"top_p"`
	Text               TextConfig        `json:"text"`
	ToolChoice         ResponseChoice    `json:"tool_choice"`
	Tools              []ResponseTool    `json:"tools"`
	TopLogprobs        int               `json:"top_logprobs"`
	Truncation         string            `json:"truncation"`

	Sparrow json.RawMessage `json:"sparrow,omitempty"` // trace, if requested
}

// ResponseError is the reason why a response failed after its stream had begun.
type ResponseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// IncompleteDetails is the reason why a response ended early.
type IncompleteDetails struct {
	Reason string `json:"reason"`
}

// IncompleteTokens is the reason if max_output_tokens or the end of the context was reached.
const IncompleteTokens = "max_output_tokens"

// ReasoningEcho repeats the reasoning fields of the request; there are no summaries.
type ReasoningEcho struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// ResponseChoice is a tool choice as /v1/responses writes it.
type ResponseChoice ToolChoice

// MarshalJSON writes the mode as a string, or the object that names a function.
func (c ResponseChoice) MarshalJSON() ([]byte, error) {
	if c.Mode != ChoiceFunction {
		return wire.Marshal(c.Mode)
	}
	kind := typeFunction
	if c.Custom {
		kind = TypeCustom
	}
	return wire.Marshal(struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}{kind, c.Name})
}

// ResponseUsage counts the tokens of a response.
type ResponseUsage struct {
	InputTokens         int                 `json:"input_tokens"`
	InputTokensDetails  InputTokensDetails  `json:"input_tokens_details"`
	OutputTokens        int                 `json:"output_tokens"`
	OutputTokensDetails OutputTokensDetails `json:"output_tokens_details"`
	TotalTokens         int                 `json:"total_tokens"`
}

// InputTokensDetails counts input tokens that were read from the prefix cache.
type InputTokensDetails struct {
	CachedTokens     int `json:"cached_tokens"`      // input tokens that were found in the prefix cache
	CacheWriteTokens int `json:"cache_write_tokens"` // always 0: writing to the cache is not charged
}

// OutputTokensDetails counts output tokens by kind.
type OutputTokensDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// ItemList is the response to GET /v1/responses/{id}/input_items.
type ItemList struct {
	Object  string  `json:"object"` // ObjectList
	Data    []Item  `json:"data"`
	FirstID *string `json:"first_id"` // null in an empty list
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// DeletedResponse is the response to DELETE /v1/responses/{id}.
type DeletedResponse struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // ObjectResponse
	Deleted bool   `json:"deleted"`
}

// NewResponse returns the response to a request before anything was generated.
func NewResponse(id string, created int64, r *ResponsesRequest) *Response {
	out := &Response{
		ID: id, Object: ObjectResponse, CreatedAt: created, Status: StatusInProgress, Model: r.Model, Output: []Item{},
		MaxOutputTokens: r.MaxOutputTokens, Metadata: r.Metadata, ParallelToolCalls: true, Store: r.Stored(),
		Temperature: 1, TopP: 1, Text: r.Text, ToolChoice: ResponseChoice{Mode: ChoiceAuto}, Tools: r.Tools,
		Truncation: TruncationDisabled,
	}
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out.Instructions, out.PreviousResponseID = orNull(r.Instructions), orNull(r.PreviousResponseID)
	out.Reasoning.Effort = orNull(r.Reasoning.Effort)
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	if out.Tools == nil {
		out.Tools = []ResponseTool{}
	}
	if out.Text.Format.Type == "" {
		out.Text.Format.Type = FormatText
	}
	if r.ToolChoice != nil {
		out.ToolChoice = ResponseChoice(*r.ToolChoice)
	}
	if r.Truncation != "" {
		out.Truncation = r.Truncation
	}
	replace(&out.ParallelToolCalls, r.ParallelToolCalls)
	replace(&out.Temperature, r.Temperature)
	replace(&out.TopP, r.TopP)
	replace(&out.TopLogprobs, r.TopLogprobs)
	return out
}

func replace[V any](dst, given *V) {
	if given != nil {
		*dst = *given
	}
}
