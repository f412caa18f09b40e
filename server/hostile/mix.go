package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sparrow/internal/process"
)

// mix is what one client sends again and again while somebody else asks a short question.
type mix struct {
	name    string
	clients int // at a time, each on a connection of its own
	path    string
	body    func(d *rand.Rand, i int) string
	leaves  bool // clients leave while they are served
}

// mixes are each a load that one client can make alone.
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
		for range 1200 {
			fmt.Fprintf(&b, `,{"type":"object","properties":{"%s":{"const":"%s"}}}`, name(d), name(d))
		}
		return `"messages":[{"role":"user","content":"x"}],"max_tokens":1,"response_format":{"type":"json_schema",` +
			`"json_schema":{"name":"x","schema":{"oneOf":[{}` + b.String() + `]}}}`
	}},
	{name: "stored", clients: 4, path: "/v1/responses", body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"input":"x","max_output_tokens":1,"text":{"format":{"type":"json_schema","name":"x","schema":`+
			`{"type":"object","description":%q}}}`, strings.Repeat(name(d), 120_000))
	}},
	{name: "tokenize", clients: 8, path: "/tokenize", body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q`, strings.Repeat(words(d, 500), 30))
	}},
	{name: "cancellations", clients: 16, path: "/v1/completions", leaves: true, body: func(d *rand.Rand, i int) string {
		return fmt.Sprintf(`"prompt":%q,"max_tokens":200,"stream":true,"ignore_eos":true`, words(d, 300))
	}},
}

func name(d *rand.Rand) string { return fmt.Sprintf("k%07x", d.Uint32()>>4) }

// words is text of so many words that no cached prefix begins.
func words(d *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "%d ", d.IntN(10))
	}
	return b.String()
}

// besides measures a short question on an idle server and next to each mix whose name begins as asked, and prints how
// long its first token took.
func besides(ctx context.Context, p process.Program, only string, seed uint64, asks int) error {
	for _, m := range mixes {
		if only != "all" && m.name != only {
			continue
		}
		if err := beside(ctx, p, []mix{m}, seed, asks); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if only == "all" || only == "together" {
		return beside(ctx, p, mixes, seed, asks)
	}
	return nil
}

func beside(ctx context.Context, p process.Program, list []mix, seed uint64, asks int) error {
	s, err := p.Serve(ctx, "beside", "--log-level", "error", "--cache-tokens", "65536", "--max-queue", "4096")
	if err != nil {
		return err
	}
	defer s.Kill()
	idle, err := firstTokens(ctx, s, asks)
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
	time.Sleep(3 * time.Second) // until the load is there
	loaded, err := firstTokens(ctx, s, asks)
	stop()
	clients.Wait()
	if err != nil {
		return err
	}
	fmt.Printf("beside%s: idle p50 %v p99 %v, loaded p50 %v p99 %v; %v\n", names, rank(idle, 0.5), rank(idle, 0.99),
		rank(loaded, 0.5), rank(loaded, 0.99), sent.statuses)
	return s.Running()
}

// flood sends until ctx ends.
func (m *mix) flood(ctx context.Context, url string, d *rand.Rand, sent *tally) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		ctx, leave := context.WithCancel(ctx)
		if m.leaves {
			time.AfterFunc(time.Duration(d.IntN(300))*time.Millisecond, leave)
		}
		body := strings.NewReader(named + m.body(d, i) + "}")
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+m.path, body)
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			var resp *http.Response
			if resp, err = client.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // its status is counted; a client that left has no answer
				resp.Body.Close()
				sent.add(resp.StatusCode, false)
			}
		}
		leave()
	}
}

// firstTokens asks a short question so many times, each on a connection of its own, and returns how long its first
// token took.
func firstTokens(ctx context.Context, s *process.Server, n int) (list []time.Duration, err error) {
	for i := range n {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
		body := fmt.Sprintf(named+`"prompt":"%d and more","max_tokens":3}`, i)
		begun := time.Now()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("a short question got status %d: %s, %w", resp.StatusCode, data, err)
		}
		list = append(list, time.Since(begun))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(list)
	return list, nil
}

func rank(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Round(time.Millisecond)
}
