package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wireRequest is a request as written in the tables of testdata.
type wireRequest struct {
	Messages []struct {
		Role, Content, Reasoning, Name string
		ToolCallID                     string `json:"tool_call_id"`
		ToolCalls                      []Call `json:"tool_calls"`
		Tools                          []Tool
		ResponseFormat                 json.RawMessage `json:"response_format"`
	}
	Tools          []Tool
	ToolChoice     string `json:"tool_choice"`
	Thinking       *bool
	Effort         string
	ResponseFormat json.RawMessage `json:"response_format"`
	NoGeneration   bool            `json:"no_generation_prompt"`
	Continue       bool
	Kwargs         map[string]json.RawMessage
}

func (w wireRequest) request() Request {
	r := Request{Tools: w.Tools, Thinking: w.Thinking, Effort: w.Effort, ResponseFormat: w.ResponseFormat,
		AddGenerationPrompt: !w.NoGeneration && !w.Continue, ContinueFinal: w.Continue, Kwargs: w.Kwargs}
	switch w.ToolChoice {
	case "none":
		r.ToolChoice.Mode = ChoiceNone
	case "required":
		r.ToolChoice.Mode = ChoiceRequired
	case "auto", "":
	default:
		r.ToolChoice = ToolChoice{Mode: ChoiceFunction, Name: w.ToolChoice}
	}
	for _, m := range w.Messages {
		r.Messages = append(r.Messages,
			Message{Role: Role(m.Role), Content: m.Content, Reasoning: m.Reasoning, Name: m.Name,
				ToolCallID: m.ToolCallID, ToolCalls: m.ToolCalls, Tools: m.Tools, ResponseFormat: m.ResponseFormat})
	}
	return r
}

// renderingTable is the content of a file in testdata: requests and the expected prompts.
type renderingTable struct {
	Origin string
	Cases  []struct {
		Name        string
		Request     wireRequest
		Want        []string // the parts are joined to one prompt
		InReasoning bool     `json:"in_reasoning"`
		Error       string   // part of the error message; Want is absent if it is set
	}
}

func readTable(t *testing.T, name string) renderingTable {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var table renderingTable
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&table); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return table
}

// testRenderings checks the prompts of a table of requests. $TOOLS and $FORMAT stand for the long instruction texts,
// which are tested separately.
func testRenderings(t *testing.T, f Format, file string, texts map[string]string) {
	for _, c := range readTable(t, file).Cases {
		t.Run(c.Name, func(t *testing.T) {
			p, err := f.Render(c.Request.request())
			if c.Error != "" {
				if err == nil || !strings.Contains(err.Error(), c.Error) {
					t.Fatalf("error %v, want one with %q", err, c.Error)
				}
				if !errors.Is(err, ErrRequest) && !errors.Is(err, ErrUnsupported) {
					t.Errorf("error %v wraps neither ErrRequest nor ErrUnsupported", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Join(c.Want, "")
			for name, text := range texts {
				want = strings.ReplaceAll(want, name, text)
			}
			if diff := cmp.Diff(want, p.Text); diff != "" {
				t.Errorf("prompt (-want +got):\n%s", diff)
			}
			if p.InReasoning != c.InReasoning {
				t.Errorf("InReasoning is %v, want %v", p.InReasoning, c.InReasoning)
			}
			if !p.HasBOS || len(p.Stop) == 0 {
				t.Errorf("HasBOS is %v and Stop is %q; the families write BOS themselves and have stops", p.HasBOS,
					p.Stop)
			}
			begins := 1
			if _, ok := f.(Kimi); ok {
				begins = 0
			}
			if n := strings.Count(p.Text, deepseekBOS) + strings.Count(p.Text, glmStart); n != begins {
				t.Errorf("the prompt has %d beginning markers, want %d", n, begins)
			}
		})
	}
}

func TestDeepSeekV32Renderings(t *testing.T) {
	testRenderings(t, DeepSeekV32{}, "deepseek-v3.2.json",
		map[string]string{"$TOOLS": v32ToolsPrefix, "$FORMAT": dsmlFormatPrefix})
}

func TestDeepSeekV4Renderings(t *testing.T) {
	testRenderings(t, DeepSeekV4{}, "deepseek-v4.json",
		map[string]string{"$TOOLS": v4ToolsPrefix, "$END": v4ToolsSuffix,
			"$FORMAT": dsmlFormatPrefix, "$STRONG": v4EffortStrong, "$BEYOND": v4EffortBeyond})
}

func TestDeepSeekV31Renderings(t *testing.T) {
	testRenderings(t, DeepSeekV31{}, "deepseek-v3.1.json", map[string]string{"$TAIL": v31ToolsTail})
}

func TestKimiRenderings(t *testing.T) {
	testRenderings(t, Kimi{}, "kimi-k2.json", nil)
	testRenderings(t, Kimi{Thinks: true}, "kimi-k2.5.json", nil)
}

func TestGLM5Renderings(t *testing.T) {
	testRenderings(t, GLM5{}, "glm-5.json", map[string]string{"$HEAD": glmToolsHead, "$TAIL": glmToolsTail})
}

func TestGLM53FlashRenderings(t *testing.T) {
	testRenderings(t, GLM5{V52: true, Flash: true}, "glm-5.3-flash.json",
		map[string]string{"$HEAD": glmToolsHead, "$TAIL": glmToolsTail})
}

func TestGLM52Renderings(t *testing.T) {
	testRenderings(t, GLM5{V52: true}, "glm-5.2.json", map[string]string{"$HEAD": glmToolsHead, "$TAIL": glmToolsTail})
}
