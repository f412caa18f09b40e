package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"sparrow/api/openai"
	"sparrow/api/openai/client"
	"sparrow/chat"
)

// RemoteConfig holds the address of a server and options.
type RemoteConfig struct {
	URL   string // such as http://localhost:8000 or https://host/v1
	Model string // name in requests; empty means the first model that the server lists
	Key   string // bearer token; empty means none
	// Timeout is the maximum time of one request; 0 means 10 minutes.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Minute

// Remote answers items with chat completions of a server with OpenAI's interface, and items with choices with text
// completions.
type Remote struct {
	cfg    RemoteConfig
	client *client.Client
}

// NewRemote returns a runner for a server. Without a model name it requests the server's list of models.
func NewRemote(ctx context.Context, c RemoteConfig) (*Remote, error) {
	if c.Timeout < 0 {
		return nil, fmt.Errorf("%w: the timeout is %v, want 0 or more", ErrRemote, c.Timeout)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	to, err := client.New(c.URL, c.Key, http.DefaultTransport)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRemote, err)
	}
	r := &Remote{cfg: c, client: to}
	if c.Model == "" {
		ctx, stop := context.WithTimeout(ctx, c.Timeout)
		defer stop()
		if r.cfg.Model, err = to.FirstModel(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRemote, err)
		}
	}
	return r, nil
}

// About returns the model and the server.
func (r *Remote) About() About { return About{Model: r.cfg.Model, URL: r.client.Base() + "/v1"} }

// chatBody is the request of an item. It has only fields that every server supports. The field for reasoning is sent
// only if the item needs it.
type chatBody struct {
	wireItem
	Temperature float64         `json:"temperature"`
	MaxTokens   int             `json:"max_tokens"`
	Kwargs      map[string]bool `json:"chat_template_kwargs,omitempty"`
	Format      *formatBody     `json:"response_format,omitempty"`
}

// formatBody requests an answer that follows a schema.
type formatBody struct {
	Type string `json:"type"`
	JSON struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// Answer sends a request for the item and returns the reply.
func (r *Remote) Answer(ctx context.Context, it *Item, most int) (Reply, error) {
	if it.Choices != nil {
		return r.choose(ctx, it)
	}
	body := chatBody{wireItem: wireItem{r.cfg.Model, it.Messages, it.Tools}, MaxTokens: most}
	if it.Thinking() {
		body.Kwargs = map[string]bool{"thinking": true}
	}
	if it.Schema != nil {
		body.Format = &formatBody{Type: "json_schema"}
		body.Format.JSON.Name, body.Format.JSON.Schema = "answer", it.Schema
	}
	ctx, stop := context.WithTimeout(ctx, r.cfg.Timeout)
	defer stop()
	var res openai.ChatResponse
	if err := r.client.Call(ctx, http.MethodPost, "/v1/chat/completions", body, &res); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrRemote, err)
	}
	if len(res.Choices) != 1 {
		return Reply{}, fmt.Errorf("%w: the response has %d choices, want one", ErrRemote, len(res.Choices))
	}
	c := &res.Choices[0]
	out := Reply{Reasoning: c.Message.ReasoningContent,
		Ended:        c.FinishReason == openai.FinishStop || c.FinishReason == openai.FinishToolCalls,
		PromptTokens: res.Usage.PromptTokens, CompletionTokens: res.Usage.CompletionTokens}
	if d := res.Usage.PromptTokensDetails; d != nil {
		out.CachedTokens = d.CachedTokens
	}
	if c.Message.Content != nil {
		out.Text = *c.Message.Content
	}
	for _, t := range c.Message.ToolCalls {
		out.Calls = append(out.Calls, chat.Call{ID: t.ID, Name: t.Function.Name, Arguments: t.Function.Arguments})
	}
	return out, nil
}

// echoBody requests the log probabilities of texts: servers return them for echoed prompts. MaxTokens is 1, because
// some servers refuse 0.
type echoBody struct {
	Model       string   `json:"model"`
	Prompt      []string `json:"prompt"`
	Echo        bool     `json:"echo"`
	Logprobs    int      `json:"logprobs"`
	MaxTokens   int      `json:"max_tokens"`
	Temperature float64  `json:"temperature"`
	Special     bool     `json:"add_special_tokens"` // whether the server adds special tokens to a prompt; always false
}

// choose scores the choices of an item with text completions.
func (r *Remote) choose(ctx context.Context, it *Item) (Reply, error) {
	body := echoBody{Model: r.cfg.Model, Echo: true, Logprobs: 1, MaxTokens: 1}
	for _, c := range it.Choices {
		body.Prompt = append(body.Prompt, it.Prompt+c)
	}
	ctx, stop := context.WithTimeout(ctx, r.cfg.Timeout)
	defer stop()
	var res openai.CompletionResponse
	if err := r.client.Call(ctx, http.MethodPost, "/v1/completions", body, &res); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrRemote, err)
	}
	sums := make([]float64, len(it.Choices))
	seen := 0
	for i := range res.Choices {
		c := &res.Choices[i]
		if c.Index < 0 || c.Index >= len(sums) {
			continue
		}
		sum, err := continued(c.Logprobs, it.Prompt, it.Choices[c.Index])
		if err != nil {
			return Reply{}, fmt.Errorf("%w: %w", ErrRemote, err)
		}
		sums[c.Index] = sum
		seen++
	}
	if seen != len(sums) {
		return Reply{}, fmt.Errorf("%w: the response has %d of %d prompts", ErrRemote, seen, len(sums))
	}
	out := chosen(it, sums)
	if res.Usage != nil {
		out.PromptTokens, out.CompletionTokens = res.Usage.PromptTokens, res.Usage.CompletionTokens
	}
	return out, nil
}

// continued sums the log probabilities of the choice's tokens in an echoed text: all tokens that end after the prompt.
func continued(l *openai.CompletionLogprobs, prompt, choice string) (float64, error) {
	if l == nil || len(l.TextOffset) != len(l.TokenLogprobs) || len(l.TextOffset) == 0 {
		return 0, errors.New("the response has no log probabilities of the prompt; the server must support echo with " +
			"logprobs in /v1/completions")
	}
	from := utf8.RuneCountInString(prompt)
	to := from + utf8.RuneCountInString(choice)
	var sum float64
	for i, at := range l.TextOffset {
		end := to
		if i+1 < len(l.TextOffset) {
			end = l.TextOffset[i+1]
		}
		if end <= from || at >= to {
			continue
		}
		if l.TokenLogprobs[i] == nil {
			return 0, errors.New("the first token of a choice has no log probability; send a prompt of at least one " +
				"token")
		}
		sum += float64(*l.TokenLogprobs[i])
	}
	return sum, nil
}
