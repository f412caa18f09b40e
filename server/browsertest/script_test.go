package browsertest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A script answers these prompts instead of the model, for answers that no small model generates or that take too long
// to compute.
const (
	sayHostile = "script:hostile"
	sayForever = "script:forever"
	sayThought = "script:thought"
	sayLong    = "script:long"
	sayCode    = "script:code"
)

// hostile is an answer that tries to attack the page: with markup, event handlers, control characters, and marks that
// reverse text.
const hostile = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'>\n" +
	"<style>body { display: none }</style><a href='javascript:window.harmed = 3'>click</a>\n" +
	"```html\n<iframe src='http://example.org/'></iframe>\n```\n" +
	"\x00\x07\x1b[31mred\x1b[0m \u202eevil\u202c \ufeff end\n"

// These are the sizes of the longest hostile line, of the recording of a long prompt, and of a block of code.
const (
	hostileLine  = 3 << 20
	longTokens   = 100_000
	longLayers   = 61
	longSelected = 2048
	longOutput   = 24
	codeLines    = 120
)

// scripted answers some prompts by a script, and passes the others to the server.
type scripted struct {
	next http.Handler
	left chan struct{} // receives a value when a client disconnects from an endless answer
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, prefix)
	if r.Method != http.MethodPost || (path != "/v1/chat/completions" && path != "/tokenize") {
		s.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	says := func(prompt string) bool { return bytes.Contains(body, []byte(`"`+prompt+`"`)) }
	switch {
	case says(sayLong) && path == "/tokenize":
		json.NewEncoder(w).Encode(map[string]any{"count": longTokens, "token_strs": longPrompt()})
	case says(sayLong):
		sendLong(newStream(w))
	case says(sayHostile):
		sendHostile(newStream(w))
	case says(sayThought):
		out := newStream(w)
		out.delta(map[string]any{"reasoning_content": "First I count."})
		out.delta(map[string]any{"content": "Four."})
		out.end(2)
	case says(sayCode):
		out := newStream(w)
		out.delta(map[string]any{"content": "A program:\n\n```go\n"})
		for i := range codeLines {
			out.delta(map[string]any{"content": fmt.Sprintf("line(%d)\n", i)})
		}
		out.delta(map[string]any{"content": "```\n\nThat is all."})
		out.end(codeLines)
	case says(sayForever):
		out := newStream(w)
		for r.Context().Err() == nil {
			out.delta(map[string]any{"content": "word "})
			time.Sleep(10 * time.Millisecond)
		}
		s.left <- struct{}{}
	case path != "/tokenize" && bytes.Contains(body, []byte(sayReading)):
		sendReading(newStream(w), r)
		s.left <- struct{}{}
	case says(sayMarkdown):
		sendMarkdown(newStream(w))
	case says(sayLongReply): // checked after sayForever, which may follow in the same conversation
		sendLongReply(newStream(w), r)
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.next.ServeHTTP(w, r)
	}
}

// stream writes the chunks of a streamed chat.
type stream struct{ w http.ResponseWriter }

func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return stream{w}
}

func (s stream) send(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps and strings are sent
	}
	fmt.Fprintf(s.w, "data: %s\n\n", text)
	s.w.(http.Flusher).Flush()
}

func (s stream) delta(d map[string]any) {
	s.send(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": d}}})
}

func (s stream) end(completion int) {
	s.send(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{},
		"finish_reason": "stop"}}})
	s.send(map[string]any{"choices": []any{}, "usage": map[string]any{"prompt_tokens": longTokens,
		"completion_tokens": completion}})
	io.WriteString(s.w, "data: [DONE]\n\n")
}

func sendHostile(s stream) {
	s.delta(map[string]any{"content": hostile})
	for range 64 {
		s.delta(map[string]any{"content": strings.Repeat("x", hostileLine/64)})
	}
	s.delta(map[string]any{"content": "\nthe end"})
	s.end(66)
}

// longPrompt returns the lines of a long text, twenty words each.
func longPrompt() []string {
	out := make([]string, longTokens)
	for i := range out {
		out[i] = fmt.Sprintf(" w%d", i%997)
		if i%20 == 19 {
			out[i] = ".\n"
		}
	}
	return out
}

// sendLong streams an answer whose recorded rows have selections in every layer.
func sendLong(s stream) {
	for i := range longOutput {
		position := longTokens - 1 + i
		layers := make([]any, longLayers)
		for l := range layers {
			layers[l] = map[string]any{"layer": l, "keys": position + 1, "selected": selection(position, l)}
		}
		s.send(map[string]any{"choices": []any{map[string]any{"index": 0,
			"delta":    map[string]any{"content": " word"},
			"logprobs": map[string]any{"content": []any{map[string]any{"token": " word"}}},
			"sparrow":  map[string]any{"rows": []any{map[string]any{"position": position, "layers": layers}}},
		}}})
	}
	s.end(longOutput)
}

// selection returns longSelected positions as JSON text; the positions differ in every row and layer.
func selection(position, layer int) string {
	var out []byte
	at, step := 0, (position+1)/longSelected
	for i := range longSelected {
		next := i*step + (i*31+layer*17+position*7)%step
		out = binary.AppendUvarint(out, uint64(next-at))
		at = next
	}
	return base64.StdEncoding.EncodeToString(out)
}
