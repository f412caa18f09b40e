package server

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/batch"
	"sparrow/internal/testkit/table"
)

// mute is an engine that encodes nothing.
type mute struct{ *fakeEngine }

func (mute) Encode(string, bool) ([]int32, error) {
	return nil, &sparrow.RequestError{Field: "prompt", Reason: "cannot be encoded"}
}

func (mute) EncodeChat(*chat.Request, bool) ([]int32, error) {
	return nil, fmt.Errorf("%w: messages[0]: cannot be encoded", chat.ErrRequest)
}

var paramOf = regexp.MustCompile(` ?"param":"[^"]*"`)

// Every endpoint answers with the status, the code and the field of the golden table in these cases: the body is not a
// request, the model has another name, a query or an id is unknown, the key is missing, the server is draining, or the
// engine refuses the request.
func TestTableOfRefusals(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("user-key"))
	if err != nil {
		t.Fatal(err)
	}
	admins, err := ReadKeys(strings.NewReader("root-key"))
	if err != nil {
		t.Fatal(err)
	}
	options := func() Options {
		return Options{AdminKeys: admins, Batches: batchStore(t, batch.Options{Budget: 1 << 20}), NoPage: true,
			MaxBodyBytes: 4096}
	}
	answering := newFake(answering(sparrow.FinishStop, ""))
	refusing := newFake(func(sparrow.Request) ([]sparrow.Event, error) {
		return nil, &sparrow.RequestError{Field: "prompt", Reason: "odd", Err: sparrow.ErrContext}
	})
	guarded := options()
	guarded.Keys = keys
	_, open := start(t, answering, options())
	_, locked := start(t, answering, guarded)
	_, refused := start(t, refusing, options())
	_, silent := start(t, mute{refusing}, options())
	draining, leaving := start(t, answering, options())
	draining.state.Store(stateDraining)
	bodies := map[string]string{
		"/v1/chat/completions/render": `"messages":[{"role":"user","content":"hi"}]`,
		"/v1/completions/render":      `"prompt":["a","b"]`, "/debug/explain": `"batch":"decode:5"`,
	}
	for _, a := range asks {
		if bodies[a.path] == "" {
			bodies[a.path] = a.body
		}
	}
	var lines []string
	ask := func(what, url, method, path, body string) {
		got := send(t, method, url+path, body, "Content-Type", "application/json", requestIDHeader, "t1",
			"Authorization", "Bearer root-key")
		line := fmt.Sprintf("%s: %s %s => %d %s", what, method, path, got.status, got.header.Get("Content-Type"))
		for _, name := range []string{"Allow", "Retry-After", "WWW-Authenticate"} {
			if text := got.header.Get(name); text != "" {
				line += fmt.Sprintf(", %s %s", name, text)
			}
		}
		if got.status != http.StatusOK {
			line += ": " + table.Facts(randomID.ReplaceAllString(got.body, "${1}_X")) + paramOf.FindString(got.body)
		}
		lines = append(lines, line)
	}
	for _, r := range routes(draining.service, nil) {
		path := r.pattern
		if r.pattern != "/" && strings.HasSuffix(path, "/") {
			path += "x1"
		}
		ask("without a user's key", locked.URL, r.method, path, "{}")
		if r.method != http.MethodPost {
			ask("bare", open.URL, r.method, path, "")
			for _, query := range []string{"limit=0", "limit=1x", "limit=100000", "order=odd", "n=0", "timeout=x",
				"after=x"} {
				ask("query", open.URL, r.method, path+"?"+query, "")
			}
			continue
		}
		if path == filesPath {
			continue // requests to this path have forms as bodies
		}
		for _, body := range []string{"", "{", "[]", "{}", `{"model":7}`, `{"model":"other"}`,
			`{"model":"` + strings.Repeat("m", 5000) + `"}`} {
			ask(fmt.Sprintf("body %.20s", body), open.URL, r.method, path, body)
		}
		members, ok := bodies[path]
		if !ok {
			continue
		}
		whole := `{"model":"sparrow-test",` + members + `}`
		ask("valid", open.URL, r.method, path, whole)
		ask("another model", open.URL, r.method, path, strings.Replace(whole, "sparrow-test", "other", 1))
		ask("refused by the engine", refused.URL, r.method, path, whole)
		ask("not encoded", silent.URL, r.method, path, whole)
		ask("draining", leaving.URL, r.method, path, whole)
	}
	table.Check(t, "refusals.txt", lines)
}
