package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/testkit/table"
	"sparrow/internal/wire"
	"sparrow/plan"
	"sparrow/server/internal/page"
)

// fill gives every field of a value, and one element of every slice, a value that is not zero; numbers differ.
func fill(v reflect.Value, n *int64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(f, n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.String:
		*n++
		v.SetString("text " + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		*n++
		v.SetInt(*n)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint64:
		*n++
		v.SetUint(uint64(*n))
	}
}

// The trace of a request is as in the table: every field of it, of its plans and of their segments is in the response.
func TestTableOfATrace(t *testing.T) {
	var trace sparrow.Trace
	n := int64(0)
	fill(reflect.ValueOf(&trace).Elem(), &n)
	trace.Queued, trace.Prefill, trace.Decode = 2500*time.Microsecond, 3*time.Second, time.Minute
	text, err := traceJSON([]promptTrace{{prompt: 1, trace: &trace, seed: 7, leftOut: []string{"web_search"}},
		{prompt: 0, trace: &sparrow.Trace{ID: "bare"}, seed: 8}})
	if err != nil {
		t.Fatal(err)
	}
	table.Check(t, "trace.txt", strings.Split(strings.ReplaceAll(string(text), `{"prompt`, "\n"+`{"prompt`), "\n"))
}

// Rows are recorded, and computed anew instead of taken from the cache, if selections or experts are requested.
func TestRowsAreRecordedIfAsked(t *testing.T) {
	for _, selections := range []bool{false, true} {
		for _, experts := range []bool{false, true} {
			var ask sparrow.Request
			wholeRows(&ask, selections, experts)
			asked := selections || experts
			if (ask.Record != nil) != asked || (ask.Salt != "") != asked {
				t.Errorf("selections %v, experts %v: %+v, salt %q", selections, experts, ask.Record, ask.Salt)
			}
			if want := (sparrow.Record{Selections: selections, Experts: experts, Tokens: sparrow.RecordAll}); asked &&
				!reflect.DeepEqual(*ask.Record, want) {
				t.Errorf("%+v, want %+v", *ask.Record, want)
			}
		}
	}
}

// SGLang's endpoint refuses to return data that the model does not have, and scores the prompt only if logprobs are
// requested.
func TestNativeRequestsThatTheModelCannotAnswer(t *testing.T) {
	e := newFake(saying("x"))
	url := func(family string) string {
		if family != "" {
			m, err := plan.ModelFor(family)
			if err != nil {
				t.Fatal(err)
			}
			e.info.Config.Model = m
		}
		_, hs := start(t, e, Options{})
		return hs.URL + "/generate"
	}
	bare, dense := url(""), url("deepseek-v3")
	for _, c := range []struct {
		url, body string
		status    int
		says      string
	}{
		{bare, `{"input_ids":[7],"return_routed_experts":true}`, 400, "no experts"},
		{bare, `{"input_ids":[7],"return_indexer_topk":true}`, 400, "no indexer"},
		{dense, `{"input_ids":[7],"return_indexer_topk":true}`, 400, "no indexer"},
		{bare, `{"input_ids":[7]}`, 200, `"output_ids":[120]`},
	} {
		got := post(t, c.url, c.body)
		if got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("%s: %d %s", c.body, got.status, got.body)
		}
	}
	for body, scored := range map[string]bool{`"logprob_start_len":0`: false, `"return_logprob":true`: true,
		`"return_logprob":true,"logprob_start_len":-1`: false} {
		post(t, bare, `{"input_ids":[7],`+body+`}`)
		if got := e.last(t).Score != nil; got != scored {
			t.Errorf("%s: the prompt is scored %v", body, got)
		}
	}
}

// Errors are worded for the interface that a path belongs to, even if there is no such endpoint.
func TestPathsBelongToAnInterface(t *testing.T) {
	for path, want := range map[string]*dialect{
		"/v1/messages": &anthropicDialect, "/v1/messages/count_tokens": &anthropicDialect,
		"/v1/messagesx": &openaiDialect, "/api/chat": &ollamaDialect, "/api/no": &ollamaDialect,
		"/v1/responses": &responsesDialect, "/v1/responses/r1": &responsesDialect, "/v1/responsesx": &openaiDialect,
		"/v1/chat/completions": &openaiDialect, "/": &openaiDialect,
	} {
		if dialectOf(path) != want {
			t.Errorf("%s belongs to another interface", path)
		}
	}
}

// A prefill server offers its pages only to a request that wants them for another server.
func TestPagesAreOfferedIfAsked(t *testing.T) {
	transfer := Transfer{Role: RolePrefill, Host: "10.1.2.3", Port: 5600}
	_, hs := start(t, newFake(saying("x")), Options{Transfer: transfer})
	for params, offered := range map[string]bool{`{"do_remote_decode":true}`: true, `{"do_remote_decode":false}`: false,
		`{}`: false} {
		got := post(t, hs.URL+"/v1/chat/completions", hello+`,"kv_transfer_params":`+params+`}`)
		if strings.Contains(got.body, "10.1.2.3") != offered || got.status != 200 {
			t.Errorf("%s: %d %s", params, got.status, got.body)
		}
	}
}

// Generated tokens reduce a tenant's budget only if the tenant has a limit of tokens.
func TestOutputWithoutALimitOfTokens(t *testing.T) {
	q, _ := quotaOf(t, "a requests=3")
	u := mustBegin(t, q, "a")
	u.output(1000)
	if u.quota.tokens != 0 {
		t.Errorf("%v tokens are left of no limit", u.quota.tokens)
	}
	if err := u.prompt(5); err != nil {
		t.Error(err)
	}
}

// Texts and numbers of a request to explain are accepted up to their limits.
func TestExplainLimits(t *testing.T) {
	text := func(n int) any { return strings.Repeat("x", n) }
	number := func(n int) any { return n }
	for name, c := range map[string]struct {
		of          func(n int) any
		least, most int
	}{
		"family": {text, 0, maxExplainText}, "catalog": {text, 0, maxExplainText},
		"hw": {text, 0, maxExplainText}, "batch": {text, 0, maxExplainText},
		"kv": {text, 0, maxExplainText}, "prefill": {text, 0, maxExplainText},
		"decode": {text, 0, maxExplainText}, "dense": {text, 0, maxExplainText},
		"heads": {number, 1, 1 << 10}, "layer": {number, 0, 1 << 10}, "draft_tokens": {number, 0, 16},
	} {
		for n, ok := range map[int]bool{c.least: true, c.most: true, c.most + 1: false, c.least - 1: false} {
			if n < 0 && c.most == maxExplainText {
				continue
			}
			body, err := json.Marshal(map[string]any{name: c.of(n)})
			if err != nil {
				t.Fatal(err)
			}
			if _, bad := decodeExplain(&wire.Decoder{}, body); (bad == nil) != ok || bad != nil && bad.Param != name {
				t.Errorf("%s of size or value %d: %v, want accepted %v", name, n, bad, ok)
			}
		}
	}
}

// The page and each of its files have headers that isolate them from other origins and make browsers check for newer
// versions.
func TestThePageHasItsHeaders(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	got := get(t, hs.URL+"/", "Accept", "text/html")
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": page.Policy,
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-cache",
	} {
		if text := got.header.Get(name); text != want {
			t.Errorf("%s is %q, want %q", name, text, want)
		}
	}
}
