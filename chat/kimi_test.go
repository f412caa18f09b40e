package chat

import (
	"strings"
	"testing"
)

// The model type selects the chat format of a checkpoint without a template. For a template, the markers in its text
// select the parser of calls.
func TestFormatsOfDenseModels(t *testing.T) {
	for kind, want := range map[string]string{"kimi_k2": "kimi-k2", "kimi_k25": "kimi-k2.5", "glm4_moe_lite": "glm-5",
		"deepseek_v3": "deepseek-v3.1"} {
		f, err := Detect(Source{ModelType: kind})
		if err != nil || f.Name() != want {
			t.Errorf("%s: %v, %v; want %s", kind, f, err, want)
		}
	}
	for source, want := range map[string]CallSyntax{
		"{{ messages[0].content }}" + kimiCallBegin + kimiArguments:                kimiCalls,
		"{{ messages[0].content }}" + callBegin + "function" + callSep + "```json": v3Calls,
		"{{ messages[0].content }}" + callBegin + callSep:                          v31Calls,
	} {
		f, err := NewTemplate(TemplateConfig{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := f.CallSyntax(); !ok || got.Open != want.Open || got.Sep != want.Sep {
			t.Errorf("%s: calls are %+v", strings.TrimPrefix(source, "{{"), got)
		}
	}
}
