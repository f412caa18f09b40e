package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"sparrow/api/openai/client"
)

// Servers lists real servers on which Replay runs a trace, for comparison with a simulation. All of them must serve the
// same model and support /server_info and return_tokens_as_token_ids.
type Servers struct {
	URLs   []string
	Key    string // bearer key; empty means none
	Policy Policy
	Seed   uint64
}

// Replay runs the conversations of a trace on real servers, in real time. A session ends if one of its turns fails.
func Replay(ctx context.Context, s Servers, sessions []Session) (*Report, error) {
	to, err := connect(ctx, s.URLs, s.Key, len(sessions))
	if err != nil {
		return nil, fmt.Errorf("fleet: replay: %w", err)
	}
	defer to.close()
	r := &replay{Servers: s, servers: to, load: make([]int, len(s.URLs)),
		router: newRouter(s.Policy, len(s.URLs), to.info.PageTokens, to.info.CacheTokens/to.info.PageTokens, s.Seed),
		report: &Report{Replicas: make([]Share, len(s.URLs))}}
	begun := time.Now()
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() { r.converse(ctx, &sessions[i]) })
	}
	all.Wait()
	r.report.Took = time.Since(begun)
	r.report.finish()
	return r.report, errors.Join(append(r.errs, ctx.Err())...)
}

type replay struct {
	Servers
	*servers

	mu     sync.Mutex
	router *router
	load   []int
	report *Report
	errs   []error
}

func (r *replay) converse(ctx context.Context, s *Session) {
	talk := talk{seed: r.Seed, session: s}
	for i := range s.Turns {
		select {
		case <-time.After(talk.pause(i)):
		case <-ctx.Done():
			return
		}
		prompt := talk.prompt(i)
		r.mu.Lock()
		at := r.router.choose(s.Turns[i].Tenant, prompt, r.load)
		r.load[at]++
		r.mu.Unlock()
		a, err := r.ask(ctx, r.clients[at], prompt, s.Turns[i].OutputTokens)
		r.mu.Lock()
		r.load[at]--
		if err == nil {
			r.report.count(a)
			r.report.Replicas[at].count(a)
		} else {
			r.errs = append(r.errs, fmt.Errorf("fleet: %s of session %s: %w", r.URLs[at], s.Name, err))
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
		talk.history = append(talk.history, a.tokens...)
	}
}

// ask sends a prompt to a server and reads the answer.
func (s *servers) ask(ctx context.Context, to *client.Client, prompt []int32, output int) (answer, error) {
	begun := time.Now()
	resp, err := to.Send(ctx, http.MethodPost, "/v1/completions", map[string]any{"model": s.info.Model,
		"prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": true, "stream": true, "logprobs": 0,
		"return_tokens_as_token_ids": true, "stream_options": map[string]any{"include_usage": true}})
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	return readAnswer(resp.Body, begun)
}

// readAnswer reads the server-sent events of a completion.
func readAnswer(body io.Reader, begun time.Time) (a answer, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var ev struct {
			Error   json.RawMessage
			Choices []struct {
				Logprobs *struct{ Tokens []string }
			}
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Output  int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &ev); err != nil {
			return a, err
		}
		if ev.Error != nil {
			return a, fmt.Errorf("%s", ev.Error)
		}
		for _, c := range ev.Choices {
			if c.Logprobs == nil {
				continue
			}
			for _, text := range c.Logprobs.Tokens {
				id, err := strconv.ParseInt(strings.TrimPrefix(text, "token_id:"), 10, 32)
				if err != nil {
					return a, fmt.Errorf("a token has no id: %w", err)
				}
				if a.tokens = append(a.tokens, int32(id)); len(a.tokens) == 1 {
					a.first = time.Since(begun)
				}
			}
		}
		if u := ev.Usage; u != nil {
			a.prompt, a.cached, a.output = u.Prompt, u.Details.Cached, u.Output
		}
	}
	a.took = time.Since(begun)
	return a, lines.Err()
}
