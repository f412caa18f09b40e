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
)

// maxEvent bounds one line of a stream, and what is read of an error.
const maxEvent = 1 << 20

// client sends requests to one server.
type client struct {
	o     *Options
	http  *http.Client
	model string
}

// newClient makes a client that uses no proxy and, unless allowed, connects to this machine only, wherever names and redirects lead.
func newClient(o *Options) *client {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if !o.AllowRemote {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if !isLoopbackAddress(address) {
				return fmt.Errorf("connect to %s: %w", address, ErrRemote)
			}
			return nil
		}
	}
	t := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second, DisableCompression: true}
	return &client{o: o, http: &http.Client{Transport: t}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// discover finds the model's name and ids of ordinary words. A server without /tokenize, or without a tokenizer, gives no ids.
func (c *client) discover(ctx context.Context) (ids []int32, err error) {
	var models openai.ModelList
	if err := c.call(ctx, http.MethodGet, "/v1/models", nil, &models); err != nil {
		return nil, fmt.Errorf("load: %w: %w", ErrServer, err)
	}
	if c.model = c.o.Model; c.model == "" {
		if len(models.Data) == 0 {
			return nil, fmt.Errorf("load: %w: it lists no model; name one", ErrServer)
		}
		c.model = models.Data[0].ID
	}
	text, special := vocabularyText(), false
	var tokens openai.TokenizeResponse
	err = c.call(ctx, http.MethodPost, "/tokenize", &openai.TokenizeRequest{Model: c.model, Prompt: &text, AddSpecialTokens: &special}, &tokens)
	var status *statusError
	if errors.As(err, &status) {
		return nil, nil
	}
	return tokens.Tokens, err
}

// statusError is an answer other than 200.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.code, e.text) }

// call sends a request and decodes the JSON answer.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	r, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return json.NewDecoder(io.LimitReader(r.Body, 16*maxEvent)).Decode(out)
}

// send sends a request and returns the answer, whose body the caller closes.
func (c *client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := openai.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.o.base()+path, content)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.o.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // a shorter message is still a message
		resp.Body.Close()
		return nil, &statusError{resp.StatusCode, string(bytes.TrimSpace(text))}
	}
	return resp, nil
}

// outcome is what became of one request. Times count from its sending.
type outcome struct {
	failure string // empty when it was answered: the status, or what went wrong
	message string // of the failure
	first   time.Duration
	last    time.Duration   // of the last piece of text
	end     time.Duration   // of the whole answer
	gaps    []time.Duration // between pieces of text
	usage   openai.Usage
}

// ask sends one completion and reads its stream to the end.
func (c *client) ask(ctx context.Context, t task) outcome {
	if c.o.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.o.Timeout)
		defer stop()
	}
	zero := 0.0
	r := &openai.CompletionRequest{MaxTokens: &t.output, Prompt: openai.Prompt{Tokens: [][]int32{t.prompt}}}
	r.Model, r.Temperature, r.Stream, r.IgnoreEOS = c.model, &zero, true, !c.o.StopAtEOS
	r.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	var o outcome
	start := time.Now()
	resp, err := c.send(ctx, http.MethodPost, "/v1/completions", r)
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

// errStream is an error that arrives in the middle of an answer.
var errStream = errors.New("error in the stream")

// event is one event of a stream: a piece of a completion, or an error.
type event struct {
	openai.CompletionResponse
	Error json.RawMessage `json:"error"`
}

// read takes the events of a stream.
func (o *outcome) read(body io.Reader, start time.Time) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // blank lines and comments
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			if o.first == 0 {
				return fmt.Errorf("%w: it ended without any text", errStream)
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
		o.take(&ev.CompletionResponse, time.Since(start))
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: it broke off", errStream)
}

// take notes one event that arrived at a time. The event that ends a choice counts as text: an answer may hold tokens without any.
func (o *outcome) take(ev *openai.CompletionResponse, at time.Duration) {
	if ev.Usage != nil {
		o.usage = *ev.Usage
	}
	text := false
	for _, ch := range ev.Choices {
		text = text || ch.Text != "" || ch.FinishReason != "" && o.first == 0
	}
	switch {
	case !text:
		return
	case o.first == 0:
		o.first = at
	default:
		o.gaps = append(o.gaps, at-o.last)
	}
	o.last = at
}

// kindOf sorts failures for the report.
func kindOf(ctx context.Context, err error) string {
	var status *statusError
	switch {
	case errors.As(err, &status):
		return strconv.Itoa(status.code)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "timeout"
	case ctx.Err() != nil:
		return "cancelled"
	case errors.Is(err, errStream):
		return "stream"
	}
	return "connection"
}
