// Package sglang defines the bodies of SGLang's own endpoint for generation, POST /generate, as trainers use it: token
// ids in and out, with log probabilities, routed experts and selections of the indexer. It uses no engine type.
package sglang

import (
	"encoding/json"

	"sparrow/api/openai"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Request is the body of POST /generate. Exactly one of Text and InputIDs is set.
type Request struct {
	openai.CompletionRequest        // sampling parameters
	Text                     string // prompt as text
	InputIDs                 []int32
	ReturnLogprob            bool
	// LogprobStart is the first token of the prompt whose log probability is requested; a negative value requests none.
	LogprobStart  int
	RoutedExperts bool
	ExpertsStart  int // first row of the routed experts that are returned
	IndexerTopK   bool
}

// samplingFields holds sampling_params under SGLang's names.
var samplingFields = wire.Fields[Request]{
	"max_new_tokens":     wire.OptionalInt(func(r *Request) **int { return &r.MaxTokens }),
	"min_new_tokens":     wire.OptionalInt(func(r *Request) **int { return &r.MinTokens }),
	"temperature":        wire.OptionalFloat(func(r *Request) **float64 { return &r.Temperature }),
	"top_p":              wire.OptionalFloat(func(r *Request) **float64 { return &r.TopP }),
	"min_p":              wire.OptionalFloat(func(r *Request) **float64 { return &r.MinP }),
	"frequency_penalty":  wire.OptionalFloat(func(r *Request) **float64 { return &r.FrequencyPenalty }),
	"presence_penalty":   wire.OptionalFloat(func(r *Request) **float64 { return &r.PresencePenalty }),
	"repetition_penalty": wire.OptionalFloat(func(r *Request) **float64 { return &r.RepetitionPenalty }),
	"ignore_eos":         wire.BoolField(func(r *Request) *bool { return &r.IgnoreEOS }),
	"no_stop_trim":       wire.BoolField(func(r *Request) *bool { return &r.IncludeStop }),
	"sampling_seed":      {Read: func(c *wire.Reader, r *Request) { wire.SetPointer(&r.Seed, c.Integer) }},
	"top_k": {Read: func(c *wire.Reader, r *Request) {
		if n, ok := c.IntegerIn(-1, openai.MaxTopK); ok {
			k := max(int(n), 0) // -1 means all tokens
			r.TopK = &k
		}
	}},
	"stop": {Read: func(c *wire.Reader, r *Request) {
		if c.Shape() == jsonscan.String {
			wire.Set(&r.Stop, func() ([]string, bool) { s, ok := c.Str(); return []string{s}, ok })
			return
		}
		r.Stop = wire.ReadList(c, openai.MaxStops, "stop strings", c.Str)
	}},
	"stop_token_ids": {Read: func(c *wire.Reader, r *Request) { r.StopTokenIDs = readIDs(c, openai.MaxStopTokenIDs) }},
	"n":              wire.FixedAs[Request]("1", "send a request for each"),
	// Settings for the conversion of tokens to text. They have no effect.
	"skip_special_tokens":           wire.IgnoreAny[Request](),
	"spaces_between_special_tokens": wire.IgnoreAny[Request](),
}

var fields = wire.Fields[Request]{
	"model": wire.TextField(func(r *Request) *string { return &r.Model }),
	"text":  wire.TextField(func(r *Request) *string { return &r.Text }),
	"input_ids": {Read: func(c *wire.Reader, r *Request) {
		if c.FirstElement() == jsonscan.Array {
			c.Problem(wire.CodeUnsupportedValue, "several prompts are not supported; send a request for each")
			c.Skip()
			return
		}
		r.InputIDs = readIDs(c, openai.MaxTokens)
	}},
	"sampling_params": {Read: func(c *wire.Reader, r *Request) { wire.ReadObject(c, r, samplingFields) }},
	"return_logprob":  wire.BoolField(func(r *Request) *bool { return &r.ReturnLogprob }),
	"logprob_start_len": {Read: func(c *wire.Reader, r *Request) {
		if n, ok := c.IntegerIn(-1, openai.MaxTokens); ok {
			r.LogprobStart = int(n)
		}
	}},
	"return_routed_experts": wire.BoolField(func(r *Request) *bool { return &r.RoutedExperts }),
	"routed_experts_start_len": {Read: func(c *wire.Reader, r *Request) {
		if n, ok := c.IntegerIn(0, openai.MaxTokens); ok {
			r.ExpertsStart = int(n)
		}
	}},
	"return_indexer_topk": wire.BoolField(func(r *Request) *bool { return &r.IndexerTopK }),
	"stream": wire.FixedAs[Request]("false", "this endpoint does not stream; send POST "+
		"/v1/completions"), "top_logprobs_num": wire.FixedAs[Request]("0", "this endpoint returns no alternatives; "+
		"send POST /v1/completions with logprobs"),
	"return_hidden_states":     wire.FixedAs[Request]("false", "the server does not return hidden states"),
	"return_text_in_logprobs":  wire.IgnoreAny[Request](),
	"rid":                      wire.IgnoreAny[Request](),
	"lora_path":                wire.FixedAs[Request]("null", "the server has no LoRA adapters"),
	"image_data":               wire.FixedAs[Request]("null", "the model reads only text"),
	"return_prompt_token_ids":  wire.IgnoreAny[Request](),
	"bootstrap_room":           wire.IgnoreAny[Request](),
	"extra_key":                wire.TextField(func(r *Request) *string { return &r.CacheSalt }),
	"return_bytes_in_logprobs": wire.IgnoreAny[Request](),
}

func readIDs(c *wire.Reader, most int) []int32 {
	return wire.ReadList(c, most, "token ids", func() (int32, bool) {
		id, ok := c.IntegerIn(0, openai.MaxTokenID)
		return int32(id), ok
	})
}

// Decode reads the body of POST /generate. model is the default for requests without a model.
func Decode(model string) func(d *wire.Decoder, body []byte) (*Request, *wire.Error) {
	return func(d *wire.Decoder, body []byte) (*Request, *wire.Error) {
		r, bad := wire.Decode(d, body, fields, func(r *Request, p *wire.Problems) {
			if (r.Text == "") == (len(r.InputIDs) == 0) {
				p.AddNew(wire.CodeMissing, "input_ids", "send a prompt as input_ids or as text, one of them")
			}
		})
		if bad != nil {
			return nil, bad
		}
		if r.Model == "" {
			r.Model = model
		}
		if r.Text != "" {
			r.Prompt.Texts = []string{r.Text}
		} else {
			r.Prompt.Tokens = [][]int32{r.InputIDs}
		}
		if r.MaxTokens == nil {
			limit := defaultTokens
			r.MaxTokens = &limit
		}
		if r.ReturnLogprob {
			r.Logprobs = new(int)
		}
		return r, r.Validate()
	}
}

// defaultTokens is SGLang's default of max_new_tokens.
const defaultTokens = 128

// Response is the response to POST /generate.
type Response struct {
	Text      string  `json:"text"`
	OutputIDs []int32 `json:"output_ids"`
	Meta      Meta    `json:"meta_info"`
}

// Meta describes how a request was processed. Arrays are little-endian int32 in base64. Their shape is [tokens of
// prompt and answer - 1, layers, chosen]; the last token of the answer has no row.
type Meta struct {
	ID               string       `json:"id"`
	FinishReason     FinishReason `json:"finish_reason"`
	PromptTokens     int          `json:"prompt_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	CachedTokens     int          `json:"cached_tokens"`
	WeightVersion    string       `json:"weight_version"`
	InputLogprobs    []Logprob    `json:"input_token_logprobs,omitempty"`
	OutputLogprobs   []Logprob    `json:"output_token_logprobs,omitempty"`
	RoutedExperts    string       `json:"routed_experts,omitempty"`
	IndexerTopK      string       `json:"indexer_topk,omitempty"`
	IndexerLayers    int          `json:"indexer_topk_num_layers,omitempty"`
}

// FinishReason is the reason why an answer ended.
type FinishReason struct {
	Type    string `json:"type"` // length or stop
	Length  int    `json:"length,omitempty"`
	Matched any    `json:"matched,omitempty"` // stop string or token that ended the answer
}

// Logprob is a token and its log probability; on the wire it is [logprob, id, null]. The first token of a prompt has no
// log probability.
type Logprob struct {
	Value *float64
	ID    int32
}

// MarshalJSON writes [logprob, id, null].
func (l Logprob) MarshalJSON() ([]byte, error) { return json.Marshal([]any{l.Value, l.ID, nil}) }
