package server

import (
	"bufio"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// With return_progress, the stream of a request reports how many prompt tokens are computed, until the first token.
func TestProgressOfThePrompt(t *testing.T) {
	gate := make(chan struct{})
	e := newFake(saying("Hi", "!"))
	e.pause = func(int) { <-gate }
	_, hs := start(t, e, Options{})
	res, err := http.Post(hs.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(hello+`,"stream":true,"return_progress":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var told, said int
	open := sync.OnceFunc(func() { close(gate) })
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.Contains(line, `"prompt_progress"`):
			told++
			if !strings.Contains(line, `"object":"chat.completion.chunk"`) || !strings.Contains(line,
				`"choices":[],"prompt_progress":{"total":7,"cache":4,"processed":5,"time_ms":`) {
				t.Errorf("a report: %s", line)
			}
			if said > 0 {
				t.Error("a report after the first token")
			}
			open()
		case strings.Contains(line, `"content":"Hi"`):
			said++
		}
	}
	if told == 0 || said != 1 {
		t.Errorf("%d reports, %d answers", told, said)
	}
	// A stream without this option gets no reports.
	if got := post(t, hs.URL+"/v1/chat/completions", hello+`,"stream":true}`); strings.Contains(got.body, "progress") {
		t.Error(got.body)
	}
}
