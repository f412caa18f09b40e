package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sparrow/internal/process"
)

// mix describes the load of one client, during which another client sends a short question.
type mix struct {
	name    string
	clients int // number of concurrent connections of the client
	path    string
	body    func(d *rand.Rand, i int) string
	leaves  bool // whether the client disconnects during answers
	replays bool // whether requests replay the recorded choices of an answer
}

// mixes lists loads that a single client can produce.
var mixes = []mix{
	{name: "prompts", clients: 8, path: "/v1/completions", body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q,"max_tokens":1`, words(d, 3500))
	}},
	{name: "choices", clients: 2, path: "/v1/completions", body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q,"max_tokens":64,"n":64,"temperature":1,"ignore_eos":true`, words(d, 20))
	}},
	{name: "scores", clients: 8, path: "/v1/score", body: func(d *rand.Rand, i int) string {
		list := make([]string, 128)
		for i := range list {
			list[i] = fmt.Sprintf("%q", words(d, 20))
		}
		return fmt.Sprintf(`"prompt":%q,"continuations":[%s]`, words(d, 100), strings.Join(list, ","))
	}},
	{name: "schemas", clients: 16, path: "/v1/chat/completions", body: func(d *rand.Rand, i int) string {
		var b strings.Builder
		for range 900 {
			fmt.Fprintf(&b, `,"%s":{"type":"string","pattern":"^%s[a-z]{1,20}$"}`, name(d), name(d))
		}
		return `"messages":[{"role":"user","content":"x"}],"max_tokens":1,"response_format":{"type":"json_schema",` +
			`"json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{}` + b.String() + `}}}}`
	}},
	{name: "alternatives", clients: 4, path: "/v1/chat/completions", body: func(d *rand.Rand, i int) string {
		var b strings.Builder
		for range 1000 { // less than the maximum of a schema, but more than the grammar can distinguish
			fmt.Fprintf(&b, `,{"type":"object","required":["k"],"properties":{"k":{"const":"%s"},"%s":{}}}`, name(d),
				name(d))
		}
		return `"messages":[{"role":"user","content":"x"}],"max_tokens":1,"response_format":{"type":"json_schema",` +
			`"json_schema":{"name":"x","schema":{"oneOf":[` + b.String()[1:] + `]}}}`
	}},
	{name: "stored", clients: 4, path: "/v1/responses", body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"input":"x","max_output_tokens":1,"text":{"format":{"type":"json_schema","name":"x","schema":`+
			`{"type":"object","description":%q}}}`, strings.Repeat(name(d), 120_000))
	}},
	{name: "replays", clients: 8, path: "/v1/completions", replays: true, body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q,"max_tokens":8,"ignore_eos":true`, words(d, 400))
	}},
	{name: "tokenize", clients: 8, path: "/tokenize", body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q`, strings.Repeat(words(d, 500), 30))
	}},
	{name: "cancellations", clients: 16, path: "/v1/completions", leaves: true, body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q,"max_tokens":200,"stream":true,"ignore_eos":true`, words(d, 300))
	}},
}

// recording requests all data that a replay needs.
const recording = `,"sparrow":{"selections":{"layers":"all","tokens":"all"},"experts":true}`

func name(d *rand.Rand) string { return fmt.Sprintf("k%07x", d.Uint32()>>4) }

// words returns n random words, so that no prefix is cached.
func words(d *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "%d ", d.IntN(10))
	}
	return b.String()
}

// besides measures the time to the first token of a short question, on an idle server and during each mix whose name
// begins with only. It returns an error if a time exceeds the limit of judge.
func besides(ctx context.Context, p process.Program, only string, seed uint64, asks int) error {
	var errs []error
	for _, m := range mixes {
		if only != "all" && m.name != only {
			continue
		}
		if err := beside(ctx, p, []mix{m}, seed, asks); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	if only == "all" || only == "together" {
		errs = append(errs, beside(ctx, p, mixes, seed, asks))
	}
	return errors.Join(errs...)
}

func beside(ctx context.Context, p process.Program, list []mix, seed uint64, asks int) error {
	s, err := p.Serve(ctx, "beside", "--log-level", "error", "--cache-tokens", "65536", "--max-queue", "4096")
	if err != nil {
		return err
	}
	defer s.Kill()
	if _, _, err := firstTokens(ctx, s, asks/4+1); err != nil { // warm-up
		return err
	}
	idle, _, err := firstTokens(ctx, s, asks)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	var sent tally
	names := ""
	for _, m := range list {
		names += " " + m.name
		for c := range m.clients {
			d := rand.New(rand.NewPCG(seed, uint64(c)))
			clients.Go(func() { m.flood(ctx, s.URL, d, &sent) })
		}
	}
	time.Sleep(3 * time.Second) // wait until the load has begun
	loaded, step, err := firstTokens(ctx, s, asks)
	if err == nil {
		err = judge(names, idle, loaded, step, &sent)
	}
	stop()
	clients.Wait()
	return errors.Join(err, s.Running())
}

// judge prints the measurements, and compares them with the limit: three times the time on the idle server plus one
// step.
func judge(names string, idle, loaded []time.Duration, step time.Duration, sent *tally) error {
	allowed := 3*rank(idle, 0.99) + step
	sent.mu.Lock()
	defer sent.mu.Unlock()
	fmt.Printf("during%s: first token idle p50 %v p99 %v, loaded p50 %v p99 %v, longest step %v, allowed %v; %v\n",
		names, rank(idle, 0.5), rank(idle, 0.99), rank(loaded, 0.5), rank(loaded, 0.99), step, allowed, sent.statuses)
	if got := rank(loaded, 0.99); got > allowed {
		return fmt.Errorf("during%s a first token takes %v (p99), want at most %v", names, got, allowed)
	}
	return nil
}

// longestStep returns the time of the longest of the server's recent steps.
func longestStep(ctx context.Context, url string) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/plans?n=8", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var got struct {
		Plans []struct {
			Took float64 `json:"took_ms"`
		}
	}
	err = json.NewDecoder(resp.Body).Decode(&got)
	longest := 0.0
	for _, p := range got.Plans {
		longest = max(longest, p.Took)
	}
	return time.Duration(longest) * time.Millisecond, err
}

// flood sends requests until ctx ends.
func (m *mix) flood(ctx context.Context, url string, d *rand.Rand, sent *tally) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		body := m.body(d, i)
		if !m.replays {
			m.send(ctx, client, url, body, d, sent)
			continue
		}
		answer := m.send(ctx, client, url, body+recording, d, sent)
		var got struct {
			Choices []struct{ Sparrow json.RawMessage }
		}
		if json.Unmarshal(answer, &got) == nil && len(got.Choices) > 0 && len(got.Choices[0].Sparrow) > 0 {
			m.send(ctx, client, url, body+fmt.Sprintf(`,"sparrow":{"replay":%s}`, got.Choices[0].Sparrow), d, sent)
		}
	}
}

// send sends a request and returns the answer, or nil.
func (m *mix) send(ctx context.Context, client *http.Client, url, body string, d *rand.Rand, sent *tally) []byte {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if m.leaves {
		time.AfterFunc(time.Duration(d.IntN(300))*time.Millisecond, leave)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+m.path, strings.NewReader(named+body+"}"))
	if err != nil {
		return nil
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body) // the status is counted; after a disconnect there is no answer
	sent.add(resp.StatusCode, false)
	return answer
}

// firstTokens sends a short question n times, each on a new connection. It returns the times to the first token, and
// the longest step in that period.
func firstTokens(ctx context.Context, s *process.Server, n int) (list []time.Duration, step time.Duration, err error) {
	for i := range n {
		took, err := firstToken(ctx, s.URL, i)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, took)
		latest, err := longestStep(ctx, s.URL)
		if err != nil {
			return nil, 0, err
		}
		step = max(step, latest)
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(list)
	return list, step, nil
}

// stranger connects from another address, because without keys each address is served as a tenant.
var stranger = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

func firstToken(ctx context.Context, url string, i int) (time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: stranger.DialContext},
		Timeout: 2 * time.Minute}
	body := fmt.Sprintf(named+`"prompt":"%d and more","max_tokens":3,"stream":true,"ignore_eos":true}`, i)
	begun := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var first time.Duration
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if first == 0 && strings.Contains(lines.Text(), `"text"`) {
			first = time.Since(begun)
		}
	}
	if err := lines.Err(); err != nil || first == 0 {
		return 0, fmt.Errorf("a short question got status %d and no token: %w", resp.StatusCode, err)
	}
	return first, nil
}

func rank(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Round(time.Millisecond)
}
