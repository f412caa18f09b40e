package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/testkit/await"
)

// modelName is the name of the built-in model.
const modelName = "sparrow-tiny"

// load is a server and the numbers of requests that the tests send to it.
type load struct {
	url      string
	client   *http.Client
	chats    int // number of concurrent chats
	longest  int // maximum number of prompt tokens of a chat
	requests int
	workers  int // number of goroutines that send requests
}

// newLoad returns the server that a flag names, with the full load, or a local server on the CPU with a small load.
func newLoad(t *testing.T) *load {
	t.Helper()
	l := &load{url: os.Getenv("SPARROW_SOAK_URL"), chats: 64, longest: 1 << 20, requests: 10_000, workers: 64,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
	t.Cleanup(l.client.CloseIdleConnections)
	if n := os.Getenv("SPARROW_SOAK_REQUESTS"); n != "" {
		var err error
		if l.requests, err = strconv.Atoi(n); err != nil {
			t.Fatalf("SPARROW_SOAK_REQUESTS: %v", err)
		}
	}
	if l.url == "" {
		l.chats, l.longest, l.requests, l.workers = 20, 250, 120, 16
		l.url = ownServer(t)
		return l
	}
	u, err := url.Parse(l.url)
	if err != nil || !net.ParseIP(u.Hostname()).IsLoopback() {
		t.Fatalf("SPARROW_SOAK_URL %q: want the address of a server on this machine, as http://127.0.0.1:8080", l.url)
	}
	return l
}

// golden is a prompt with its golden output.
type golden struct {
	Task   string  `json:"task"`
	Prompt []int32 `json:"prompt_tokens"`
	Output []int32 `json:"output_tokens"`
}

func goldens(t *testing.T, longest int) []golden {
	t.Helper()
	text, err := os.ReadFile("../../builtin/testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Cases []golden `json:"cases"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Cases, func(g golden) bool { return len(g.Prompt) > longest })
}

// completion is a request for the tokens after a prompt, with the fields of its response.
type completion struct {
	Model       string  `json:"model"`
	Prompt      []int32 `json:"prompt"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	Stream      bool    `json:"stream,omitempty"`
	Logprobs    *int    `json:"logprobs,omitempty"`
	TokenIDs    bool    `json:"return_tokens_as_token_ids,omitempty"`
}

type answer struct {
	Choices []struct {
		Finish   string `json:"finish_reason"`
		Logprobs struct {
			Tokens []string `json:"tokens"`
		} `json:"logprobs"`
	} `json:"choices"`
}

// send posts a completion. The caller closes the body.
func (l *load) send(ctx context.Context, c completion) (*http.Response, error) {
	c.Model = modelName
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return resp, err
}

// tokens requests a completion and returns its tokens.
func (l *load) tokens(ctx context.Context, prompt []int32, n int) ([]int32, error) {
	best := 1
	resp, err := l.send(ctx, completion{Prompt: prompt, MaxTokens: n, Logprobs: &best, TokenIDs: true})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return nil, err
	}
	var out []int32
	for _, text := range a.Choices[0].Logprobs.Tokens {
		id, err := strconv.Atoi(strings.TrimPrefix(text, "token_id:"))
		if err != nil {
			return nil, fmt.Errorf("token %q: %w", text, err)
		}
		out = append(out, int32(id))
	}
	return out, nil
}

// Concurrent chats of different lengths give the golden outputs.
func TestGoldenAtOnce(t *testing.T) {
	l := newLoad(t)
	list := goldens(t, l.longest)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range l.chats {
		g := list[i%len(list)]
		all.Go(func() {
			got, err := l.tokens(t.Context(), g.Prompt, len(g.Output))
			if n := len(g.Output); err == nil && len(got) == n-1 {
				got = append(got, g.Output[n-1]) // the token that ends an answer is not part of it
			}
			if err != nil || !slices.Equal(got, g.Output) {
				t.Errorf("answer %d, %s, %d prompt tokens: %v, error %v, want %v", i, g.Task, len(g.Prompt), got, err,
					g.Output)
			}
		})
	}
	all.Wait()
	t.Logf("%d chats in %v", l.chats, time.Since(begun))
}

// After many short requests, some of which are abandoned by their clients, no page is in use, nothing runs, and the
// memory of the device is unchanged. Memory that the first requests allocate stays: the second half must allocate none.
func TestNothingIsLeft(t *testing.T) {
	l := newLoad(t)
	begun := time.Now()
	l.spend(t, l.requests/2)
	before, memory := l.held(t), gpuMemory(t)
	l.spend(t, l.requests-l.requests/2)
	after := l.held(t)
	for name, v := range before {
		if after[name] != v {
			t.Errorf("%s was %v and is %v", name, v, after[name])
		}
	}
	if now := gpuMemory(t); now != memory {
		t.Errorf("the GPU's memory in use was %s and is %s", memory, now)
	}
	t.Logf("%d requests in %v; after half of them and at the end %v, memory of the GPU in use: %s", l.requests,
		time.Since(begun), after, memory)
}

// gpuMemory returns the memory in use on the GPUs as nvidia-smi prints it, or an empty text without nvidia-smi.
func gpuMemory(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// spend sends short requests. Most are read to their end; a quarter is abandoned before or during the answer.
func (l *load) spend(t *testing.T, requests int) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range l.workers {
		all.Go(func() {
			for n := next.Add(1); n <= int64(requests); n = next.Add(1) {
				if err := l.one(t.Context(), rand.New(rand.NewPCG(7, uint64(n)))); err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// one sends one request of a random kind.
func (l *load) one(ctx context.Context, draw *rand.Rand) error {
	c := completion{MaxTokens: 1 + draw.IntN(8)}
	for range 4 + draw.IntN(60) {
		c.Prompt = append(c.Prompt, int32(10+draw.IntN(900)))
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	kind := draw.IntN(8)
	switch kind {
	case 0: // the client disconnects before the answer
		time.AfterFunc(time.Duration(draw.IntN(3000))*time.Microsecond, leave)
	case 1, 2, 3:
		c.Stream = true
	}
	resp, err := l.send(ctx, c)
	if err != nil {
		if kind == 0 && ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer resp.Body.Close()
	if kind == 1 { // the client disconnects after the first event
		_, err := bufio.NewReader(resp.Body).ReadString('\n')
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if kind == 0 && ctx.Err() != nil {
		return nil
	}
	return err
}

// held waits until nothing runs, and returns the metrics of resources in use.
func (l *load) held(t *testing.T) map[string]float64 {
	t.Helper()
	var m map[string]float64
	await.True(t, "no request and no page is left", func() bool {
		m = l.metrics(t)
		return m["sparrow_requests_running"]+m["sparrow_requests_waiting"]+m[`sparrow_kv_pages{state="used"}`] == 0
	})
	m["sparrow_kv_pages, cached or free"] = m[`sparrow_kv_pages{state="cached"}`] + m[`sparrow_kv_pages{state="free"}`]
	held := map[string]float64{}
	for name, v := range m {
		// The memory of captured graphs may change within its budget.
		if strings.HasPrefix(name, "sparrow_device_memory") && !strings.Contains(name, `"graphs"`) ||
			strings.HasPrefix(name, "sparrow_kv_pages,") || name == `sparrow_kv_pages{state="used"}` ||
			name == "sparrow_device_usable" {
			held[name] = v
		}
	}
	return held
}

// metrics returns the server's metrics by name and labels.
func (l *load) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := l.client.Get(l.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), "} ")
		if ok {
			name += "}"
		} else {
			name, value, ok = strings.Cut(s.Text(), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out
}
