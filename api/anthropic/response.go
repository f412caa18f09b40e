package anthropic

import (
	"encoding/json"
	"net/http"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// Response is the response to POST /v1/messages.
type Response struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"` // "message"
	Role         string  `json:"role"` // RoleAssistant
	Model        string  `json:"model"`
	Content      []Block `json:"content"`
	StopReason   *string `json:"stop_reason"` // null at the beginning of a stream
	StopSequence *string `json:"stop_sequence"`
	StopDetails  *string `json:"stop_details"` // always null: the field describes refusals
	Usage        Usage   `json:"usage"`
}

// The reasons to stop.
const (
	StopEndTurn   = "end_turn"
	StopMaxTokens = "max_tokens"
	StopSequence  = "stop_sequence"
	StopToolUse   = "tool_use"
	StopContext   = "model_context_window_exceeded"
)

// Usage counts the tokens of a message. The tokens of a prompt are the sum of the first three fields.
type Usage struct {
	InputTokens              int `json:"input_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"` // always 0: writing to the cache is not charged
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
	OutputTokens             int `json:"output_tokens"`

	OutputTokensDetails OutputTokensDetails `json:"output_tokens_details"`
}

// OutputTokensDetails counts output tokens by kind.
type OutputTokensDetails struct {
	ThinkingTokens int `json:"thinking_tokens"`
}

// Count is the response to POST /v1/messages/count_tokens.
type Count struct {
	InputTokens int `json:"input_tokens"`
}

// NewResponse returns a message before anything was generated.
func NewResponse(id, model string) *Response {
	return &Response{ID: id, Type: "message", Role: RoleAssistant, Model: model, Content: []Block{}}
}

// unsigned is the signature of a thinking block whose text is in the block. Signatures that clients send back are not
// verified.
const unsigned = "unsigned"

// signature returns the signature of a thinking block. If the block omits its text, the signature contains the text, so
// that it can be decoded when the client sends the block back.
func (b *Block) signature() string {
	if b.Omit {
		return openai.Seal(b.Text)
	}
	return unsigned
}

// MarshalJSON writes the fields that the block's type has in a response.
func (b Block) MarshalJSON() ([]byte, error) {
	switch b.Type {
	case BlockThinking:
		shown := b.Text
		if b.Omit {
			shown = ""
		}
		return wire.Marshal(struct {
			Type      string `json:"type"`
			Thinking  string `json:"thinking"`
			Signature string `json:"signature"`
		}{b.Type, shown, b.signature()})
	case BlockToolUse:
		input := b.Input
		if len(input) == 0 {
			input = json.RawMessage("{}")
		}
		return wire.Marshal(struct {
			Type  string          `json:"type"`
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			Input json.RawMessage `json:"input"`
		}{b.Type, b.ID, b.Name, input})
	}
	return wire.Marshal(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{b.Type, b.Text})
}

// ErrorBody is the body of a failed response.
type ErrorBody struct {
	Type      string      `json:"type"` // "error"
	Error     ErrorFields `json:"error"`
	RequestID string      `json:"request_id,omitempty"`
}

// ErrorFields is the object inside [ErrorBody].
type ErrorFields struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// NewErrorBody returns the JSON body of an error.
func NewErrorBody(e *wire.Error, requestID string) ErrorBody {
	return ErrorBody{Type: "error", Error: ErrorFields{Type: errorType(e.Status()), Message: e.Message},
		RequestID: requestID}
}

// errorType returns the type of an error with a status.
func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

// ModelList is the response to GET /v1/models for clients of Anthropic's interface.
type ModelList struct {
	Data    []Model `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID string  `json:"first_id"`
	LastID  string  `json:"last_id"`
}

// Model describes the served model.
type Model struct {
	Type        string `json:"type"` // "model"
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"` // RFC 3339
	Lifecycle   string `json:"lifecycle"`  // "active"

	MaxInputTokens int `json:"max_input_tokens"`
	MaxTokens      int `json:"max_tokens"` // maximum tokens of an answer
}

// NewModel returns the description of a model with a context of the given number of tokens.
func NewModel(name, created string, context int) Model {
	return Model{Type: "model", ID: name, DisplayName: name, CreatedAt: created, Lifecycle: "active",
		MaxInputTokens: context, MaxTokens: context}
}

// NewModelList returns a list of one model.
func NewModelList(m Model) ModelList { return ModelList{Data: []Model{m}, FirstID: m.ID, LastID: m.ID} }
