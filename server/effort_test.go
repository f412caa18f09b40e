package server

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/api/openai"
)

// The same table of requested and effective effort levels holds for the four interfaces, for every set of levels that a
// model has.
func TestEffortWords(t *testing.T) {
	interfaces := []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", `{"model":"sparrow-test","messages":[{"role":"user","content":"x"}],"reasoning_effort":%q}`},
		{"responses", responsesPath, `{"model":"sparrow-test","input":"x","reasoning":{"effort":%q}}`},
		{"messages", messagesPath, `{"model":"sparrow-test","max_tokens":9,"messages":[{"role":"user","content":"x"}],
			"output_config":{"effort":%q}}`},
		{"ollama", "/api/chat", `{"model":"sparrow-test","stream":false,"messages":[{"role":"user","content":"x"}],"think":%q}`},
	}
	for _, m := range []struct {
		name   string
		levels []string
		always bool
		used   []string // effective efforts in the order of openai.Efforts
	}{
		{"no levels", nil, false, []string{"none", "on", "on", "on", "on", "on", "on"}},
		{"high and max", []string{"high", "max"}, false,
			[]string{"none", "high", "high", "high", "high", "max", "max"}},
		{"low, high and max", []string{"low", "high", "max"}, false,
			[]string{"none", "low", "low", "high", "high", "max", "max"}},
		{"low and high", []string{"low", "high"}, false,
			[]string{"none", "low", "low", "high", "high", "high", "high"}},
		{"all, and no way to stop", openai.Efforts[1:], true,
			[]string{"minimal", "minimal", "low", "medium", "high", "xhigh", "max"}},
		{"no levels, and no way to stop", nil, true, []string{"on", "on", "on", "on", "on", "on", "on"}},
	} {
		e := newFake(saying("x"))
		e.info.Efforts, e.info.AlwaysThinks = m.levels, m.always
		_, hs := start(t, e, Options{})
		for _, i := range interfaces {
			for w, word := range openai.Efforts {
				used := m.used[w]
				got := post(t, hs.URL+i.path, fmt.Sprintf(i.body, word))
				told := used
				if used != word {
					told += "; asked=" + word
				}
				if got.status != 200 || got.header.Get(effortHeader) != told {
					t.Errorf("%s, %s, %s: status %d, %s %q, want %q: %s", m.name, i.name, word, got.status,
						effortHeader, got.header.Get(effortHeader), told, got.body)
					continue
				}
				if i.name == "responses" {
					repeated := fmt.Sprintf(`"reasoning":{"effort":%q`, used)
					if used == effortOn {
						repeated = `"reasoning":{"effort":null`
					}
					if !strings.Contains(got.body, repeated) {
						t.Errorf("%s, %s: the response has no %s: %s", m.name, word, repeated, got.body)
					}
				}
				c := e.last(t).Chat
				level := used
				if used == effortOn || used == openai.EffortNone {
					level = ""
				}
				// A model that always reasons ignores a request to turn reasoning off.
				thinks := c.Thinking != nil && *c.Thinking
				if c.Effort != level || thinks != (used != openai.EffortNone) && word != openai.EffortNone {
					t.Errorf("%s, %s, %s: the model is told %q, thinking %v", m.name, i.name, word, c.Effort, thinks)
				}
			}
			if got := post(t, hs.URL+i.path, fmt.Sprintf(i.body, "huge")); got.status != 400 {
				t.Errorf("%s: an unknown word has status %d", i.name, got.status)
			}
		}
	}
}

func TestAnEffortAndASwitch(t *testing.T) {
	e := newFake(saying("x"))
	e.info.Efforts = []string{"low", "high"}
	_, hs := start(t, e, Options{})
	chat := `{"model":"sparrow-test","messages":[{"role":"user","content":"x"}],"reasoning_effort":"high",`
	for _, c := range []struct {
		name, body, told string
		on               bool
	}{
		{"switched off", chat + `"thinking":{"type":"disabled"}}`, "none; asked=high", false},
		{"switched on", chat + `"thinking":{"type":"enabled","budget_tokens":7}}`, "high", true},
		{"by the template", chat + `"chat_template_kwargs":{"enable_thinking":false}}`, "none; asked=high", false},
	} {
		got := post(t, hs.URL+"/v1/chat/completions", c.body)
		r := e.last(t)
		if got.status != 200 || got.header.Get(effortHeader) != c.told || *r.Chat.Thinking != c.on {
			t.Errorf("%s: %d %q %+v", c.name, got.status, got.header.Get(effortHeader), r.Chat)
		}
		if c.name == "switched on" && r.MaxReasoning != 7 {
			t.Errorf("a budget of %d", r.MaxReasoning)
		}
	}
	if r := respond(t, hs.URL, asked+`,"reasoning":{"effort":"medium"}}`); *r.Reasoning.Effort != "high" {
		t.Errorf("the response says %q", *r.Reasoning.Effort)
	}
}
