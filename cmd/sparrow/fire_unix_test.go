//go:build unix

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/process"
)

var fireAnswers = flag.Int("fire-answers", 30, "answers that are compared under a mixed load")

// Invariant of this file: preemption, tiers, drafts, other requests and disconnecting clients change no byte of an
// answer.

// fireRequest is one of the requests that are sent repeatedly.
type fireRequest struct {
	body   string
	answer string // the answer of the idle server
}

// fireRequests returns n random requests: short and long prompts with common prefixes, sampled and greedy tokens,
// several choices, log probabilities, and a schema.
func fireRequests(n int) []*fireRequest {
	d := rand.New(rand.NewPCG(7, 1))
	shared := strings.Repeat("A garden is 21 meters long and 5 meters wide. ", 9)
	list := make([]*fireRequest, n)
	for i := range list {
		prompt := fmt.Sprint(i, " ", shared[:d.IntN(len(shared))])
		if i%3 == 0 {
			prompt = shared + fmt.Sprint(i)
		}
		more := ""
		switch i % 5 {
		case 0:
			more = `,"temperature":0,"logprobs":3`
		case 1:
			more = fmt.Sprintf(`,"temperature":1,"seed":%d,"top_p":0.9`, i)
		case 2:
			more = fmt.Sprintf(`,"temperature":0.8,"seed":%d,"n":3`, i)
		case 3:
			more = `,"temperature":0,"frequency_penalty":0.5,"logprobs":1`
		case 4:
			more = `,"temperature":0,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` +
				`{"type":"object","properties":{"a":{"type":"string","maxLength":40}},"required":["a"]}}}`
		}
		list[i] = &fireRequest{body: fmt.Sprintf(`{"model":"sparrow-tiny","prompt":%q,"max_tokens":%d,"ignore_eos":%v%s}`,
			prompt, 10+d.IntN(40), i%5 != 4, more)}
	}
	return list
}

// fireAnswer sends a request and returns the choices of the answer as JSON text.
func fireAnswer(ctx context.Context, client *http.Client, url, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, data)
	}
	var got struct{ Choices json.RawMessage }
	err = json.Unmarshal(data, &got)
	return string(got.Choices), err
}

// fire sends requests until the given number of answers has been compared with the answers of the idle server. Some of
// its clients disconnect early.
type fire struct {
	url      string
	requests []*fireRequest
	left     atomic.Int64 // answers that are still to be compared
	gone     atomic.Int64 // clients that disconnected
	mu       sync.Mutex
	wrong    []string
}

func (f *fire) send(seed uint64) {
	d := rand.New(rand.NewPCG(seed, 2))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for f.left.Load() > 0 {
		r := f.requests[d.IntN(len(f.requests))]
		ctx, leave := context.WithCancel(context.Background())
		leaves := d.IntN(6) == 0
		if leaves {
			time.AfterFunc(time.Duration(d.IntN(200))*time.Millisecond, leave)
		}
		got, err := fireAnswer(ctx, client, f.url, r.body)
		leave()
		switch {
		case leaves && err != nil:
			f.gone.Add(1)
			continue
		case err != nil:
			f.note(fmt.Sprintf("%s: %v", r.body, err))
		case got != r.answer:
			f.note(fmt.Sprintf("%s:\n%s\nalone:\n%s", r.body, got, r.answer))
		}
		f.left.Add(-1)
	}
}

func (f *fire) note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wrong = append(f.wrong, text); len(f.wrong) >= 5 {
		f.left.Store(0)
	}
}

// Under a mixed load, a server with drafts, tiers and a small cache gives every answer byte for byte as an idle server
// does, while sequences are preempted and clients disconnect.
func TestAnswersUnderFire(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	program := thisProgram(t)
	flags := []string{"--log-level", "error", "--deterministic", "--max-running", "24", "--max-queue", "4096",
		"--workers", "1"}
	requests := fireRequests(min(25, *fireAnswers/2))
	idle, err := program.Serve(t.Context(), "idle", append(slices.Clone(flags), "--draft", "off")...)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Kill()
	for _, r := range requests {
		if r.answer, err = fireAnswer(t.Context(), http.DefaultClient, idle.URL, r.body); err != nil {
			t.Fatalf("%s: %v", r.body, err)
		}
	}
	idle.Kill()
	s, err := program.Serve(t.Context(), "fire", append(slices.Clone(flags), "--draft", "2", "--cache-tokens", "1024",
		"--host-cache", "2M", "--disk-cache", t.TempDir(), "--disk-cache-size", "4M")...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	// Which requests meet decides how often sequences are preempted, so load continues until each event has occurred.
	const mostRounds = 50
	f := &fire{url: s.URL, requests: requests}
	least := float64(*fireAnswers) / 10
	for round := 1; ; round++ {
		f.left.Store(int64(*fireAnswers))
		var clients sync.WaitGroup
		for i := range 24 {
			clients.Go(func() { f.send(uint64(24*round + i)) })
		}
		clients.Wait()
		for _, w := range f.wrong {
			t.Error(w)
		}
		m := fireMetrics(t, s)
		t.Logf("%d rounds of %d answers, %d clients left, %v", round, *fireAnswers, f.gone.Load(), m)
		if t.Failed() || m["preempted"] >= least && f.gone.Load() > 0 && m["drafted"] > 0 && m["restored"] > 0 {
			return
		}
		if round == mostRounds {
			t.Fatalf("%v, %d clients left: want at least %.0f sequences preempted, and some of the others", m,
				f.gone.Load(), least)
		}
	}
}

// fireMetrics returns how many sequences were preempted, and how many tokens were restored from tiers and drafted.
func fireMetrics(t *testing.T, s *process.Server) map[string]float64 {
	t.Helper()
	m, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{"preempted": m["sparrow_preemptions_total"]}
	for name, v := range m {
		switch {
		case strings.HasPrefix(name, "sparrow_tier_restored_tokens_total"):
			out["restored"] += v
		case strings.HasPrefix(name, "sparrow_draft") && strings.Contains(name, "tokens_total"):
			out["drafted"] += v
		}
	}
	return out
}
