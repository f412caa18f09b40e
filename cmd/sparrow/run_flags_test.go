package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sparrow"
	"sparrow/chat"
)

// request returns the request for the question "Hi?" that flags of run select.
func request(args ...string) (sparrow.Request, error) {
	var f runFlags
	c := f.command()
	if err := c.ParseFlags(args); err != nil {
		return sparrow.Request{}, err
	}
	a, err := f.asker(c)
	if err != nil {
		return sparrow.Request{}, err
	}
	return f.once(a, "Hi?"), nil
}

// Each flag of run changes the request as its help states.
func TestFlagsOfRunSetTheRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("A text.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	plain, err := request("--seed", "1")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(change func(r *sparrow.Request, c *chat.Request)) sparrow.Request {
		c := chat.Request{AddGenerationPrompt: true, Messages: []chat.Message{{Role: chat.User, Content: "Hi?"}}}
		r := sparrow.Request{Sampling: plain.Sampling, MaxTokens: 2048, Chat: &c}
		r.Sampling.Temperature, r.Sampling.Seed = 0, 1
		if change(&r, &c); r.Prompt != "" {
			r.Chat = nil
		}
		return r
	}
	const schema = `{"type": "object"}`
	for _, c := range []struct {
		args string
		want sparrow.Request
	}{
		{"", ask(func(*sparrow.Request, *chat.Request) {})},
		{"--system Short.", ask(func(_ *sparrow.Request, c *chat.Request) {
			c.Messages = append([]chat.Message{{Role: chat.System, Content: "Short."}}, c.Messages...)
		})},
		{"--think", ask(func(_ *sparrow.Request, c *chat.Request) { c.Thinking = &yes })},
		{"--think=false", ask(func(_ *sparrow.Request, c *chat.Request) { c.Thinking = &no })},
		{"--temperature 0.5", ask(func(r *sparrow.Request, _ *chat.Request) { r.Sampling.Temperature = 0.5 })},
		{"--max-tokens 0", ask(func(r *sparrow.Request, _ *chat.Request) { r.MaxTokens = 0 })},
		{"--trace", ask(func(r *sparrow.Request, _ *chat.Request) { r.Trace = true })},
		{"--raw", ask(func(r *sparrow.Request, _ *chat.Request) { r.Prompt = "Hi?" })},
		{"--raw --file " + file, ask(func(r *sparrow.Request, _ *chat.Request) {
			r.Prompt = "Text:\nA text.\n\nQuestion: Hi?"
		})},
		{"--json-schema " + strings.ReplaceAll(schema, " ", ""), ask(func(r *sparrow.Request, c *chat.Request) {
			c.ResponseFormat = []byte(strings.ReplaceAll(schema, " ", ""))
			r.Format = sparrow.Format{Kind: sparrow.FormatSchema, Schema: c.ResponseFormat}
		})},
	} {
		got, err := request(append(strings.Fields(c.args), "--seed", "1")...)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, chat %+v, %v; want %+v, chat %+v", c.args, got, got.Chat, err, c.want, c.want.Chat)
		}
	}
	for args, want := range map[string]string{"--raw --system x": "--raw sends the prompt unchanged",
		"--raw --think": "--raw sends the prompt unchanged", "--max-tokens -1": "--max-tokens -1: want 0 or more",
		"--temperature -1": "temperature", "--file nowhere": "--file: ", "--json-schema nowhere": "--json-schema: "} {
		if _, err := request(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	one, err := request()
	two, err2 := request()
	if err != nil || err2 != nil || one.Sampling.Seed == two.Sampling.Seed || one.Sampling.Seed < 0 ||
		one.Sampling.Seed >= 1<<53 {
		t.Errorf("random seeds are %d and %d, %v, %v", one.Sampling.Seed, two.Sampling.Seed, err, err2)
	}
}

// A prompt is the arguments, or standard input without the line end.
func TestWhereThePromptIs(t *testing.T) {
	for _, c := range []struct {
		args         []string
		in, want, no string
	}{
		{[]string{"a", "b"}, "x", "a b", ""}, {[]string{"-"}, "x\r\n", "x", ""}, {nil, "x \n\n", "x ", ""},
		{[]string{"-", "b"}, "x", "- b", ""}, {[]string{" ", ""}, "x", "", "the prompt is empty"},
		{[]string{""}, "x", "", "the prompt is empty"}, {nil, "\n", "", "standard input is empty"},
	} {
		got, talk, err := readPrompt(strings.NewReader(c.in), c.args)
		if got != c.want || talk || (err != nil) != (c.no != "") || err != nil && !strings.Contains(err.Error(), c.no) {
			t.Errorf("%q, input %q: prompt %q, chat %v, %v", c.args, c.in, got, talk, err)
		}
	}
}

// health prints why a server is not ready.
func TestHealthSaysWhy(t *testing.T) {
	status := http.StatusServiceUnavailable
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("asked " + r.URL.Path + strings.Repeat("x", 1000)))
	}))
	defer hs.Close()
	err := checkHealth(t.Context(), hs.URL+"/", false)
	if err == nil || !strings.Contains(err.Error(), "503 Service Unavailable: asked /readyxxx") ||
		len(err.Error()) > 600 {
		t.Errorf("%v", err)
	}
	status = http.StatusOK
	if err := checkHealth(t.Context(), hs.URL, false); err != nil {
		t.Error(err)
	}
	if err := checkHealth(t.Context(), "http://[", false); err == nil || !strings.Contains(err.Error(), "want a URL") {
		t.Errorf("%v", err)
	}
}
