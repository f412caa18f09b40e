package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sparrow/internal/jinja"
)

func newTemplate(t *testing.T, c TemplateConfig) *Template {
	t.Helper()
	f, err := NewTemplate(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func defaultModel(t *testing.T) *Template {
	t.Helper()
	source, err := os.ReadFile("testdata/default-model.jinja")
	if err != nil {
		t.Fatal(err)
	}
	return newTemplate(t, TemplateConfig{Source: string(source), BOS: deepseekBOS, EOS: deepseekEOS})
}

func TestDefaultModelRenderings(t *testing.T) {
	testRenderings(t, defaultModel(t), "default-model.json", nil)
}

func TestDefaultModelCallsAreRead(t *testing.T) {
	req := toolRequest()
	got, err := Parse(defaultModel(t).Parser(req), tags("[begin][call]weather[sep]{\"city\": \"Rome\"}[/call][end]"))
	want := Message{Role: Assistant, ToolCalls: calls("weather", `{"city": "Rome"}`)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, message (-want +got):\n%s", err, diff)
	}
}

// The markers in a template select its parser; if the template has none, the markers of the tokenizer do.
func TestTemplateParserFollowsMarkers(t *testing.T) {
	glm := "<tool_call>noop<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
	dsmlReply := tags("[calls][invoke name=\"noop\">{\"a\": 1}[/invoke][/calls]")
	for _, c := range []struct {
		name, source, reply string
		tokens              []string
	}{
		{"GLM markers in the template", "<tool_call><arg_key>", glm, nil},
		{"GLM markers among the tokens", "x", glm, []string{"<tool_call>", "<arg_key>"}},
		{"DSML of V3.2", "<｜DSML｜function_calls>", dsmlReply, nil},
		{"DSML of V4", "<｜DSML｜tool_calls>", strings.ReplaceAll(dsmlReply, "function_calls", "tool_calls"), nil},
		{"tokens of V3.1", callBegin + callSep, tags("[begin][call]noop[sep]{\"a\": 1}[/call][end]"), nil},
	} {
		f := newTemplate(t, TemplateConfig{Source: "{{ tools }}" + c.source + "<think>", Tokens: c.tokens})
		got, err := Parse(f.Parser(toolRequest()), "hm</think>"+c.reply)
		want := Message{Role: Assistant, Reasoning: "hm", ToolCalls: calls("noop", `{"a": 1}`)}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v, message (-want +got):\n%s", c.name, err, diff)
		}
	}
	plain := newTemplate(t, TemplateConfig{Source: "{{ tools }}"})
	if got, err := Parse(plain.Parser(toolRequest()), glm); got.Content != glm || err != nil {
		t.Errorf("without markers: content %q, error %v, want the reply as it is", got.Content, err)
	}
}

func TestTemplateVariables(t *testing.T) {
	yes := true
	user := []Message{{Role: User, Content: "hi", Name: "Ann"}}
	call := []Message{user[0], {Role: Assistant, Reasoning: "r",
		ToolCalls: []Call{{ID: "c", Name: "f", Arguments: `{"b":1,"a":"x"}`}}}}
	for _, c := range []struct {
		name, source string
		req          Request
		want         string
	}{
		{"special tokens", "{{ bos_token }}{{ eos_token }}{{ pad_token }}", Request{Messages: user}, "<s></s><pad>"},
		{"generation prompt", "{{ add_generation_prompt }}", Request{Messages: user, AddGenerationPrompt: true},
			"True"},
		{"no tools is none", "{{ tools is none }}{{ tools is defined }}", Request{Messages: user}, "TrueTrue"},
		{"tools have all fields", "{{ tools | tojson }}", Request{Messages: user, Tools: []Tool{{Name: "f"}}},
			`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, "description": ""}}]`},
		{"tool choice none hides tools", "{{ tools is none }}",
			Request{Messages: user, Tools: []Tool{{Name: "f"}}, ToolChoice: ToolChoice{Mode: ChoiceNone}}, "True"},
		{"thinking has two names", "{{ thinking }}{{ enable_thinking }}", Request{Messages: user, Thinking: &yes},
			"TrueTrue"},
		{"thinking unset is undefined", "{{ thinking is defined }}", Request{Messages: user}, "False"},
		{"effort", "{{ reasoning_effort }}", Request{Messages: user, Effort: "high"}, "high"},
		{"extra arguments", "{{ x.b }}{{ x | tojson }}",
			Request{Messages: user, Kwargs: map[string]json.RawMessage{"x": json.RawMessage(`{"b":1,"a":2}`)}},
			`1{"b": 1, "a": 2}`},
		{"message fields", "{{ messages[0] | tojson }}", Request{Messages: user},
			`{"role": "user", "content": "hi", "name": "Ann"}`},
		{"arguments are mappings", "{{ messages[1] | tojson }}", Request{Messages: call},
			`{"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": "x"}}}]}`},
		{"arguments are text for templates that only join text",
			"{% for m in messages %}{% for c in m.tool_calls %}{{ '<' + c.function.arguments + '>' }}{% endfor " +
				"%}{% endfor %}", Request{Messages: call}, `<{"b": 1, "a": "x"}>`},
		{"the clock", "{{ strftime_now('%d %B %Y') }}", Request{Messages: user}, "04 July 2026"},
		{"continuing keeps the last space", "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}",
			Request{Messages: []Message{user[0], {Role: Assistant, Content: " So "}}, ContinueFinal: true}, "[hi][So"},
		{"continuing with the space kept by the template", "{% for m in messages %}[{{ m.content }}]{% endfor %}",
			Request{Messages: []Message{user[0], {Role: Assistant, Content: "So "}}, ContinueFinal: true}, "[hi][So "},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newTemplate(t, TemplateConfig{Source: c.source, BOS: "<s>", EOS: "</s>",
				Special: map[string]string{"pad_token": "<pad>"}, Now: func() time.Time {
					return time.Date(2026, 7, 4, 0, 0, 0, 0, time.UTC)
				}})
			p, err := f.Render(c.req)
			if err != nil || p.Text != c.want {
				t.Errorf("rendered %q, error %v, want %q", p.Text, err, c.want)
			}
			if p.HasBOS != strings.HasPrefix(c.want, "<s>") {
				t.Errorf("HasBOS is %v for %q", p.HasBOS, p.Text)
			}
		})
	}
}

func TestTemplateErrors(t *testing.T) {
	user := []Message{{Role: User, Content: "hi"}}
	for _, c := range []struct {
		name, source string
		req          Request
		is           error
		has          string
	}{
		{"does not compile", "{% if %}", Request{}, ErrTemplate, "line 1"},
		{"refuses", "{{ raise_exception('no system') }}", Request{Messages: user}, ErrRequest, "no system"},
		{"fails", "{{ messages[0].content.nope() }}", Request{Messages: user}, ErrTemplate, "line 1, column"},
		{"has no place for tools", "{{ messages[0].content }}", Request{Messages: user, Tools: []Tool{{Name: "f"}}},
			ErrUnsupported, "tools"},
		{"has no effort levels", "{{ messages[0].content }}", Request{Messages: user, Effort: "high"}, ErrUnsupported,
			"reasoning_effort"},
		{"does not read an argument", "{{ messages[0].content }}",
			Request{Messages: user, Kwargs: map[string]json.RawMessage{"foo": json.RawMessage("1")}}, ErrRequest,
			"chat_template_kwargs.foo"},
		{"runs away", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
			Request{Messages: user}, jinja.ErrLimit, "steps"},
		{"tools on a message", "{{ tools }}", Request{Messages: []Message{{Role: System, Tools: []Tool{{Name: "f"}}}}},
			ErrUnsupported, "messages[0].tools"},
		{"continues nothing", "x", Request{Messages: []Message{{Role: Assistant}}, ContinueFinal: true}, ErrRequest,
			"messages[0].content"},
		{"changes the text", "x", Request{Messages: []Message{{Role: Assistant, Content: "y"}}, ContinueFinal: true},
			ErrUnsupported, "continued"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := NewTemplate(TemplateConfig{Source: c.source, Limits: jinja.Limits{Steps: 100_000}})
			if err == nil {
				_, err = f.Render(c.req)
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.has) {
				t.Errorf("error %v, want one that wraps %v and has %q", err, c.is, c.has)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	v31 := "{{ bos_token }}{% if thinking %}" + deepseekUser + callsBegin + callSep + outputBegin + "{% endif %}"
	for _, c := range []struct {
		name string
		s    Source
		want string
	}{
		{"V3.2 ships no template", Source{ModelType: "deepseek_v32"}, "deepseek-v3.2"},
		{"V3.2-Exp ships V3.1's template", Source{ModelType: "deepseek_v32", ChatTemplate: v31, BOS: deepseekBOS},
			"deepseek-v3.1"},
		{"a template with tools wins",
			Source{ModelType: "deepseek_v32", ChatTemplate: v31 + "{{ tools }}", BOS: deepseekBOS}, "template"},
		{"V4 ships no template", Source{ModelType: "deepseek_v4"}, "deepseek-v4-preview"},
		{"GLM-5", Source{ModelType: "glm_moe_dsa"}, "glm-5"},
		{"GLM-5.2", Source{ModelType: "glm_moe_dsa", SharedIndexer: true}, "glm-5.2"},
		{"GLM with a template", Source{ModelType: "glm_moe_dsa", ChatTemplate: "[gMASK]<sop>{{ messages }}"},
			"template"},
		{"forced", Source{ModelType: "glm_moe_dsa", Family: "deepseek-v3.2"}, "deepseek-v3.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Detect(c.s)
			if err != nil || f.Name() != c.want {
				t.Errorf("got %v, error %v, want %s", f, err, c.want)
			}
		})
	}
	for _, s := range []Source{{ModelType: "llama"}, {Family: "chatml"}, {Family: "template"}} {
		if f, err := Detect(s); !errors.Is(err, ErrNoFormat) || f != nil {
			t.Errorf("%+v: format %v, error %v, want ErrNoFormat", s, f, err)
		}
	}
	if f, err := Detect(Source{ChatTemplate: "{% if %}"}); !errors.Is(err, ErrTemplate) || f != nil {
		t.Errorf("broken template: format %v, error %v", f, err)
	}
}

func TestTokenizerConfig(t *testing.T) {
	for _, c := range []struct{ name, data, template, bos, eos string }{
		{"objects",
			`{"bos_token": {"content": "<s>"}, "eos_token": {"content": "</s>"}, "unk_token": null, "chat_template": "t"}`,
			"t", "<s>", "</s>"},
		{"texts", `{"bos_token": "<s>", "eos_token": "</s>"}`, "", "<s>", "</s>"},
		{"named templates",
			`{"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]}`, "d", "", ""},
		{"a template for tools",
			`{"chat_template": [{"name": "tool_use", "template": "u"}, {"name": "default", "template": "d"}]}`, "u", "",
			""},
	} {
		var s Source
		if err := s.ReadTokenizerConfig([]byte(c.data)); err != nil || s.ChatTemplate != c.template || s.BOS != c.bos ||
			s.EOS != c.eos {
			t.Errorf("%s: %+v, error %v", c.name, s, err)
		}
	}
	var s Source
	if err := s.ReadTokenizerConfig([]byte(`{"chat_template": 5}`)); err == nil {
		t.Error("a number as chat_template gave no error")
	}
}

// Opening a checkpoint fails if its template cannot render any chat.
func TestBrokenTemplatesAreFoundAtStart(t *testing.T) {
	for src, want := range map[string]error{
		"{{ messages[0].nothing.content }}":                 ErrTemplate,
		"{% for i in range(99999999) %}{% endfor %}":        jinja.ErrLimit,
		"{{ raise_exception('this model does not chat') }}": jinja.ErrRaised,
	} {
		if _, err := Detect(Source{ModelType: "deepseek_v32", ChatTemplate: src}); !errors.Is(err, want) ||
			!strings.Contains(err.Error(), "a chat of one message") {
			t.Errorf("%s: %v, want %v", src, err, want)
		}
	}
}
