package openai

import (
	"fmt"
	"maps"
	"slices"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
	"sparrow/record"
	"strconv"
)

// Options holds the fields that chat and text completions share. For nil and zero the server chooses the value.
type Options struct {
	Model string `json:"model"`

	Temperature       *float64 `json:"temperature,omitempty"`        // [0, 2]
	TopP              *float64 `json:"top_p,omitempty"`              // (0, 1]
	TopK              *int     `json:"top_k,omitempty"`              // 0 turns it off; vLLM's -1 is read as 0
	MinP              *float64 `json:"min_p,omitempty"`              // [0, 1]
	FrequencyPenalty  *float64 `json:"frequency_penalty,omitempty"`  // [-2, 2]
	PresencePenalty   *float64 `json:"presence_penalty,omitempty"`   // [-2, 2]
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"` // [0.1, 10]

	LogitBias map[int32]float64 `json:"logit_bias,omitempty"` // by token id, [-100, 100]
	Seed      *int64            `json:"seed,omitempty"`
	N         *int              `json:"n,omitempty"` // [1, 128]; see [Options.Choices]

	Stop         []string `json:"stop,omitempty"` // one string or an array on the wire
	StopTokenIDs []int32  `json:"stop_token_ids,omitempty"`
	IncludeStop  bool     `json:"include_stop_str_in_output,omitempty"`
	MinTokens    *int     `json:"min_tokens,omitempty"`
	IgnoreEOS    bool     `json:"ignore_eos,omitempty"`

	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`

	// ResponseFormat constrains the text; nil means no constraint.
	ResponseFormat *ResponseFormat `json:"response_format,omitempty"`

	// TokensAsIDs writes tokens in logprobs as their ids, in the form of [TokenID].
	TokensAsIDs bool `json:"return_tokens_as_token_ids,omitempty"`

	// TokenIDs is an option of vLLM: the answer contains the ids of the prompt and of the generated tokens.
	TokenIDs bool `json:"return_token_ids,omitempty"`
	// Progress is an option of llama.cpp: a stream reports how much of the prompt has been read until the first token.
	Progress bool `json:"return_progress,omitempty"`
	// RoutedExperts is an option of SGLang: the answer contains the experts of all rows.
	RoutedExperts bool `json:"return_routed_experts,omitempty"`

	// PromptLogprobs is an option of vLLM: the number of alternatives for each prompt token, [0, 20]; nil means no log
	// probabilities.
	PromptLogprobs *int `json:"prompt_logprobs,omitempty"`

	// CacheSalt restricts prefix reuse to requests with the same salt.
	CacheSalt string `json:"cache_salt,omitempty"`

	// KVTransfer is an option of vLLM: one server computes prompts and another continues them.
	KVTransfer *KVTransfer `json:"kv_transfer_params,omitempty"`

	// Priority is an option of vLLM: among the requests of one tenant a lower number is served earlier; the default is
	// 0.
	Priority *int `json:"priority,omitempty"`

	Sparrow *Extension `json:"sparrow,omitempty"`
}

// KVTransfer is kv_transfer_params. A request with RemoteDecode computes a prompt. Its response contains the parameters
// for the request to the decoding server: RemotePrefill, and the address of the KV pages.
type KVTransfer struct {
	RemoteDecode  bool     `json:"do_remote_decode"`
	RemotePrefill bool     `json:"do_remote_prefill"`
	EngineID      string   `json:"remote_engine_id"`
	BlockIDs      []string `json:"remote_block_ids"` // not read: pages are identified by their tokens
	Host          string   `json:"remote_host"`
	Port          int      `json:"remote_port"`
}

// StreamOptions is stream_options, allowed only with stream.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage,omitempty"`
	// ContinuousUsage is an option of vLLM: every chunk contains the usage so far, and every token has a chunk.
	ContinuousUsage bool `json:"continuous_usage_stats,omitempty"`
}

// Extension holds the request fields that only this server supports.
type Extension struct {
	// Trace requests the plans used, the prefix match and the time per stage, in the object sparrow of the response.
	Trace bool `json:"trace,omitempty"`
	// Draft is the number of tokens to draft per step: 0 disables drafting, nil means the server's setting.
	Draft *int `json:"draft,omitempty"`
	// Selections requests the positions of the keys that each row attended to, Experts the experts that computed each
	// row.
	Selections *Selections `json:"selections,omitempty"`
	Experts    bool        `json:"experts,omitempty"`
	// Replay holds recorded selections and experts of an earlier request. This request uses them instead of its own.
	Replay *record.Rows `json:"replay,omitempty"`
}

// Choices returns n, which is 1 if not given.
func (o *Options) Choices() int {
	if o.N == nil {
		return 1
	}
	return *o.N
}

// WantsUsage reports whether a stream ends with a chunk of usage.
func (o *Options) WantsUsage() bool { return o.StreamOptions != nil && o.StreamOptions.IncludeUsage }

// WantsContinuousUsage reports whether every chunk of a stream has the usage so far.
func (o *Options) WantsContinuousUsage() bool {
	return o.WantsUsage() && o.StreamOptions.ContinuousUsage
}

// WantsTrace reports whether the response contains its trace.
func (o *Options) WantsTrace() bool { return o.Sparrow != nil && o.Sparrow.Trace }

// optionFields holds the fields of Options.
var optionFields = wire.Fields[Options]{
	"model":              wire.TextField(func(o *Options) *string { return &o.Model }),
	"temperature":        wire.OptionalFloat(func(o *Options) **float64 { return &o.Temperature }),
	"top_p":              wire.OptionalFloat(func(o *Options) **float64 { return &o.TopP }),
	"min_p":              wire.OptionalFloat(func(o *Options) **float64 { return &o.MinP }),
	"frequency_penalty":  wire.OptionalFloat(func(o *Options) **float64 { return &o.FrequencyPenalty }),
	"presence_penalty":   wire.OptionalFloat(func(o *Options) **float64 { return &o.PresencePenalty }),
	"repetition_penalty": wire.OptionalFloat(func(o *Options) **float64 { return &o.RepetitionPenalty }),
	"n":                  wire.OptionalInt(func(o *Options) **int { return &o.N }),
	"min_tokens":         wire.OptionalInt(func(o *Options) **int { return &o.MinTokens }),
	"ignore_eos":         wire.BoolField(func(o *Options) *bool { return &o.IgnoreEOS }),
	"stream":             wire.BoolField(func(o *Options) *bool { return &o.Stream }),
	"cache_salt":         wire.TextField(func(o *Options) *string { return &o.CacheSalt }),

	"priority":        wire.OptionalInt(func(o *Options) **int { return &o.Priority }),
	"prompt_logprobs": wire.OptionalInt(func(o *Options) **int { return &o.PromptLogprobs }),

	"return_token_ids":           wire.BoolField(func(o *Options) *bool { return &o.TokenIDs }),
	"return_progress":            wire.BoolField(func(o *Options) *bool { return &o.Progress }),
	"return_routed_experts":      wire.BoolField(func(o *Options) *bool { return &o.RoutedExperts }),
	"return_tokens_as_token_ids": wire.BoolField(func(o *Options) *bool { return &o.TokensAsIDs }),
	"include_stop_str_in_output": wire.BoolField(func(o *Options) *bool { return &o.IncludeStop }),

	"top_k":           {Read: readTopK},
	"seed":            {Read: func(c *wire.Reader, o *Options) { wire.SetPointer(&o.Seed, c.Integer) }},
	"logit_bias":      {Read: func(c *wire.Reader, o *Options) { o.LogitBias = readBias(c) }},
	"stop":            {Read: func(c *wire.Reader, o *Options) { o.Stop = readStop(c) }},
	"stop_token_ids":  {Read: func(c *wire.Reader, o *Options) { o.StopTokenIDs = readTokenIDs(c, MaxStopTokenIDs) }},
	"response_format": {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readFormat(c)) }},
	"stream_options": {Read: func(c *wire.Reader, o *Options) {
		o.StreamOptions = &StreamOptions{}
		wire.ReadObject(c, o.StreamOptions, streamOptionFields)
	}},
	"kv_transfer_params": {Read: func(c *wire.Reader, o *Options) {
		o.KVTransfer = &KVTransfer{}
		wire.ReadObject(c, o.KVTransfer, transferFields)
	}},
	"sparrow": {Read: func(c *wire.Reader, o *Options) {
		o.Sparrow = &Extension{}
		wire.ReadStrict(c, o.Sparrow, extensionFields)
	}},
}

// SamplingFields returns the named fields of Options, for interfaces that use the same names.
func SamplingFields(names ...string) wire.Fields[Options] {
	some := wire.Fields[Options]{}
	for _, name := range names {
		some[name] = optionFields[name]
	}
	return some
}

var streamOptionFields = wire.Fields[StreamOptions]{
	"include_usage": wire.BoolField(func(s *StreamOptions) *bool { return &s.IncludeUsage }),

	"continuous_usage_stats": wire.BoolField(func(s *StreamOptions) *bool { return &s.ContinuousUsage }),
	"include_obfuscation":    wire.IgnoreAs[StreamOptions](jsonscan.Bool),
}

// transferFields holds the fields of KVTransfer. Routers send null for unknown values, and return values unchanged.
var transferFields = wire.Fields[KVTransfer]{
	"do_remote_decode":  wire.BoolField(func(k *KVTransfer) *bool { return &k.RemoteDecode }),
	"do_remote_prefill": wire.BoolField(func(k *KVTransfer) *bool { return &k.RemotePrefill }),
	"remote_engine_id":  wire.TextField(func(k *KVTransfer) *string { return &k.EngineID }),
	"remote_host":       wire.TextField(func(k *KVTransfer) *string { return &k.Host }),
	"remote_block_ids":  wire.IgnoreAny[KVTransfer](),
	"tp_size":           wire.IgnoreAny[KVTransfer](),
	"remote_port": {Read: func(c *wire.Reader, k *KVTransfer) {
		if n, ok := c.IntegerIn(0, 65535); ok {
			k.Port = int(n)
		}
	}},
}

var extensionFields = wire.Fields[Extension]{
	"trace": wire.BoolField(func(e *Extension) *bool { return &e.Trace }),
	"draft": wire.OptionalInt(func(e *Extension) **int { return &e.Draft }),

	"selections": {Read: readSelections},
	"experts":    wire.BoolField(func(e *Extension) *bool { return &e.Experts }),
	"replay":     {Read: readReplay},
}

// readTopK accepts -1 for "off", as vLLM's and SGLang's clients send it.
func readTopK(c *wire.Reader, o *Options) {
	wire.SetPointer(&o.TopK, func() (int, bool) {
		k, ok := c.IntegerIn(-1, MaxTopK)
		return int(max(k, 0)), ok
	})
}

// readBias reads an object whose names are token ids.
func readBias(c *wire.Reader) map[int32]float64 {
	if c.Shape() != jsonscan.Object {
		c.WrongShape("an object of token ids and numbers")
		return nil
	}
	bias := map[int32]float64{}
	count := 0
	for name := range c.Members {
		if count++; count > MaxLogitBias {
			c.Skip()
			continue
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != name {
			c.Problem(wire.CodeInvalidValue, "the name is not a token id; want a decimal number in [0, %d]", MaxTokenID)
			c.Skip()
			continue
		}
		if v, ok := c.Float(); ok {
			bias[int32(id)] = v
		}
	}
	wire.WantAtMost(&c.Problems, c.Param(), count, MaxLogitBias, "entries")
	return bias
}

// readStop reads one string or an array of strings.
func readStop(c *wire.Reader) []string {
	switch c.Shape() {
	case jsonscan.String:
		return []string{c.Text()}
	case jsonscan.Array:
		return wire.ReadList(c, MaxStops, "strings", c.Str)
	}
	c.WrongShape("a string or an array of strings")
	return nil
}

func readTokenIDs(c *wire.Reader, most int) []int32 {
	return wire.ReadList(c, most, "token ids", func() (int32, bool) {
		id, ok := c.IntegerIn(0, MaxTokenID)
		return int32(id), ok
	})
}

// check reports every field of Options that is out of range.
func (o *Options) check(p *wire.Problems) {
	if o.Model == "" {
		p.AddNew(wire.CodeMissing, "model", "required; GET /v1/models lists the names")
	}
	wire.WantRange(p, "temperature", o.Temperature, 0, MaxTemperature)
	if o.TopP != nil && !(*o.TopP > 0 && *o.TopP <= 1) {
		p.AddNew(wire.CodeOutOfRange, "top_p", "%v is not in (0, 1]; 1 turns it off", *o.TopP)
	}
	wire.WantRange(p, "top_k", o.TopK, 0, MaxTopK)
	wire.WantRange(p, "min_p", o.MinP, 0, 1)
	wire.WantRange(p, "frequency_penalty", o.FrequencyPenalty, -MaxPenalty, MaxPenalty)
	wire.WantRange(p, "presence_penalty", o.PresencePenalty, -MaxPenalty, MaxPenalty)
	wire.WantRange(p, "repetition_penalty", o.RepetitionPenalty, 1/MaxRepetition, MaxRepetition)
	wire.WantRange(p, "n", o.N, 1, MaxN)
	wire.WantRange(p, "min_tokens", o.MinTokens, 0, MaxTokens)
	o.checkBias(p)
	o.checkStop(p)
	if o.StreamOptions != nil && !o.Stream {
		p.AddNew(wire.CodeInvalidValue, "stream_options", "only allowed if stream is true")
	}
	wire.WantRange(p, "prompt_logprobs", o.PromptLogprobs, 0, MaxTopLogprobs)
	if o.PromptLogprobs != nil && o.Stream {
		p.AddNew(wire.CodeInvalidValue, "prompt_logprobs", "only allowed without stream")
	}
	if o.ResponseFormat != nil {
		o.ResponseFormat.check(p)
	}
	wire.WantRange(p, "priority", o.Priority, -MaxPriority, MaxPriority)
	wire.WantShort(p, "cache_salt", o.CacheSalt, MaxSaltBytes)
	if o.Sparrow != nil {
		wire.WantRange(p, "sparrow.draft", o.Sparrow.Draft, 0, MaxDraft)
	}
}

func (o *Options) checkBias(p *wire.Problems) {
	if !wire.WantAtMost(p, "logit_bias", len(o.LogitBias), MaxLogitBias, "entries") {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(o.LogitBias)) {
		param := fmt.Sprintf("logit_bias.%d", id)
		if id < 0 {
			p.AddNew(wire.CodeInvalidValue, param, "is negative; want a token id, 0 or more")
		}
		bias := o.LogitBias[id]
		wire.WantRange(p, param, &bias, -MaxBias, MaxBias)
	}
}

func (o *Options) checkStop(p *wire.Problems) {
	if wire.WantAtMost(p, "stop", len(o.Stop), MaxStops, "strings") {
		for i, s := range o.Stop {
			param := fmt.Sprintf("stop[%d]", i)
			if s == "" {
				p.AddNew(wire.CodeInvalidValue, param,
					"an empty stop string would end every answer at once; omit it")
			}
			wire.WantShort(p, param, s, MaxStopBytes)
		}
	}
	if wire.WantAtMost(p, "stop_token_ids", len(o.StopTokenIDs), MaxStopTokenIDs, "token ids") {
		checkTokenIDs(p, "stop_token_ids", o.StopTokenIDs)
	}
}

// checkTokenIDs reports the first negative id. The engine checks whether the others are in the vocabulary.
func checkTokenIDs(p *wire.Problems, param string, ids []int32) {
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 }); i >= 0 {
		p.AddNew(wire.CodeOutOfRange, fmt.Sprintf("%s[%d]", param, i), "%d is not in [0, %d]", ids[i], MaxTokenID)
	}
}

// checkLength compares the limits on the number of new tokens.
func checkLength(p *wire.Problems, param string, limit, minTokens *int, least int) {
	if limit != nil && *limit == Unlimited {
		return
	}
	if limit != nil && (*limit < least || *limit > MaxTokens) {
		p.AddNew(wire.CodeOutOfRange, param, "%d is not in [%d, %d]; %d means no limit", *limit, least, MaxTokens,
			Unlimited)
		return
	}
	if limit != nil && minTokens != nil && *minTokens > *limit && *limit >= least {
		p.AddNew(wire.CodeInvalidValue, "min_tokens", "%d is more than %s, which is %d", *minTokens, param, *limit)
	}
}
