package ollama

import (
	"encoding/json"
	"time"

	"sparrow/internal/wire"
)

// Version is the implemented version of Ollama's interface. Clients compare it with the version that they need.
const Version = "0.12.6"

// Chunk is the response to POST /api/chat and POST /api/generate, whole or as one line of a stream. The last chunk has
// a reason and counts.
type Chunk struct {
	Model     string
	CreatedAt time.Time
	Generated bool // whether the chunk is for /api/generate, where the text is not inside a message
	Content   string
	Thinking  string
	Calls     []Call
	Done      *Done // nil before the end
}

// Done holds the fields of the last chunk.
type Done struct {
	Reason          string // one of the reasons below
	Total           time.Duration
	PromptTokens    int
	PromptTime      time.Duration // time to the first token
	GeneratedTokens int
	GeneratedTime   time.Duration
}

// The reasons to end.
const (
	DoneStop   = "stop"
	DoneLength = "length"
	DoneLoad   = "load" // the request had no prompt
)

type wireCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type wireMessage struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	Thinking  string     `json:"thinking,omitempty"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
}

type wireChunk struct {
	Model     string       `json:"model"`
	CreatedAt time.Time    `json:"created_at"`
	Message   *wireMessage `json:"message,omitempty"`
	Response  *string      `json:"response,omitempty"`
	Thinking  string       `json:"thinking,omitempty"`

	Done       bool   `json:"done"`
	DoneReason string `json:"done_reason,omitempty"`

	TotalDuration      *int64 `json:"total_duration,omitempty"` // nanoseconds, like the durations below
	LoadDuration       *int64 `json:"load_duration,omitempty"`  // always 0: the model is loaded
	PromptEvalCount    *int   `json:"prompt_eval_count,omitempty"`
	PromptEvalDuration *int64 `json:"prompt_eval_duration,omitempty"`
	EvalCount          *int   `json:"eval_count,omitempty"`
	EvalDuration       *int64 `json:"eval_duration,omitempty"`
}

// MarshalJSON writes the chunk in the format of its endpoint.
func (c *Chunk) MarshalJSON() ([]byte, error) {
	out := wireChunk{Model: c.Model, CreatedAt: c.CreatedAt.UTC()}
	if c.Generated {
		out.Response, out.Thinking = &c.Content, c.Thinking
	} else {
		out.Message = &wireMessage{Role: "assistant", Content: c.Content, Thinking: c.Thinking}
		for i, call := range c.Calls {
			w := wireCall{ID: call.ID}
			w.Function.Index, w.Function.Name, w.Function.Arguments = i, call.Name, call.Arguments
			out.Message.ToolCalls = append(out.Message.ToolCalls, w)
		}
	}
	if d := c.Done; d != nil {
		out.Done, out.DoneReason = true, d.Reason
		if d.Reason != DoneLoad {
			zero, total, prompt, generated := int64(0), d.Total.Nanoseconds(), d.PromptTime.Nanoseconds(),
				d.GeneratedTime.Nanoseconds()
			out.TotalDuration, out.LoadDuration = &total, &zero
			out.PromptEvalCount, out.PromptEvalDuration = &d.PromptTokens, &prompt
			out.EvalCount, out.EvalDuration = &d.GeneratedTokens, &generated
		}
	}
	return wire.Marshal(out)
}

// ErrorBody is the body of a failed response, and the last line of a stream that failed.
type ErrorBody struct {
	Error string `json:"error"`
}

// NewErrorBody returns the JSON body of an error.
func NewErrorBody(e *wire.Error) ErrorBody { return ErrorBody{e.Message} }

// Tags is the response to GET /api/tags, and to GET /api/ps, whose models have more members.
type Tags struct {
	Models []Model `json:"models"`
}

// Model is a served model.
type Model struct {
	Name       string    `json:"name"`
	Model      string    `json:"model"`
	ModifiedAt time.Time `json:"modified_at"`
	Size       int64     `json:"size"`   // bytes of weights
	Digest     string    `json:"digest"` // digest of everything that determines the model's answers
	Details    Details   `json:"details"`

	// Fields of /api/ps.
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	SizeVRAM      *int64     `json:"size_vram,omitempty"`
	ContextLength int        `json:"context_length,omitempty"`
}

// Details describe a model.
type Details struct {
	ParentModel       string   `json:"parent_model"`
	Format            string   `json:"format"`
	Family            string   `json:"family"`
	Families          []string `json:"families"`
	ParameterSize     string   `json:"parameter_size"`
	QuantizationLevel string   `json:"quantization_level"`
}

// Show is the response to POST /api/show.
type Show struct {
	Modelfile    string         `json:"modelfile"`
	Parameters   string         `json:"parameters"`
	Template     string         `json:"template"`
	Details      Details        `json:"details"`
	ModelInfo    map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	ModifiedAt   time.Time      `json:"modified_at"`
}

// VersionBody is the response to GET /api/version.
type VersionBody struct {
	Version string `json:"version"`
}
