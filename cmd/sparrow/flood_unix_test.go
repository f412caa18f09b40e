//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sparrow/internal/process"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/testflag"
)

// thisProgram returns the program under test, to be run in its own process.
func thisProgram(t *testing.T) process.Program {
	return process.Program{Path: os.Args[0], Env: []string{asProgram + "=1"}, Logs: t.TempDir()}
}

// atOnce sends n concurrent requests, each on its own connection, and returns the number of responses for each status.
// bodies(i) returns the path and body of request i; look, unless nil, is called with every response.
func atOnce(t *testing.T, url string, n int, bodies func(i int) (path, body string),
	look func(answer []byte)) map[int]int {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			path, body := bodies(i)
			<-begin
			resp, err := client.Post(url+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				return
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			mu.Lock()
			defer mu.Unlock()
			if statuses[resp.StatusCode]++; err != nil {
				t.Errorf("request %d: %v", i, err)
			} else if look != nil {
				look(answer)
			}
		})
	}
	close(begin)
	all.Wait()
	return statuses
}

// long enables tests that take half a minute; make long sets it.
var long = testflag.Long

// mostIdle is the maximum memory of a server after a flood.
const mostIdle = 150e6

// A server runs two requests with the maximum number of choices and queues 1,319 concurrent requests. Afterwards it
// returns the memory that these and larger requests used to the system; only its small cache stays allocated.
func TestFloodsAreQueuedAndMemoryGoesBack(t *testing.T) {
	if !*long {
		t.Skip("make long runs it: it waits half a minute for memory to be released")
	}
	s, err := thisProgram(t).Serve(t.Context(), "flooded", "--log-level", "error", "--cache-tokens",
		"8192")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	metric := func(name string) float64 {
		m, err := s.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m[name]
	}
	resident := func() float64 { return metric("process_resident_memory_bytes") }
	before := resident()

	const choices = 1024 // choices of eight prompts together
	statuses := atOnce(t, s.URL, 2, func(i int) (string, string) {
		return "/v1/completions", fmt.Sprintf(`{"model":"sparrow-tiny","prompt":["%d0","%[1]d1","%[1]d2","%[1]d3","%[1]d4",`+
			`"%[1]d5","%[1]d6","%[1]d7"],"max_tokens":1,"n":%d,"temperature":1,"ignore_eos":true}`, i, choices/8)
	}, func(answer []byte) {
		var got struct{ Choices []json.RawMessage }
		if err := json.Unmarshal(answer, &got); err != nil || len(got.Choices) != choices {
			t.Errorf("%d choices, want %d: %v", len(got.Choices), choices, err)
		}
	})
	if statuses[http.StatusOK] != 2 {
		t.Errorf("two requests of %d choices: %v", choices, statuses)
	}
	const requests = 1319
	statuses = atOnce(t, s.URL, requests, func(i int) (string, string) {
		return "/v1/completions", fmt.Sprintf(`{"model":"sparrow-tiny","prompt":"%d","max_tokens":1}`, i)
	}, nil)
	if statuses[http.StatusOK] != requests {
		t.Errorf("%d requests at once: %v", requests, statuses)
	}

	text := strings.Repeat("a b ", 1<<20)
	statuses = atOnce(t, s.URL, 24, func(i int) (string, string) {
		if i%2 == 0 {
			return "/v1/chat/completions", fmt.Sprintf(`{"model":"sparrow-tiny","max_tokens":1,"messages":[{"role":"user",`+
				`"content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":%s}}}`,
				wide(i))
		}
		return "/tokenize", fmt.Sprintf(`{"prompt":%q,"return_token_strs":true}`, text)
	}, nil)
	// half of the requests have more tokens than the context holds
	if statuses[http.StatusOK] != 12 || statuses[http.StatusBadRequest] != 12 {
		t.Errorf("large requests: %v", statuses)
	}
	ended := time.Now()
	await.True(t, "memory goes back", func() bool { return resident() <= mostIdle })
	most := metric("go_memstats_heap_sys_bytes") // peak heap size, also if memory was returned soon afterwards
	t.Logf("%.0f MB before, a heap of %.0f MB during, %.0f MB %.0f s after the flood", before/1e6, most/1e6,
		resident()/1e6, time.Since(ended).Seconds())
	if most < 1.3*mostIdle {
		t.Errorf("%.0f bytes at most: this flood shows nothing", most)
	}
}

// wide returns a schema of many properties, each with a pattern.
func wide(seed int) string {
	var b bytes.Buffer
	for i := range 800 {
		fmt.Fprintf(&b, `,"k%d-%d":{"type":"string","pattern":"^%d-%d[a-z]{1,20}$"}`, seed, i, i, seed)
	}
	return `{"type":"object","properties":{"a":{}` + b.String() + `}}`
}
