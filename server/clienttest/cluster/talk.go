package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// conversation holds a document and questions about it, one per turn.
type conversation struct {
	messages []message
	random   *rand.Rand
	turns    int
}

// words of the documents.
var words = strings.Fields("the garden has a long wall and two gates near the old river where boats wait for rain in " +
	"autumn while birds carry seeds over seven fields of barley to a quiet town with narrow streets and one bridge")

func text(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

func newConversation(seed uint64) *conversation {
	r := rand.New(rand.NewPCG(seed, 7))
	return &conversation{random: r, messages: []message{{"user", text(r, 220)}}}
}

// usage holds the token counts of an answer.
type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// say sends the next question and appends the answer.
func (c *conversation) say(ctx context.Context, url string) (usage, error) {
	if c.turns > 0 {
		c.messages = append(c.messages, message{"user", text(c.random, 25)})
	}
	c.turns++
	var got struct {
		Choices []struct{ Message message }
		Usage   usage
	}
	err := post(ctx, url+"/v1/chat/completions", map[string]any{"model": model, "messages": c.messages,
		"max_tokens": 24, "temperature": 0, "ignore_eos": true}, &got)
	if err != nil {
		return usage{}, err
	}
	if len(got.Choices) != 1 || got.Usage.Prompt == 0 {
		return usage{}, fmt.Errorf("the answer has no choice or no usage: %+v", got)
	}
	c.messages = append(c.messages, message{"assistant", got.Choices[0].Message.Content})
	return got.Usage, nil
}

// hits runs conversations turn by turn, and returns the sum of cached tokens.
func hits(ctx context.Context, url string, conversations, turns int) (cached int, err error) {
	var list []*conversation
	for i := range conversations {
		list = append(list, newConversation(uint64(i)))
	}
	for range turns {
		for _, c := range list {
			u, err := c.say(ctx, url)
			if err != nil {
				return 0, err
			}
			cached += u.Details.Cached
		}
	}
	return cached, nil
}

// stream requests a long answer and reads it. The answer is complete if usage and [DONE] were received. begun is called
// for every piece of the answer.
func stream(ctx context.Context, url string, seed uint64, tokens int, begun func()) error {
	r, err := newPost(ctx, url+"/v1/chat/completions", map[string]any{"model": model,
		"messages": newConversation(seed).messages, "max_tokens": tokens, "ignore_eos": true, "temperature": 0,
		"stream": true, "stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return err
	}
	res, err := send(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	made, done := 0, false
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   *struct {
				Completion int `json:"completion_tokens"`
			}
			Error any
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return fmt.Errorf("a chunk is not JSON: %w", err)
		}
		if chunk.Error != nil {
			return fmt.Errorf("the stream has an error: %v", chunk.Error)
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			begun()
		}
		if chunk.Usage != nil {
			made = chunk.Usage.Completion
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !done || made != tokens {
		return fmt.Errorf("the stream ended after %d of %d tokens", made, tokens)
	}
	return nil
}

// streams is a set of concurrent streams.
type streams struct {
	begun, ended sync.WaitGroup
	errs         []error // [streams] error, or nil if the answer was complete
}

func startStreams(ctx context.Context, url string, first uint64, n, tokens int) *streams {
	s := &streams{errs: make([]error, n)}
	s.begun.Add(n)
	for i := range n {
		begun := sync.OnceFunc(s.begun.Done)
		s.ended.Go(func() {
			defer begun()
			s.errs[i] = stream(ctx, url, first+uint64(i), tokens, begun)
		})
	}
	return s
}

// wait waits for all streams and returns their errors.
func (s *streams) wait() []error {
	s.ended.Wait()
	return s.errs
}

// broken returns the number of errors that are not nil, and joins them.
func broken(errs []error) (n int, err error) {
	for _, e := range errs {
		if e != nil {
			n++
		}
	}
	return n, errors.Join(errs...)
}
