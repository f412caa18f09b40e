package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"testing"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/testkit/memnet"
	"sparrow/internal/wire"
)

// fake is a server in memory, for tests under synctest, that answers every completion with one piece of text for
// each requested token.
type fake struct {
	http.Handler
	net            *memnet.Listener
	first, between time.Duration
	noTokenizer    bool
	counts         bool // every event has usage, and every second token has no text
	room           int  // maximum number of tokens of an answer; 0 means no limit
	// refuse, if not nil, may respond to the i-th completion in place of the fake; it then returns true.
	refuse func(i int, w http.ResponseWriter) bool

	mu       sync.Mutex
	chats    [][]openai.Message
	received []completion
	running  int
	most     int
}

// completion is a request as it was received.
type completion struct {
	Model         string  `json:"model"`
	Prompt        []int32 `json:"prompt"`
	MaxTokens     int     `json:"max_tokens"`
	N             int     `json:"n"`
	Temperature   float64 `json:"temperature"`
	TopP          float64 `json:"top_p"`
	Stream        bool    `json:"stream"`
	IgnoreEOS     bool    `json:"ignore_eos"`
	StreamOptions struct {
		IncludeUsage    bool `json:"include_usage"`
		ContinuousUsage bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	key string
}

func newFake(t *testing.T, f *fake) *fake {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"fake-model","object":"model"}]}`)
	})
	mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, _ *http.Request) {
		if f.noTokenizer {
			http.Error(w, `{"error":{"message":"no tokenizer"}}`, http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"count":4,"max_model_len":100,"tokens":[1001,1002,1003,1004],"token_strs":null}`)
	})
	mux.HandleFunc("POST /v1/completions", f.complete)
	mux.HandleFunc("POST /v1/chat/completions", f.chat)
	f.Handler = mux
	f.net = memnet.Listen()
	hs := &http.Server{Handler: f, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan error, 1)
	go func() { done <- hs.Serve(f.net) }()
	t.Cleanup(func() {
		if err := hs.Shutdown(context.Background()); err != nil { // Shutdown waits until running requests are answered
			t.Error(err)
		}
		<-done
	})
	return f
}

func (f *fake) complete(w http.ResponseWriter, r *http.Request) {
	q := completion{key: r.Header.Get("Authorization")}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	i := len(f.received)
	f.received = append(f.received, q)
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	if f.refuse != nil && f.refuse(i, w) {
		return
	}
	flush := http.NewResponseController(w).Flush
	pause(r, f.first)
	tokens := q.MaxTokens
	if f.room > 0 {
		tokens = min(tokens, f.room)
	}
	for n := range tokens {
		if n > 0 {
			pause(r, f.between)
		}
		usage, text := "", "x"
		if f.counts && q.StreamOptions.ContinuousUsage {
			usage = fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, len(q.Prompt), n+1)
			if n%2 == 1 {
				text = ""
			}
		}
		fmt.Fprintf(w, ": a comment\n\ndata: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}]%s}\n\n",
			text, usage)
		if flush() != nil {
			return
		}
	}
	fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n")
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"+
		"\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n",
		len(q.Prompt), tokens, len(q.Prompt)/2)
}

// chat answers a chat request with the number of its messages as text.
func (f *fake) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	q, bad := openai.DecodeChat(&wire.Decoder{Strict: true}, body)
	if bad != nil {
		http.Error(w, bad.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.chats = append(f.chats, q.Messages)
	f.mu.Unlock()
	pause(r, f.first)
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"+
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
		len(q.Messages))
}

// pause waits for d, or until the client disconnects.
func pause(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}
