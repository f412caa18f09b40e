//go:build openai

package clienttest

import (
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"sparrow"
	"sparrow/server"
)

func TestReasoning(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	on := option.WithJSONSet("chat_template_kwargs", map[string]bool{"thinking": true})
	whole := s.chat(t, ask(treesQuestion), on)
	wantChat(t, whole, "#### 154", "stop")
	thought := member[string](t, whole.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw(),
		"reasoning_content")
	if thought != "22 * 7 = 154" {
		t.Errorf("reasoning %q", thought)
	}
	if n := whole.Usage.CompletionTokensDetails.ReasoningTokens; n == 0 || n >= whole.Usage.CompletionTokens {
		t.Errorf("%d of %d tokens are reasoning", n, whole.Usage.CompletionTokens)
	}
	pieces := s.stream(t, ask(treesQuestion), on)
	var joined string
	for _, c := range pieces.chunks {
		if raw := c.Choices[0].Delta.JSON.ExtraFields["reasoning_content"].Raw(); raw != "" && raw != "null" {
			joined += member[string](t, raw, "reasoning_content")
		}
	}
	if joined != thought {
		t.Errorf("streamed reasoning %q, whole %q", joined, thought)
	}
	wantChat(t, &pieces.ChatCompletion, "#### 154", "stop")
	without := s.chat(t, ask(treesQuestion))
	if f := without.Choices[0].Message.JSON.ExtraFields["reasoning_content"]; f.Valid() && f.Raw() != `""` {
		t.Errorf("reasoning that was not requested: %s", f.Raw())
	}
}

// trace holds the fields of the sparrow object in a response that these tests read.
type trace struct {
	Traces []struct {
		Seed   int64 `json:"seed"`
		Prefix struct {
			MatchedTokens int    `json:"matched_tokens"`
			PromptTokens  int    `json:"prompt_tokens"`
			Stop          string `json:"stop"`
		} `json:"prefix"`
		Steps int `json:"steps"`
		Plans []struct {
			Steps    int `json:"steps"`
			Segments []struct {
				Row     string `json:"row"`
				Kernel  string `json:"kernel"`
				Reasons []any  `json:"reasons"`
			} `json:"segments"`
		} `json:"plans"`
	} `json:"traces"`
}

func TestTrace(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	on := option.WithJSONSet("sparrow", map[string]bool{"trace": true})
	// The prompt is longer than the 256 keys that the indexer selects.
	p := ask(story(28) + "Question: Tell me the pet of Maya.")
	p.Seed = openai.Int(5)
	s.chat(t, p)
	whole := s.chat(t, p, on)
	got := member[trace](t, whole.JSON.ExtraFields["sparrow"].Raw(), "trace")
	if len(got.Traces) != 1 {
		t.Fatalf("%d traces", len(got.Traces))
	}
	one := got.Traces[0]
	usage := whole.Usage
	if one.Seed != 5 || one.Prefix.PromptTokens != int(usage.PromptTokens) ||
		one.Prefix.MatchedTokens != int(usage.PromptTokensDetails.CachedTokens) ||
		one.Prefix.MatchedTokens == 0 || one.Prefix.Stop == "" {
		t.Errorf("trace %+v beside usage %s", one, usage.RawJSON())
	}
	steps, kernels := 0, map[string]bool{}
	for _, plan := range one.Plans {
		steps += plan.Steps
		for _, segment := range plan.Segments {
			kernels[segment.Kernel] = true
			if segment.Row == "" || len(segment.Reasons) == 0 {
				t.Errorf("a segment without row or reasons: %+v", segment)
			}
		}
	}
	if steps != one.Steps || !kernels["sparse-flat"] {
		t.Errorf("%d steps in the plans, %d in all; kernels %v, want sparse-flat among them", steps, one.Steps, kernels)
	}
	pieces := s.stream(t, p, on)
	end := pieces.last()
	if got := member[trace](t, end.JSON.ExtraFields["sparrow"].Raw(), "trace of a stream"); len(got.Traces) != 1 ||
		len(got.Traces[0].Plans) == 0 {
		t.Errorf("closing chunk: %s", end.RawJSON())
	}
	if without := s.chat(t, p); without.JSON.ExtraFields["sparrow"].Valid() {
		t.Errorf("a trace that was not requested: %s", without.RawJSON())
	}
}
