// Package client sends requests to a server with OpenAI's interface: this one or any other. It sends and returns wire
// types; the caller handles retries, timeouts and the meaning of responses.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

const (
	maxAnswerBytes  = 16 << 20
	maxMessageBytes = 4 << 10 // maximum bytes of the body of a response with a status other than 200
)

// ErrAddress means that an address is not a valid URL of an HTTP server.
var ErrAddress = errors.New("the URL is not an http or https address")

// ErrNoModel means that a server lists no model.
var ErrNoModel = errors.New("the server's /v1/models lists no model; give the name of one")

// StatusError is a response with a status other than 200.
type StatusError struct {
	Code int
	Text string // beginning of the response's body
}

// Error returns the status and the body.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Text) }

// Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	base string // address without /v1
	key  string
	http *http.Client
}

// CheckAddress parses an address such as http://127.0.0.1:8080 or https://host/v1.
func CheckAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: %q, want one such as http://localhost:8080", ErrAddress, address)
	}
	return u, nil
}

// New makes a client for the server at an address, whose last part may be /v1. An empty key sends requests without an
// Authorization header.
func New(address, key string, transport http.RoundTripper) (*Client, error) {
	if _, err := CheckAddress(address); err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(strings.TrimRight(address, "/"), "/v1")
	return &Client{base: base, key: key, http: &http.Client{Transport: transport}}, nil
}

// Base returns the server's address without /v1.
func (c *Client) Base() string { return c.base }

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// FirstModel returns the first model that the server lists.
func (c *Client) FirstModel(ctx context.Context) (string, error) {
	var list openai.ModelList
	if err := c.Call(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("%s/v1/models: %w", c.base, ErrNoModel)
	}
	return list.Data[0].ID, nil
}

// Call sends a request and decodes the JSON response into out. With a nil body, the request has no body.
func (c *Client) Call(ctx context.Context, method, path string, body, out any) error {
	r, err := c.Send(ctx, method, path, body)
	var status *StatusError
	if errors.As(err, &status) {
		return fmt.Errorf("%s %s: %w", method, c.base+path, err)
	}
	if err != nil {
		return err // the error already names the request
	}
	defer r.Body.Close()
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswerBytes)).Decode(out); err != nil {
		return fmt.Errorf("%s %s: the response is not that of OpenAI's API: %w", method, c.base+path, err)
	}
	return nil
}

// Send sends a request and returns the response, whose body the caller closes. For a status other than 200 it returns a
// StatusError.
func (c *Client) Send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := wire.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	answer, err := c.http.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no server is listening at %s; start one there, or use another address: %w", c.base, err)
	}
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxMessageBytes)) // part of the body is enough
		return nil, &StatusError{answer.StatusCode, string(bytes.TrimSpace(text))}
	}
	return answer, nil
}
