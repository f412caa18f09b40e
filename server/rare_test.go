package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow"
	"sparrow/api/anthropic"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/batch"
	"sparrow/internal/wire"
)

// Invariants of this file: cases that few requests reach have the right results.

// The result of a line that did not run has the line's custom id, and says in the words of its interface why.
func TestResultsOfLinesThatDidNotRun(t *testing.T) {
	for _, c := range []struct {
		kind string
		why  batch.Class
		want string
	}{
		{anthropicBatch, batch.LineCancel, `{"custom_id":"x","result":{"type":"canceled"}}`},
		{anthropicBatch, batch.LineExpired, `{"custom_id":"x","result":{"type":"expired"}}`},
		{"", batch.LineCancel, `"batch_cancelled" "the batch was cancelled before this line ended"`},
		{"", batch.LineExpired, `"batch_expired" "the batch expired before this line ended"`},
	} {
		got := (lineRunner{}).Left(batch.Batch{ID: "b", Kind: c.kind}, batch.Line{Number: 3, CustomID: "x"}, c.why)
		text := string(got.Text)
		if c.kind == "" {
			var r openai.BatchResult
			if err := json.Unmarshal(got.Text, &r); err != nil || r.CustomID != "x" || r.ID != "batch_req_b_3" {
				t.Errorf("%s: %v", text, err)
			}
			text = `"` + r.Error.Code + `" "` + r.Error.Message + `"`
		}
		if text != c.want || got.Class != c.why {
			t.Errorf("class %v, %s; want %s", got.Class, text, c.want)
		}
	}
}

// An invalid line is refused with the reason, as an error of its interface.
func TestLinesThatAreRefused(t *testing.T) {
	b := batch.Batch{ID: "b", Endpoint: "/v1/chat/completions"}
	line := func(fields string) string {
		return `{"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": {"a": 1}` + fields + `}`
	}
	for _, c := range []struct {
		line batch.Line
		code wire.Code
		text string
	}{
		{batch.Line{Text: []byte(line(``))}, "", ""},
		{batch.Line{Text: []byte(line(`, "custom_id": ""`))}, wire.CodeMissing, "identifies"},
		{batch.Line{Text: []byte(line(`, "method": "GET"`))}, wire.CodeInvalidValue, `"GET"`},
		{batch.Line{Text: []byte(line(`, "url": "/v1/x"`))}, wire.CodeInvalidValue, `"/v1/x"`},
		{batch.Line{Text: []byte(line(`, "body": [1]`))}, wire.CodeMissing, "body"},
		{batch.Line{Text: []byte(line(`, "body": {"stream": true}`))}, wire.CodeUnsupportedValue, "stream"},
		{batch.Line{Text: []byte(line(`, "body": {"stream": false}`))}, "", ""},
		{batch.Line{Text: []byte(`[`), Number: 4}, wire.CodeInvalidJSON, "line 5"},
		{batch.Line{Number: 4, TooLong: true}, wire.CodeBodyTooLarge, "line 5"},
		{batch.Line{Text: []byte(line(``)), Duplicate: true}, wire.CodeDuplicate, "custom_id"},
	} {
		endpoint, body, bad := requestOf(&b, &c.line)
		switch {
		case c.code == "":
			if bad != nil || endpoint != b.Endpoint || len(body) == 0 || body[0] != '{' {
				t.Errorf("%s: %s %s, %v", c.line.Text, endpoint, body, bad)
			}
		case bad == nil || bad.Code != c.code || !strings.Contains(bad.Error(), c.text) || endpoint != "" ||
			body != nil:
			t.Errorf("%+v: %v; want %s", c.line, bad, c.code)
		}
	}
	bad := wire.NewError(wire.CodeMissing, "body", "required")
	r := (lineRunner{}).refused(&batch.Batch{ID: "b", Kind: anthropicBatch}, &batch.Line{CustomID: "x"}, bad)
	var got anthropic.BatchResult
	if err := json.Unmarshal(r.Text, &got); err != nil || r.Class != batch.Errored || got.CustomID != "x" ||
		got.Result.Type != anthropic.AnswerErrored || !strings.Contains(string(r.Text), "required") {
		t.Errorf("%v %s: %v", r.Class, r.Text, err)
	}
	if r := encodeLine(batch.Succeeded, json.RawMessage("{")); r.Class != batch.Errored || !json.Valid(r.Text) {
		t.Errorf("a response that is not JSON: %v %s", r.Class, r.Text)
	}
}

// The object of a batch has the status of its state, and the time at which it ended under the name of that state.
func TestTheStatusOfABatch(t *testing.T) {
	store := batchStore(t, batch.Options{})
	defer store.Stop()
	for state, want := range map[batch.State]struct {
		status string
		ended  func(*openai.Batch) *int64
	}{
		batch.Running:    {openai.BatchInProgress, nil},
		batch.Cancelling: {openai.BatchCancelling, nil},
		batch.Completed:  {openai.BatchCompleted, func(b *openai.Batch) *int64 { return b.CompletedAt }},
		batch.Cancelled:  {openai.BatchCancelled, func(b *openai.Batch) *int64 { return b.CancelledAt }},
		batch.Expired:    {openai.BatchExpired, func(b *openai.Batch) *int64 { return b.ExpiredAt }},
	} {
		b := batch.Batch{ID: "b", State: state, Created: time.Unix(100, 0), Ended: time.Unix(200, 0)}
		got := (batchesAPI{}).object(store, &b)
		if got.Status != want.status {
			t.Errorf("%s: status %s", state, got.Status)
		}
		if want.ended != nil && (want.ended(&got) == nil || *want.ended(&got) != 200) {
			t.Errorf("%s: %+v", state, got)
		}
		n := 0
		for _, at := range []*int64{got.CompletedAt, got.CancelledAt, got.ExpiredAt} {
			if at != nil {
				n++
			}
		}
		if (n > 0) != (want.ended != nil) || n > 1 {
			t.Errorf("%s: it ended in %d states", state, n)
		}
	}
}

// A batch of Anthropic's interface that has not ended has no results, and lists begin only after a batch.
func TestMessageBatchesThatRun(t *testing.T) {
	e := newFake(playing())
	_, url, _ := listen(t, e, Options{Batches: batchStore(t, batch.Options{Workers: 1})})
	b := decoded[anthropic.MessageBatch](t, post(t, url+messageBatches, `{"requests": [{"custom_id": "a", "params":
		{"model": "sparrow-test", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}}]}`))
	if got := get(t, url+messageBatchPrefix+b.ID+"/results"); got.status != http.StatusNotFound ||
		!strings.Contains(got.body, "has not ended") {
		t.Errorf("results: %d %s", got.status, got.body)
	}
	if got := get(t, url+messageBatches+"?before_id="+b.ID); got.status != http.StatusBadRequest {
		t.Errorf("before_id: %d %s", got.status, got.body)
	}
	for _, id := range []string{"none", "none/results"} {
		if got := get(t, url+messageBatchPrefix+id); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", id, got.status, got.body)
		}
	}
	b = decoded[anthropic.MessageBatch](t, post(t, url+messageBatchPrefix+b.ID+"/cancel", ""))
	if b.CancelInitiatedAt == nil || b.ProcessingStatus == anthropic.BatchInProgress {
		t.Errorf("%+v", b)
	}
	for _, prefix := range []string{messageBatchPrefix, batchPrefix} {
		if got := post(t, url+prefix+"none/cancel", ""); got.status != http.StatusNotFound {
			t.Errorf("cancelling none: %d %s", got.status, got.body)
		}
	}
	other := makeBatch(t, url, "/v1/chat/completions", strings.ReplaceAll(chatLine("x", "hi"), "\n", " "))
	got := decoded[openai.Batch](t, post(t, url+batchPrefix+other.ID+"/cancel", ""))
	if got.ID != other.ID || got.CancellingAt == nil {
		t.Errorf("%+v", got)
	}
}

// If memory is released for none of the large requests that wait, a small request behind them goes on, and no later
// large request overtakes an earlier one.
func TestLargeRequestsWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(3200) // requests above 100 bytes are large
		ctx := context.Background()
		take := func(n int64) *bool {
			done := new(bool)
			go func() { *done = m.take(ctx, n, time.Hour) == nil }()
			synctest.Wait()
			return done
		}
		for range 12 {
			take(100)
		}
		held := take(2000)
		small := take(100)
		big, later, last := take(2400), take(200), take(100)
		if !*held || *small || *big || *later || *last {
			t.Fatalf("%v, %v, %v, %v, %v", *held, *small, *big, *later, *last)
		}
		m.give(100, 100)
		synctest.Wait()
		if !*small || *big || *later || *last {
			t.Errorf("100 bytes are free: %v, %v, %v, %v", *small, *big, *later, *last)
		}
		for range 3 {
			m.give(100, 100)
		}
		synctest.Wait()
		if *big || *later || !*last {
			t.Errorf("300 bytes are free: %v, %v, %v", *big, *later, *last)
		}
		m.give(2000, 2000)
		synctest.Wait()
		if *big || *later {
			t.Errorf("2200 bytes are free: %v, %v", *big, *later)
		}
		m.give(200, 100)
		synctest.Wait()
		if !*big || *later {
			t.Errorf("2400 bytes are free: %v, %v", *big, *later)
		}
		m.give(2400, 2400)
		synctest.Wait()
		if !*later {
			t.Error("the last large request waits")
		}
	})
}

// Responses without an Origin allow none, and an OPTIONS request that asks for no method is not a preflight.
func TestRequestsThatAskNothing(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{AllowOrigins: []string{"*"}})
	got := send(t, "OPTIONS", hs.URL+"/v1/chat/completions", "", "Origin", "https://a")
	if got.status != http.StatusMethodNotAllowed || got.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("status %d, %v", got.status, got.header)
	}
	got = send(t, "OPTIONS", hs.URL+"/v1/chat/completions", "", "Access-Control-Request-Method", "POST")
	if got.status != http.StatusMethodNotAllowed || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("status %d, %v", got.status, got.header)
	}
}

// Limits are read from the flag or from a file, with tabs too, and an error names the file. Only tenants need keys.
func TestLimitsOfFilesAndFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	for _, c := range []struct {
		text string
		ok   bool
	}{{"a\trequests=2\n* tokens=5", true}, {"a requests=0", false}, {"a requests=2147483647\n* tokens=5", true},
		{"a requests=2147483648", false}} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := LoadLimits(path)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, ErrLimits) || !strings.Contains(err.Error(), path)) {
			t.Fatalf("%q: %v", c.text, err)
		}
		if c.ok && (l.of("a").Requests < 2 || l.of("b").Tokens != 5) {
			t.Errorf("%q: %+v", c.text, l)
		}
	}
	l, err := LoadLimits("a requests=2; * tokens=5")
	if err != nil {
		t.Fatal(err)
	}
	for tenant, ok := range map[string]bool{"a": true, "b": false} {
		if err := l.check(&Keys{list: []key{{tenant: tenant}}}); (err == nil) != ok {
			t.Errorf("a key of %s: %v", tenant, err)
		}
	}
}

// The reason of a context that ended too late is the server's deadline; other reasons stay.
func TestReasonsOfEndedRequests(t *testing.T) {
	late, end := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer end()
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(ErrCutShort)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{context.Background(), nil}, {late, ErrDeadline}, {gone, ErrCutShort}} {
		if got := cause(c.ctx); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

// A conversation of at most one turn is never truncated, and an error of the chat's format is returned.
func TestTruncationOfFewTurns(t *testing.T) {
	e := newFake(saying("x"))
	e.info.ContextTokens = 8
	s, _ := start(t, e, Options{})
	for _, c := range []struct {
		roles []chat.Role
		left  int
		bad   bool
	}{
		{[]chat.Role{chat.System, chat.Assistant}, 2, false}, {[]chat.Role{chat.System, chat.User, chat.Assistant}, 3,
			false}, {[]chat.Role{chat.System, chat.User, chat.User}, 2, false},
		{[]chat.Role{chat.Developer, chat.User, chat.User}, 3, true},
	} {
		r := sparrow.Request{Chat: &chat.Request{}}
		for _, role := range c.roles {
			r.Chat.Messages = append(r.Chat.Messages, chat.Message{Role: role, Content: strings.Repeat("word ", 100)})
		}
		err := (&responsesAPI{service: s.service}).truncate(&r)
		if errors.Is(err, chat.ErrRequest) != c.bad || len(r.Chat.Messages) != c.left {
			t.Errorf("%v: %d messages are left, error %v", c.roles, len(r.Chat.Messages), err)
		}
	}
}
