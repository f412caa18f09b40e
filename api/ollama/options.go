package ollama

import (
	"fmt"
	"strings"

	"sparrow/api/openai"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// optionFields holds the members of options. Options for loading a model have no effect, because the model is already
// loaded.
var optionFields = wire.Join(
	wire.Lift(openai.SamplingFields("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty",
		"frequency_penalty", "stop"), func(r *Request) *openai.Options { return &r.Options }),
	wire.Fields[Request]{
		"num_predict":    wire.OptionalInt(func(r *Request) **int { return &r.MaxTokens }),
		"repeat_penalty": wire.OptionalFloat(func(r *Request) **float64 { return &r.Options.RepetitionPenalty }),

		"num_ctx": ignoreNumber, "num_keep": ignoreNumber, "repeat_last_n": ignoreNumber, "num_batch": ignoreNumber,
		"num_gpu": ignoreNumber, "main_gpu": ignoreNumber, "num_thread": ignoreNumber,
		"use_mmap": ignoreBool, "use_mlock": ignoreBool, "low_vram": ignoreBool, "numa": ignoreBool,
		"vocab_only": ignoreBool, "f16_kv": ignoreBool, "penalize_newline": ignoreBool,

		"mirostat":     {Read: only(0, "answers are sampled by temperature, top_k, top_p and min_p")},
		"mirostat_tau": ignoreNumber, "mirostat_eta": ignoreNumber,
		"typical_p": {Read: only(1, "use top_p or min_p")},
		"tfs_z":     {Read: only(1, "use top_p or min_p")},
	},
)

var (
	ignoreNumber = wire.IgnoreAs[Request](jsonscan.Number)
	ignoreBool   = wire.IgnoreAs[Request](jsonscan.Bool)
)

// only returns a reader that refuses every number except off, which disables a sampling method.
func only(off float64, instead string) func(*wire.Reader, *Request) {
	return func(c *wire.Reader, _ *Request) {
		if v, ok := c.Float(); ok && v != off {
			c.Problem(wire.CodeUnsupportedValue, "%v is not supported, only %v: %s", v, off, instead)
		}
	}
}

func (r *Request) checkChat(p *wire.Problems) {
	r.checkCommon(p)
	openai.CheckTools(p, r.Tools)
	for i := range r.Messages {
		r.Messages[i].check(p, fmt.Sprintf("messages[%d]", i))
	}
}

func (r *Request) checkGenerate(p *wire.Problems) {
	r.checkCommon(p)
	if r.Raw && r.System != "" {
		p.AddNew(wire.CodeInvalidValue, "system", "not allowed with raw, which completes the prompt unchanged")
	}
}

func (r *Request) checkCommon(p *wire.Problems) {
	if r.Model == "" {
		p.AddNew(wire.CodeMissing, "model", "required; GET /api/tags lists the names")
	}
	wire.WantRange(p, "options.temperature", r.Options.Temperature, 0, openai.MaxTemperature)
	if v := r.Options.TopP; v != nil && !(*v >= 0 && *v <= 1) {
		p.AddNew(wire.CodeOutOfRange, "options.top_p", "%v is not in [0, 1]", *v)
	}
	wire.WantRange(p, "options.min_p", r.Options.MinP, 0, 1)
	wire.WantRange(p, "options.repeat_penalty", r.Options.RepetitionPenalty, 1/openai.MaxRepetition,
		openai.MaxRepetition)
	wire.WantRange(p, "options.presence_penalty", r.Options.PresencePenalty, -openai.MaxPenalty, openai.MaxPenalty)
	wire.WantRange(p, "options.frequency_penalty", r.Options.FrequencyPenalty, -openai.MaxPenalty, openai.MaxPenalty)
	wire.WantRange(p, "options.num_predict", r.MaxTokens, -2, openai.MaxTokens)
	for i, s := range r.Options.Stop {
		at := fmt.Sprintf("options.stop[%d]", i)
		if s == "" {
			p.AddNew(wire.CodeInvalidValue, at, "an empty stop string would end every answer at once; omit it")
		}
		wire.WantShort(p, at, s, openai.MaxStopBytes)
	}
}

func (m *Message) check(p *wire.Problems, at string) {
	switch m.Role {
	case openai.RoleSystem, openai.RoleUser, openai.RoleAssistant, openai.RoleTool:
	case "":
		p.AddNew(wire.CodeMissing, at+".role", "required: system, user, assistant or tool")
	default:
		p.AddNew(wire.CodeInvalidValue, at+".role", "%q is not system, user, assistant or tool",
			jsonscan.Clip(m.Role))
	}
	if len(m.Calls) > 0 && m.Role != openai.RoleAssistant {
		p.AddNew(wire.CodeInvalidValue, at+".tool_calls", "only an assistant message may have tool calls")
	}
	for i := range m.Calls {
		if m.Calls[i].Name == "" {
			p.AddNew(wire.CodeMissing, fmt.Sprintf("%s.tool_calls[%d].function.name", at, i), "required")
		}
	}
}

// ModelName returns the name of a model without the tag for the latest version.
func ModelName(name string) string { return strings.TrimSuffix(name, ":latest") }
