package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Source holds the properties of a checkpoint that determine its chat format.
type Source struct {
	// Family forces a format by name: deepseek-v4, deepseek-v4-preview, deepseek-v3.2, deepseek-v3.1, glm-5, glm-5.2,
	// glm-5.3-flash, kimi-k2, kimi-k2.5 or template. Empty means detection.
	Family string
	// ModelType is model_type of config.json.
	ModelType string
	// SharedIndexer reports that layers share an indexer according to config.json, which distinguishes GLM-5.2 from
	// GLM-5.
	SharedIndexer bool
	// Encoder is the text of the Python file that comes with a DeepSeek-V4 release, or empty; it is never run. DSpark
	// reports that config.json describes a DSpark head. Encoder, DSpark and Name (the folder or repository) distinguish
	// releases.
	Encoder string
	DSpark  bool
	Name    string
	// ChatTemplate is the Jinja source, or empty.
	ChatTemplate string
	// BOS and EOS are the texts of the sequence tokens; Special holds all special tokens by template name.
	BOS, EOS string
	Special  map[string]string
	// Tokens are the texts of the tokenizer's added tokens; optional.
	Tokens []string
	// Now is the clock for templates that print the date; optional.
	Now func() time.Time
}

// Detect chooses the format of a checkpoint.
//
// A chat template of the checkpoint takes precedence, with one exception: DeepSeek's V3.1 template does not mention
// tools although the model was trained on them. The native format is used instead; it writes the same text otherwise.
// Without a template the model type selects the format.
func Detect(s Source) (Format, error) {
	family := s.Family
	if family == "" {
		family = s.family()
	}
	switch family {
	case "deepseek-v3.2":
		return DeepSeekV32{}, nil
	case "deepseek-v3.1":
		return DeepSeekV31{}, nil
	case "deepseek-v4":
		return DeepSeekV4{}, nil
	case "deepseek-v4-preview":
		return DeepSeekV4{Preview: true}, nil
	case "deepseek-v4.1":
		return DeepSeekV41{}, nil
	case "glm-5":
		return GLM5{}, nil
	case "glm-5.2":
		return GLM5{V52: true}, nil
	case "glm-5.3-flash":
		return GLM5{V52: true, Flash: true}, nil
	case "kimi-k2":
		return Kimi{}, nil
	case "kimi-k2.5":
		return Kimi{Thinks: true}, nil
	case "template":
		if s.ChatTemplate == "" {
			return nil, fmt.Errorf("%w: the template format was requested, but the checkpoint has no chat_template",
				ErrNoFormat)
		}
		c := TemplateConfig{Source: s.ChatTemplate, BOS: s.BOS, EOS: s.EOS, Special: s.Special, Tokens: s.Tokens,
			Now: s.Now}
		if strings.Contains(s.ChatTemplate, glmStart) {
			c.BOS, c.Stop = glmStart, []string{glmUser, glmObservation}
		}
		t, err := NewTemplate(c)
		if err == nil {
			err = t.Try()
		}
		if err != nil {
			return nil, err // a typed nil must not become a Format that is not nil
		}
		return t, nil
	case "":
		return nil, fmt.Errorf("%w: model_type %q has no chat_template; only these work without one: deepseek_v32, "+
			"deepseek_v3, deepseek_v4, deepseek_v41, glm_moe_dsa, glm5_next, glm4_moe_lite, kimi_k2 and kimi_k25; add "+
			"a template to tokenizer_config.json or name a family",
			ErrNoFormat, s.ModelType)
	}
	return nil, fmt.Errorf("%w: family %q is unknown; want deepseek-v4, deepseek-v4-preview, deepseek-v4.1, "+
		"deepseek-v3.2, deepseek-v3.1, glm-5, glm-5.2, glm-5.3-flash, kimi-k2, kimi-k2.5 or template", ErrNoFormat,
		family)
}

func (s Source) family() string {
	switch {
	case s.isV31Template():
		return "deepseek-v3.1"
	case s.ChatTemplate != "":
		return "template"
	case s.ModelType == "deepseek_v32":
		return "deepseek-v3.2"
	case s.ModelType == "deepseek_v4" && s.isV4Preview():
		return "deepseek-v4-preview"
	case s.ModelType == "deepseek_v4":
		return "deepseek-v4"
	case s.ModelType == "deepseek_v41":
		return "deepseek-v4.1"
	case s.ModelType == "deepseek_v3":
		return "deepseek-v3.1"
	case s.ModelType == "glm_moe_dsa" && s.SharedIndexer:
		return "glm-5.2"
	case s.ModelType == "glm_moe_dsa" || s.ModelType == "glm4_moe_lite":
		return "glm-5"
	case s.ModelType == "glm5_next":
		return "glm-5.3-flash"
	case s.ModelType == "kimi_k2":
		return "kimi-k2"
	case s.ModelType == "kimi_k25":
		return "kimi-k2.5"
	}
	return ""
}

// isV4Preview reports whether a release is one of April or June 2026, whose effort levels are high and max. If there is
// an encoder file, it distinguishes releases (dspark spec, 8). Otherwise a config with a DSpark head belongs to a later
// release, except in the repositories of June, which have DSpark in their names.
func (s Source) isV4Preview() bool {
	switch {
	case strings.Contains(s.Encoder, "REASONING_EFFORT_PROMPTS"):
		return false
	case strings.Contains(s.Encoder, "REASONING_EFFORT_MAX"):
		return true
	}
	return !s.DSpark || strings.Contains(strings.ToLower(s.Name), "dspark")
}

// isV31Template recognises DeepSeek's own template by its marker tokens and by the absence of the word tools.
func (s Source) isV31Template() bool {
	for _, marker := range []string{callsBegin, callSep, outputBegin, deepseekUser, "thinking"} {
		if !strings.Contains(s.ChatTemplate, marker) {
			return false
		}
	}
	return s.BOS == deepseekBOS && !strings.Contains(s.ChatTemplate, "tools")
}

// ReadTokenizerConfig fills the template and the special tokens from tokenizer_config.json. If there are several named
// templates, it uses tool_use, else the default.
func (s *Source) ReadTokenizerConfig(data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("chat: tokenizer_config.json: %w", err)
	}
	s.Special = map[string]string{}
	for name, raw := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		if text, ok := tokenText(raw); ok {
			s.Special[name] = text
		}
	}
	s.BOS, s.EOS = s.Special["bos_token"], s.Special["eos_token"]
	raw, ok := fields["chat_template"]
	if !ok {
		return nil
	}
	if json.Unmarshal(raw, &s.ChatTemplate) == nil {
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return fmt.Errorf(
			"chat: tokenizer_config.json: chat_template is neither a text nor a list of named templates: %w", err)
	}
	for _, wanted := range []string{"default", "tool_use"} {
		for _, t := range named {
			if t.Name == wanted {
				s.ChatTemplate = t.Template
			}
		}
	}
	return nil
}

// tokenText reads a token that is written as text or as an object with its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return text, true
	}
	var object struct{ Content string }
	if json.Unmarshal(raw, &object) == nil && object.Content != "" {
		return object.Content, true
	}
	return "", false
}
