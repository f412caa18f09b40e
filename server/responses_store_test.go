package server

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/wire"
)

func TestAResponseIsContinued(t *testing.T) {
	e := newFake(playing(told()...))
	_, hs := start(t, e, Options{})
	first := respond(t, hs.URL, asked+`,"instructions":"first"}`)
	results := `{"type":"function_call_output","call_id":"c1","output":"r1"},` +
		`{"type":"function_call_output","call_id":"c2","output":"r2"}`
	e.script = saying("done")
	second := respond(t, hs.URL, `{"model":"sparrow-test","previous_response_id":"`+first.ID+`","input":[`+results+`]}`)
	reply := chat.Message{Role: chat.Assistant, Content: "I look.", Reasoning: "Hmm.", ToolCalls: []chat.Call{
		{ID: "c1", Name: "f", Arguments: `{"a":1}`}, {ID: "c2", Name: "g", Arguments: `{}`}}}
	want := []chat.Message{{Role: chat.User, Content: "hello"}, reply,
		{Role: chat.ToolRole, Content: "r1", ToolCallID: "c1"}, {Role: chat.ToolRole, Content: "r2", ToolCallID: "c2"}}
	if diff := cmp.Diff(want, e.last(t).Chat.Messages); diff != "" {
		t.Errorf("the second request, without the instructions of the first: %s", diff)
	}
	respond(t, hs.URL, `{"model":"sparrow-test","previous_response_id":"`+second.ID+`","input":"more"}`)
	want = append(want, chat.Message{Role: chat.Assistant, Content: "done"},
		chat.Message{Role: chat.User, Content: "more"})
	if diff := cmp.Diff(want, e.last(t).Chat.Messages); diff != "" {
		t.Errorf("the third request: %s", diff)
	}
	// The same conversation is sent with references to stored items.
	name := strings.TrimPrefix(first.ID, "resp_")
	respond(t, hs.URL, fmt.Sprintf(`{"model":"sparrow-test","input":[{"role":"user","content":"hello"},
		{"type":"item_reference","id":"rs_%s_0"},{"id":"msg_%[1]s_1"},{"id":"fc_%[1]s_2"},{"id":"fc_%[1]s_3"},%s]}`,
		name, results))
	if diff := cmp.Diff(want[:4], e.last(t).Chat.Messages); diff != "" {
		t.Errorf("by reference: %s", diff)
	}
}

func TestStoredResponsesAreReadAndDeletedByTheirTenant(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("k1 acme\nk2 other\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, hs := start(t, newFake(saying("x")), Options{Keys: keys})
	mine, theirs := []string{"Authorization", "Bearer k1"}, []string{"Authorization", "Bearer k2"}
	made := post(t, hs.URL+responsesPath, asked+`}`, mine...)
	id := drawnName.FindString(made.body)
	at := hs.URL + responsePrefix + id
	if got := get(t, at, mine...); got.status != 200 || got.body != made.body {
		t.Errorf("status %d: %s, want %s", got.status, got.body, made.body)
	}
	for _, got := range []reply{
		get(t, at, theirs...), send(t, "DELETE", at, "", theirs...), get(t, hs.URL+responsePrefix+"resp_1", mine...),
	} {
		if got.status != 404 || *errorOf(t, got).Code != string(wire.CodeNoResponse) {
			t.Errorf("status %d: %s", got.status, got.body)
		}
	}
	next := `{"model":"sparrow-test","input":"x","previous_response_id":"` + id + `"}`
	if got := post(t, hs.URL+responsesPath, next, theirs...); got.status != 400 {
		t.Errorf("another tenant continues: status %d", got.status)
	}
	if got := get(t, at+"?stream=true", mine...); got.status != 400 {
		t.Errorf("a stream of what is over: status %d", got.status)
	}
	if got := send(t, "DELETE", at, "", mine...); got.status != 200 ||
		got.body != `{"id":"`+id+`","object":"response","deleted":true}` {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got := post(t, hs.URL+responsesPath, next, mine...); got.status != 400 {
		t.Errorf("continued after it was deleted: status %d", got.status)
	}
	unstored := respond(t, hs.URL, asked+`,"store":false}`, mine...)
	if got := get(t, hs.URL+responsePrefix+unstored.ID, mine...); got.status != 404 || unstored.Store {
		t.Errorf("store false: status %d, store %v", got.status, unstored.Store)
	}
}

func entry(id string, bytes int) *stored {
	s := &stored{response: &openai.Response{ID: id}, conversation: []openai.Item{{Content: openai.Content{"x"}}}}
	s.conversation[0].Content[0] = strings.Repeat("x", (bytes-s.size())*8/9)
	return s
}

// When the store is filled with the largest responses of any kind, the heap grows by at most the store's limit and by
// at least a quarter of it.
func TestTheStoreHoldsNoMoreThanItsLimit(t *testing.T) {
	many := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	input := `"input":"x"`
	kinds := map[string]string{
		"a schema": input + `,"text":{"format":{"type":"json_schema","name":"s","schema":{"title":"%s"}}}`,
		"a format's " +
			"words": input + `,"text":{"format":{"type":"json_schema","name":"s","schema":{},"description":"%s"}}`,
		"instructions":    input + `,"instructions":"%s"`,
		"a tool's schema": input + `,"tools":[{"type":"function","name":"f","parameters":{"description":"%s"}}]`,
		"a tool's words":  input + `,"tools":[{"type":"function","name":"f","description":"%s"}]`,
		"one text":        `"input":"%s"`,
		"many empty " +
			"texts": `"input":[{"role":"user","content":[` + many(`{"type":"input_text","text":""}`, 1000) + `]}]`,
		"many short " +
			"texts": `"input":[{"role":"user","content":[` + many(`{"type":"input_text","text":"a"}`, 1000) + `]}]`,
		"many items": `"input":[` + many(`{"role":"user","content":""}`, 1000) + `]`,
		"many calls": `"input":[` + many(`{"type":"function_call","call_id":"c","name":"n","arguments":""}`, 500) +
			`]`,
		"metadata":          input + `,"metadata":{"a":"b","c":"%.500s"}`,
		"alternatives":      input,
		"a trace":           input,
		"a model's long id": input,
	}
	const limit = 4 << 20
	text := strings.Repeat("x", 1<<14)
	for name, body := range kinds {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m",` + strings.ReplaceAll(strings.ReplaceAll(body, "%.500s", text[:500]), "%s", text) + `}`
			id := func(i int) string { return fmt.Sprintf("resp_%030d", i) }
			s := newResponseStore(limit)
			before := heapInUse()
			for i := 0; i < 10 || s.get("t", id(0)) != nil; i++ { // until the first response was dropped
				req, err := openai.DecodeResponses(&wire.Decoder{}, []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				r := openai.NewResponse(id(i), 0, req)
				switch name {
				case "alternatives":
					r.Output = []openai.Item{{Logprobs: alternatives(50)}}
				case "a trace":
					r.Sparrow = make([]byte, 1<<14)
				case "a model's long id":
					r.Model = strings.Repeat("x", 1<<10)
				}
				s.put("t", &stored{response: r, conversation: req.Input})
			}
			if grown := heapInUse() - before; grown > limit || grown < limit/4 {
				t.Errorf("the heap grew by %d bytes, the store has counted %d", grown, s.used)
			}
			runtime.KeepAlive(s)
		})
	}
}

// alternatives returns log probabilities of the given number of tokens, with the maximum number of alternatives.
func alternatives(tokens int) []openai.TokenLogprob {
	list := make([]openai.TokenLogprob, tokens)
	for i := range list {
		list[i].TopLogprobs = make([]openai.TopLogprob, openai.MaxTopLogprobs)
		for j := range list[i].TopLogprobs {
			list[i].TopLogprobs[j].Token = fmt.Sprint("token", i, j)
			list[i].TopLogprobs[j].Bytes = make(openai.TokenBytes, 12)
		}
	}
	return list
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestTheStoreIsBounded(t *testing.T) {
	s := newResponseStore(10 * 4096)
	has := func(tenant string, ids ...string) (list []string) {
		for _, id := range ids {
			if s.get(tenant, id) != nil {
				list = append(list, id)
			}
		}
		return list
	}
	s.put("small", entry("s1", 4096))
	s.put("small", entry("s2", 4096))
	var all []string
	for i := range 20 {
		id := fmt.Sprint("b", i)
		all = append(all, id)
		s.put("big", entry(id, 4096))
		if s.used > s.limit {
			t.Fatalf("%d bytes are used, the limit is %d", s.used, s.limit)
		}
	}
	if diff := cmp.Diff(all[12:], has("big", all...)); diff != "" {
		t.Errorf("the busy tenant has: %s", diff)
	}
	if diff := cmp.Diff([]string{"s1", "s2"}, has("small", "s1", "s2")); diff != "" {
		t.Errorf("the other tenant has: %s", diff)
	}
	s.put("small", entry("huge", 11*4096))
	if len(has("small", "s1", "s2", "huge")) != 2 {
		t.Error("a response above the limit displaced others")
	}
	for _, id := range all[12:] {
		if !s.remove("big", id) || s.remove("big", id) {
			t.Errorf("%s was not there once", id)
		}
	}
	s.remove("small", "s1")
	s.remove("small", "s2")
	if s.used != 0 || len(s.tenants) != 0 {
		t.Errorf("%d bytes in %d tenants of an empty store", s.used, len(s.tenants))
	}
}

func TestTruncationLeavesOutOldTurns(t *testing.T) {
	var items []string
	for i := range 9 {
		items = append(items, fmt.Sprintf(`{"role":"user","content":"%d%s"},{"role":"assistant","content":"a"}`, i,
			strings.Repeat("x", 99)))
	}
	items = append(items, `{"role":"user","content":"last"}`)
	// The fake engine's tokens are bytes: a turn has 118 tokens, including the markers of its roles.
	for _, c := range []struct {
		context int
		fields  string
		kept    int // number of user messages that are kept
	}{
		{4096, ``, 10}, {1200, ``, 9}, {600, ``, 5}, {600, `,"max_output_tokens":200`, 4},
		{600, `,"max_output_tokens":5000`, 3}, {40, ``, 1},
	} {
		e := newFake(saying("x"))
		e.info.ContextTokens = c.context
		_, hs := start(t, e, Options{})
		respond(t, hs.URL, `{"model":"sparrow-test","instructions":"be","truncation":"auto","input":[`+
			strings.Join(items, ",")+`]`+c.fields+`}`)
		got := e.last(t).Chat.Messages
		if got[0].Role != chat.System || got[len(got)-1].Content != "last" || len(got) != 2*c.kept ||
			got[1].Role != chat.User {
			t.Errorf("context %d%s: %d messages, want %d", c.context, c.fields, len(got), 2*c.kept)
		}
	}
	// A conversation that fills the context exactly, including its answer, is kept completely.
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	body := `{"model":"sparrow-test","truncation":"auto","max_output_tokens":100,"input":[` +
		strings.Join(items, ",") + `]}`
	respond(t, hs.URL, body)
	ids, err := e.EncodeChat(e.last(t).Chat, false)
	if err != nil {
		t.Fatal(err)
	}
	for less, kept := range []int{10, 9} {
		e := newFake(saying("x"))
		e.info.ContextTokens = len(ids) + 100 - less
		_, hs := start(t, e, Options{})
		respond(t, hs.URL, body)
		if got := len(e.last(t).Chat.Messages); got != 2*kept-1 {
			t.Errorf("%d tokens less than needed: %d messages, want %d", less, got, 2*kept-1)
		}
	}
}

func TestNothingIsStoredWithoutMemory(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{StoreBytes: NoStore})
	r := respond(t, hs.URL, asked+`,"store":true}`)
	if r.Store {
		t.Error("the response says that it is stored")
	}
	if got := get(t, hs.URL+responsePrefix+r.ID); got.status != 404 || !strings.Contains(got.body, "--store-bytes") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if err := (Options{StoreBytes: -2}).Validate(); err == nil {
		t.Error("a negative size was accepted")
	}
}
