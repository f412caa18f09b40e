package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sparrow/api/openai"
	"sparrow/chat"
)

// RemoteConfig says which server answers.
type RemoteConfig struct {
	URL   string // such as http://localhost:8000 or https://host/v1
	Model string // name on the wire; empty asks the server for its first
	Key   string // bearer token; empty sends none
	// Timeout bounds one request; 0 means 10 minutes.
	Timeout time.Duration
}

const (
	defaultTimeout   = 10 * time.Minute
	maxResponseBytes = 16 << 20
	maxErrorBytes    = 2 << 10 // of a refusal, shown to the user
)

// Remote answers items through any server that speaks OpenAI's chat completions.
type Remote struct {
	cfg    RemoteConfig
	base   string // ends in /v1
	client *http.Client
}

// NewRemote prepares a server and learns the model's name where none is given.
func NewRemote(ctx context.Context, c RemoteConfig) (*Remote, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: %q is not an http or https URL, such as http://localhost:8000", ErrRemote, c.URL)
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("%w: timeout %v is negative", ErrRemote, c.Timeout)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	base := strings.TrimRight(c.URL, "/")
	if !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	r := &Remote{cfg: c, base: base, client: &http.Client{Timeout: c.Timeout}}
	if c.Model == "" {
		if r.cfg.Model, err = r.firstModel(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// About names the model and the server.
func (r *Remote) About() About { return About{Model: r.cfg.Model, URL: r.base} }

// firstModel is the first name the server lists.
func (r *Remote) firstModel(ctx context.Context) (string, error) {
	var list openai.ModelList
	if err := r.call(ctx, http.MethodGet, "/models", nil, &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("%w: %s/models lists no model; name one", ErrRemote, r.base)
	}
	return list.Data[0].ID, nil
}

// chatBody is the request of an item. It has the fields every server knows, and the switch for reasoning only where the item needs it.
type chatBody struct {
	wireItem
	Temperature float64         `json:"temperature"`
	MaxTokens   int             `json:"max_tokens"`
	Kwargs      map[string]bool `json:"chat_template_kwargs,omitempty"`
}

// Answer sends the item.
func (r *Remote) Answer(ctx context.Context, it *Item, most int) (Reply, error) {
	body := chatBody{wireItem: wireItem{r.cfg.Model, it.Messages, it.Tools}, MaxTokens: most}
	if it.Thinking() {
		body.Kwargs = map[string]bool{"thinking": true}
	}
	text, err := openai.Marshal(body)
	if err != nil {
		return Reply{}, err
	}
	var res openai.ChatResponse
	if err := r.call(ctx, http.MethodPost, "/chat/completions", text, &res); err != nil {
		return Reply{}, err
	}
	if len(res.Choices) != 1 {
		return Reply{}, fmt.Errorf("%w: %d choices in the response, want one", ErrRemote, len(res.Choices))
	}
	c := &res.Choices[0]
	out := Reply{Reasoning: c.Message.ReasoningContent, Ended: c.FinishReason == openai.FinishStop || c.FinishReason == openai.FinishToolCalls,
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

// call sends one request and reads a JSON response into to.
func (r *Remote) call(ctx context.Context, method, path string, body []byte, to any) error {
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRemote, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.cfg.Key)
	}
	res, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRemote, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("%w: %s %s: %w", ErrRemote, method, r.base+path, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s %s: status %s: %s", ErrRemote, method, r.base+path, res.Status, text[:min(len(text), maxErrorBytes)])
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%w: %s %s: the response is not what the interface says: %w", ErrRemote, method, r.base+path, err)
	}
	return nil
}
