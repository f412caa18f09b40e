package chat

import (
	"encoding/json"
	"strings"
	"testing"
)

// The encoder file of a DeepSeek-V4 checkpoint decides which release's effort levels apply; without the file,
// config.json decides.
func TestEffortProfiles(t *testing.T) {
	for _, c := range []struct {
		name string
		src  Source
		want string
	}{
		{"April, by its encoder", Source{Encoder: "REASONING_EFFORT_MAX = 1"}, "deepseek-v4-preview"},
		{"July, by its encoder", Source{Encoder: "REASONING_EFFORT_PROMPTS = {}"}, "deepseek-v4"},
		{"June, by its encoder", Source{Encoder: "REASONING_EFFORT_MAX", DSpark: true}, "deepseek-v4-preview"},
		{"April, by its config", Source{Name: "DeepSeek-V4-Flash"}, "deepseek-v4-preview"},
		{"July, by its config", Source{Name: "DeepSeek-V4-Flash-0731", DSpark: true}, "deepseek-v4"},
		{"June, by its name", Source{Name: "DeepSeek-V4-Flash-DSpark", DSpark: true}, "deepseek-v4-preview"},
		{"as asked for", Source{Family: "deepseek-v4", Encoder: "REASONING_EFFORT_MAX"}, "deepseek-v4"},
	} {
		c.src.ModelType = "deepseek_v4"
		f, err := Detect(c.src)
		if err != nil || f.Name() != c.want {
			t.Errorf("%s: %v, %v; want %s", c.name, f, err, c.want)
		}
	}
}

// A request can select the DeepSeek-V4 release whose effort levels apply.
func TestEffortProfileOfARequest(t *testing.T) {
	on := true
	render := func(f DeepSeekV4, effort, profile string) string {
		t.Helper()
		req := Request{Messages: []Message{{Role: User, Content: "Hello"}}, Thinking: &on, Effort: effort}
		if profile != "" {
			text, err := json.Marshal(profile)
			if err != nil {
				t.Fatal(err)
			}
			req.Kwargs = map[string]json.RawMessage{"effort_profile": text}
		}
		p, err := f.Render(req)
		if err != nil {
			return err.Error()
		}
		return p.Text
	}
	for _, c := range []struct{ effort, preview, official string }{
		{"", "", ""}, {"low", "is not supported", ""}, {"high", "", v4EffortStrong},
		{"max", v4EffortStrong, v4EffortBeyond},
	} {
		for _, f := range []DeepSeekV4{{Preview: true}, {}} {
			if got := render(f, c.effort, "preview"); !strings.Contains(got, c.preview) ||
				c.preview == "" && strings.Contains(got, "Reasoning Effort") {
				t.Errorf("preview %q: %q lacks %q", c.effort, got, c.preview)
			}
			if got := render(f, c.effort, "official"); !strings.Contains(got, c.official) ||
				c.official == "" && strings.Contains(got, "Reasoning Effort") {
				t.Errorf("official %q: %q lacks %q", c.effort, got, c.official)
			}
		}
	}
	if got := render(DeepSeekV4{}, "high", "july"); !strings.Contains(got, "must be preview or official") {
		t.Errorf("an unknown profile gives %q", got)
	}
}
