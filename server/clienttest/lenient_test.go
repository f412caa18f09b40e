//go:build openai

package clienttest

import (
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"sparrow"
	"sparrow/server"
)

func TestLimitsAboveTheContextAndUnknownFields(t *testing.T) {
	s := start(t, sparrow.Config{ContextTokens: 512}, server.Options{})
	for _, limit := range []int64{-1, 512, 1 << 30} {
		p := ask(nameQuestion)
		p.MaxTokens = openai.Int(limit)
		wantChat(t, s.chat(t, p, option.WithJSONSet("foo", 1)), nameAnswer, "stop")
	}
	p, on := endless(1 << 20)
	r := s.chat(t, p, on)
	if u := r.Usage; u.TotalTokens != 512 || r.Choices[0].FinishReason != "length" {
		t.Errorf("%d tokens in a context of 512, ended by %s", u.TotalTokens, r.Choices[0].FinishReason)
	}
}

// A message with a tool call that the token limit cut off can be sent back to the server in the next request.
func TestACallThatWasCutOffIsSentBack(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	cut := 0
	for limit := int64(4); limit < 40; limit += 3 {
		p := ask("What is the weather in Paris?")
		p.Tools, p.MaxTokens = tools(), openai.Int(limit)
		first := s.chat(t, p).Choices[0]
		if len(first.Message.ToolCalls) == 0 || first.FinishReason != "length" {
			continue
		}
		cut++
		p.Messages = append(p.Messages, first.Message.ToParam(), openai.UserMessage(nameQuestion))
		p.MaxTokens = openai.Int(4)
		s.chat(t, p)
	}
	if cut == 0 {
		t.Error("no limit cut a call off")
	}
}
