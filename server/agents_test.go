package server

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/chat"
)

var update = flag.Bool("update", false, "write the golden prompts of testdata/agents")

// agentRequest is a recorded request of a coding agent. Its natural-language text was replaced by generated text of the
// same length; the names of fields and types are unchanged.
type agentRequest struct {
	Name    string `json:"-"`
	Origin  string
	Path    string
	Headers map[string]string
	Body    json.RawMessage
}

func agentRequests(t *testing.T) []agentRequest {
	t.Helper()
	files, err := filepath.Glob("testdata/agents/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no requests: %v", err)
	}
	var list []agentRequest
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := agentRequest{Name: strings.TrimSuffix(filepath.Base(file), ".json")}
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, r)
	}
	return list
}

// ask sends the request and returns the chat request that the engine received.
func (r *agentRequest) ask(t *testing.T, e *fakeEngine, url, body string) (reply, *chat.Request) {
	t.Helper()
	var header []string
	for name, value := range r.Headers {
		header = append(header, name, value)
	}
	got := post(t, url+r.Path, body, header...)
	if got.status != 200 {
		t.Errorf("%s: status %d: %s", r.Name, got.status, got.body)
		return got, nil
	}
	return got, e.last(t).Chat
}

func TestRequestsOfAgentsAreAnswered(t *testing.T) {
	left := map[string]string{"codex": "web_search"}
	for _, r := range agentRequests(t) {
		e := newFake(playing(told()...))
		_, hs := start(t, e, Options{Aliases: []string{"*"}})
		got, c := r.ask(t, e, hs.URL, string(r.Body))
		if c == nil {
			continue
		}
		if name := got.header.Get(leftOutHeader); name != left[r.Name] {
			t.Errorf("%s: left out %q, want %q", r.Name, name, left[r.Name])
		}
		if len(c.Tools) < 6 || len(c.Messages) < 2 {
			t.Errorf("%s: %d tools, %d messages", r.Name, len(c.Tools), len(c.Messages))
		}
		var whole map[string]json.RawMessage
		if err := json.Unmarshal(r.Body, &whole); err != nil {
			t.Fatal(err)
		}
		delete(whole, "stream")
		delete(whole, "stream_options")
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		r.ask(t, e, hs.URL, string(text))
	}
}

// The formats of all model families render the requests of coding agents to prompts, and some of these prompts are
// compared with golden files.
func TestPromptsOfAgents(t *testing.T) {
	formats := []chat.Format{chat.DeepSeekV32{}, chat.GLM5{}, chat.GLM5{V52: true}, chat.DeepSeekV4{}}
	// Other prompts are only rendered, because golden files of them would be large.
	golden := map[string]bool{"codex": true, "claude-code": true}
	for _, r := range agentRequests(t) {
		e := newFake(saying("x"))
		_, hs := start(t, e, Options{Aliases: []string{"*"}})
		_, c := r.ask(t, e, hs.URL, string(r.Body))
		if c == nil {
			continue
		}
		for _, f := range formats {
			p, err := f.Render(*c)
			if err != nil {
				t.Errorf("%s, %s: %v", r.Name, f.Name(), err)
				continue
			}
			if !golden[r.Name] || f.Name() == "glm-5" {
				continue
			}
			file := filepath.Join("testdata", "agents", r.Name+"."+f.Name()+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(p.Text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), p.Text); diff != "" {
				t.Errorf("%s, %s: %s", r.Name, f.Name(), diff)
			}
		}
	}
}
