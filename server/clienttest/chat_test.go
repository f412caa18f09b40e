//go:build openai

package clienttest

import (
	"math"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/server"
)

func TestChat(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	r := s.chat(t, ask(treesQuestion))
	wantChat(t, r, treesAnswer, "stop")
	if !strings.HasPrefix(r.ID, "chatcmpl-") || r.Model != model || r.Object != "chat.completion" || r.Created == 0 ||
		r.Choices[0].Message.Role != "assistant" {
		t.Errorf("head: %s", r.RawJSON())
	}
	if u := r.Usage; u.PromptTokens == 0 || u.CompletionTokens == 0 ||
		u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("usage: %s", u.RawJSON())
	}
	// A conversation with an answer and a second question is accepted, with a system message and with content as parts
	// of text.
	more := ask("")
	more.Messages = []openai.ChatCompletionMessageParamUnion{
		openai.SystemMessage("You are Sparrow."), openai.UserMessage(treesQuestion), r.Choices[0].Message.ToParam(),
		openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("What are you "),
			openai.TextContentPart("called?")}),
	}
	wantChat(t, s.chat(t, more), nameAnswer, "stop")
}

func TestTheLikeliestAnswerIsAlwaysTheSame(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	for seed := range int64(4) {
		p := ask(treesQuestion)
		p.Seed = openai.Int(seed) // the seed has no effect, because decoding is greedy
		wantChat(t, s.chat(t, p), treesAnswer, "stop")
	}
}

func TestASeedRepeatsAnAnswer(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	draw := func(seed int64) string {
		p := ask(oddQuestion)
		p.Temperature, p.Seed, p.MaxTokens = openai.Float(2), openai.Int(seed), openai.Int(24)
		return text(t, s.chat(t, p))
	}
	first := draw(1)
	if again := draw(1); again != first {
		t.Errorf("seed 1 gave %q, then %q", first, again)
	}
	if draw(2) == first && draw(3) == first {
		t.Errorf("three seeds at temperature 2 all gave %q", first)
	}
}

func TestSeveralChoices(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(oddQuestion)
	p.N, p.Seed, p.Temperature, p.MaxTokens = openai.Int(3), openai.Int(7), openai.Float(2), openai.Int(16)
	whole := s.chat(t, p)
	if len(whole.Choices) != 3 {
		t.Fatalf("%d choices, want 3", len(whole.Choices))
	}
	distinct := map[string]bool{}
	for i, c := range whole.Choices {
		if c.Index != int64(i) || c.FinishReason == "" {
			t.Errorf("choice %d: %s", i, c.RawJSON())
		}
		distinct[c.Message.Content] = true
	}
	if len(distinct) == 1 {
		t.Errorf("three choices at temperature 2, all %q", whole.Choices[0].Message.Content)
	}
	pieces := s.stream(t, p)
	for i, c := range pieces.Choices {
		if want := whole.Choices[i]; c.Message.Content != want.Message.Content || c.FinishReason != want.FinishReason {
			t.Errorf("choice %d streamed: %q by %s, whole: %q by %s", i, c.Message.Content, c.FinishReason,
				want.Message.Content, want.FinishReason)
		}
	}
}

func TestLimitsAndStops(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	for _, c := range []struct {
		name            string
		change          func(*openai.ChatCompletionNewParams)
		content, finish string
	}{
		{"max_tokens", func(p *openai.ChatCompletionNewParams) { p.MaxTokens = openai.Int(4) }, "22 * ", "length"},
		{"max_completion_tokens", func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(4) },
			"22 * ", "length"},
		{"one stop string", func(p *openai.ChatCompletionNewParams) { p.Stop.OfString = openai.String("\n####") },
			"22 * 7 = 154", "stop"},
		{"the first of several stop strings to come", func(p *openai.ChatCompletionNewParams) {
			p.Stop.OfStringArray = []string{"####", " = 1", "never"}
		}, "22 * 7", "stop"},
		{"a stop string that never comes", func(p *openai.ChatCompletionNewParams) {
			p.Stop.OfString = openai.String("#### 155")
		}, treesAnswer, "stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := ask(treesQuestion)
			c.change(&p)
			whole := s.chat(t, p)
			wantChat(t, whole, c.content, c.finish)
			wantChat(t, &s.stream(t, p).ChatCompletion, c.content, c.finish)
			if c.finish == "length" && whole.Usage.CompletionTokens != 4 {
				t.Errorf("%d tokens, want 4", whole.Usage.CompletionTokens)
			}
		})
	}
}

func TestLogprobs(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(treesQuestion)
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(3)
	whole := s.chat(t, p)
	var spelled []byte
	for i, tok := range whole.Choices[0].Logprobs.Content {
		for _, b := range tok.Bytes {
			spelled = append(spelled, byte(b))
		}
		if tok.Logprob > 0 || math.Exp(tok.Logprob) < 0.2 {
			t.Errorf("token %d (%q) of the likeliest answer: log probability %v", i, tok.Token, tok.Logprob)
		}
		if len(tok.TopLogprobs) != 3 || tok.TopLogprobs[0].Token != tok.Token ||
			tok.TopLogprobs[0].Logprob != tok.Logprob {
			t.Errorf("token %d (%q) is not the first of its three alternatives: %s", i, tok.Token, tok.RawJSON())
			continue
		}
		total := 0.0
		for j, alt := range tok.TopLogprobs {
			total += math.Exp(alt.Logprob)
			if j > 0 && alt.Logprob > tok.TopLogprobs[j-1].Logprob {
				t.Errorf("token %d: alternatives out of order: %s", i, tok.RawJSON())
			}
		}
		if total > 1+1e-6 {
			t.Errorf("token %d: probabilities add up to %v", i, total)
		}
	}
	// The token that ends the answer is listed after the tokens of the text.
	if !strings.HasPrefix(string(spelled), treesAnswer) {
		t.Errorf("the tokens spell %q", spelled)
	}
	pieces := s.stream(t, p)
	if got, want := len(pieces.Choices[0].Logprobs.Content), len(whole.Choices[0].Logprobs.Content); got != want {
		t.Errorf("%d tokens streamed, %d whole", got, want)
	}
	if plain := s.chat(t, ask(treesQuestion)); len(plain.Choices[0].Logprobs.Content) != 0 {
		t.Errorf("log probabilities that were not requested: %s", plain.RawJSON())
	}
}

func TestModels(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	client := s.client()
	page, err := client.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Data) != 1 || page.Data[0].ID != model || page.Data[0].Object != "model" {
		t.Errorf("list: %+v", page.Data)
	}
	one, err := client.Models.Get(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	if one.ID != model || one.RawJSON() != page.Data[0].RawJSON() {
		t.Errorf("model: %s", one.RawJSON())
	}
}
