package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"sparrow/api/openai"
	"sparrow/api/openai/client"
)

// maxEvent is the maximum length of one line of a stream, in bytes.
const maxEvent = 1 << 20

// caller sends the requests of a load to one server.
type caller struct {
	*client.Client
	o     *Options
	model string
}

// newCaller returns a caller that uses no proxy. Without AllowRemote it connects only to this machine, even after
// redirects.
func newCaller(o *Options, key string) (*caller, error) {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if !o.AllowRemote {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if !isLoopbackAddress(address) {
				return fmt.Errorf("connect to %s: %w", address, ErrRemote)
			}
			return nil
		}
	}
	dial := d.DialContext
	if o.dial != nil {
		dial = o.dial
	}
	c, err := client.New(o.URL, key, &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1024,
		IdleConnTimeout: 30 * time.Second, DisableCompression: true})
	if err != nil {
		return nil, fmt.Errorf("load: %w: %w", ErrOptions, err)
	}
	return &caller{Client: c, o: o}, nil
}

// discover sets the model's name and returns token ids of ordinary words, or nil if the server has no /tokenize or no
// tokenizer.
func (c *caller) discover(ctx context.Context) (ids []int32, err error) {
	first, err := c.FirstModel(ctx)
	c.model = c.o.Model
	if c.model == "" {
		c.model = first
	}
	if err != nil && (c.model == "" || !errors.Is(err, client.ErrNoModel)) {
		return nil, fmt.Errorf("load: %w: %w", ErrServer, err)
	}
	text, special := vocabularyText(), false
	var tokens openai.TokenizeResponse
	err = c.Call(ctx, http.MethodPost, "/tokenize",
		&openai.TokenizeRequest{Model: c.model, Prompt: &text, AddSpecialTokens: &special}, &tokens)
	var status *client.StatusError
	if errors.As(err, &status) {
		return nil, nil
	}
	return tokens.Tokens, err
}

// outcome is the result of one request. Times are relative to the sending of the request.
type outcome struct {
	failure string // status or kind of failure; empty if the request succeeded
	message string // message of the failure
	first   time.Duration
	last    time.Duration   // time of the last token after sending
	end     time.Duration   // time of the end of the answer
	gaps    []time.Duration // times between tokens
	tokens  int             // number of generated tokens, counted from the events
	asked   int             // number of requested tokens
	usage   openai.Usage
	text    []byte                  // text of the answer, for conversations
	seen    func(gap time.Duration) // called with every gap between events; may be nil
}

// perToken returns the mean time per token after the first token, or 0 if there are fewer than two tokens.
func (o *outcome) perToken() time.Duration {
	if o.usage.CompletionTokens < 2 {
		return 0
	}
	return (o.last - o.first) / time.Duration(o.usage.CompletionTokens-1)
}

// complete sends one completion request and reads its stream to the end.
func (c *caller) complete(ctx context.Context, t task) outcome { return c.follow(ctx, t, nil) }

// follow does what complete does, and calls seen with every gap between two events with tokens.
func (c *caller) follow(ctx context.Context, t task, seen func(gap time.Duration)) outcome {
	r := &openai.CompletionRequest{MaxTokens: &t.output, Prompt: openai.Prompt{Tokens: [][]int32{t.prompt}}}
	c.fill(&r.Options)
	if t.choices > 1 {
		r.N = &t.choices
	}
	o := c.stream(ctx, "/v1/completions", r, seen)
	o.asked = t.output * max(t.choices, 1)
	return o
}

// chat sends one turn of a conversation and reads its stream to the end.
func (c *caller) chat(ctx context.Context, messages []openai.Message, output int) outcome {
	r := &openai.ChatRequest{MaxTokens: &output, Messages: messages}
	c.fill(&r.Options)
	o := c.stream(ctx, "/v1/chat/completions", r, nil)
	o.asked = output
	return o
}

// fill sets the fields that all requests share.
func (c *caller) fill(o *openai.Options) {
	o.Model, o.Temperature, o.Stream, o.IgnoreEOS = c.model, &c.o.Temperature, true, !c.o.StopAtEOS
	if c.o.TopP > 0 {
		o.TopP = &c.o.TopP
	}
	o.StreamOptions = &openai.StreamOptions{IncludeUsage: true, ContinuousUsage: true}
}

// stream sends a request and reads its stream to the end.
func (c *caller) stream(ctx context.Context, path string, body any, seen func(gap time.Duration)) outcome {
	if c.o.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.o.Timeout)
		defer stop()
	}
	o := outcome{seen: seen}
	start := time.Now()
	resp, err := c.Send(ctx, http.MethodPost, path, body)
	if err == nil {
		err = o.read(resp.Body, start)
		resp.Body.Close()
	}
	o.end = time.Since(start)
	if err != nil {
		o.failure, o.message = kindOf(ctx, err), err.Error()
	}
	return o
}

// errStream means that the server sent an error in the middle of an answer.
var errStream = errors.New("error in the stream")

// event is one event of a stream: pieces of choices, or an error.
type event struct {
	Choices []piece         `json:"choices"`
	Usage   *openai.Usage   `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

// piece is the part of a choice that one event adds.
type piece struct {
	Text  string `json:"text"`
	Delta struct {
		Content   string `json:"content"`
		Reasoning string `json:"reasoning_content"`
	} `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

// empty reports whether a piece has no text.
func (p *piece) empty() bool { return p.Text == "" && p.Delta.Content == "" && p.Delta.Reasoning == "" }

// read reads the events of a stream and records their times.
func (o *outcome) read(body io.Reader, start time.Time) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // blank lines and comments are skipped
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			if o.first == 0 {
				return fmt.Errorf("%w: the stream ended without a token", errStream)
			}
			return nil
		}
		var ev event
		if err := json.Unmarshal(data, &ev); err != nil {
			return fmt.Errorf("%w: %w", errStream, err)
		}
		if ev.Error != nil {
			return fmt.Errorf("%w: %s", errStream, ev.Error)
		}
		o.take(&ev, time.Since(start))
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: the stream ended early", errStream)
}

// take records one event with its arrival time. If every event has usage, it gives the number of tokens: a token may
// have no text, and a piece of text may have several tokens. The time since the last event is divided evenly among
// them. Otherwise every piece of text counts as one token, and so does an event that ends a choice without text.
func (o *outcome) take(ev *event, at time.Duration) {
	fresh := 0
	if ev.Usage != nil {
		o.usage = *ev.Usage
	}
	for i := range ev.Choices {
		o.text = append(o.text, ev.Choices[i].Delta.Content...)
	}
	if len(ev.Choices) > 0 && ev.Usage != nil {
		fresh = max(ev.Usage.CompletionTokens-o.tokens, 0)
	} else {
		for i := range ev.Choices {
			if ch := &ev.Choices[i]; !ch.empty() || ch.FinishReason != "" && o.first == 0 {
				fresh = 1
			}
		}
	}
	if fresh == 0 {
		return
	}
	o.tokens += fresh
	if o.first == 0 {
		o.first, o.last = at, at
		fresh-- // the first of these tokens; the others arrived at the same time
	} else if o.seen != nil {
		o.seen(at - o.last)
	}
	for range fresh {
		o.gaps = append(o.gaps, (at-o.last)/time.Duration(fresh))
	}
	o.last = at
}

// kindOf returns the status or kind of a failure, as in Report.Errors.
func kindOf(ctx context.Context, err error) string {
	var status *client.StatusError
	switch {
	case errors.As(err, &status):
		return strconv.Itoa(status.Code)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "timeout"
	case ctx.Err() != nil:
		return "cancelled"
	case errors.Is(err, errStream):
		return "stream"
	}
	return "connection"
}
