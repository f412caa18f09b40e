package clienttest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/testkit/await"
	"sparrow/server"
)

// TestBadBodies checks that every bad body gets a 4xx response that names the wrong field, if there is one, and that
// the server keeps running.
func TestBadBodies(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	stops := `"` + strings.Join(strings.Fields(strings.Repeat("x ", 10_000)), `","`) + `"`
	for _, c := range []struct {
		name, body  string
		code, param string
	}{
		{"malformed JSON", `{"model":`, "invalid_json", ""},
		{"no body", ``, "invalid_json", ""},
		{"an array", `[]`, "invalid_type", ""},
		{"two objects", fields("") + fields(""), "invalid_json", ""},
		{"a byte that is not UTF-8", fields(`,"user":"` + "\xff" + `"`), "invalid_json", ""},
		{"half a surrogate pair in the text", strings.Replace(fields(""), nameQuestion, `\ud800`, 1), "", ""},
		{"10,000 stop strings", fields(`,"stop":[` + stops + `]`), "array_above_max_length", "stop"},
		{"an empty stop string", fields(`,"stop":""`), "invalid_value", "stop"},
		{"a negative number of tokens", fields(`,"max_tokens":-2`), "value_out_of_range", "max_tokens"},
		{"a negative number of choices", fields(`,"n":-3`), "value_out_of_range", "n"},
		{"a negative temperature", fields(`,"temperature":-0.1`), "value_out_of_range", "temperature"},
		{"a number beyond any float", fields(`,"temperature":1e999`), "", "temperature"},
		{"an integer beyond any integer", fields(`,"seed":99999999999999999999999999`), "", "seed"},
		{"NaN", fields(`,"temperature":NaN`), "invalid_json", ""},
		{"a fraction of a token", fields(`,"max_tokens":1.5`), "", "max_tokens"},
		{"the same field twice", fields(`,"n":1,"n":2`), "duplicate_parameter", "n"},
		{"deep nesting where anything is allowed", fields(`,"metadata":{"x":` + deep + `}`), "", ""},
		{"deep nesting in an unknown field", fields(`,"x":` + deep), "", ""},
		{"deep nesting in a schema",
			fields(`,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":` + deep +
				`}}}`), "", ""},
		{"a role of its own", strings.Replace(fields(""), `"user"`, `"king"`, 1), "", "messages[0].role"},
		{"messages that are no list", `{"model":"` + model + `","messages":7}`, "invalid_type", "messages"},
		{"a megabyte of one letter", strings.Replace(fields(""), nameQuestion, strings.Repeat("a", 1<<20), 1), "",
			"messages"},
		{"a token outside the vocabulary", fields(`,"logit_bias":{"999999":1}`), "", "logit_bias"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.raw(t, whole(post(c.body, jsonType)))
			if r.status != 400 || r.fault.Message == "" || r.fault.Type != "invalid_request_error" {
				t.Fatalf("status %d: %.300s", r.status, r.body)
			}
			if c.code != "" && (r.fault.Code == nil || *r.fault.Code != c.code) {
				t.Errorf("want code %s: %.300s", c.code, r.body)
			}
			if c.param != "" && (r.fault.Param == nil || !strings.HasPrefix(*r.fault.Param, c.param)) {
				t.Errorf("want param %s: %.300s", c.param, r.body)
			}
			if len(r.fault.Message) > 4096 {
				t.Errorf("a message of %d bytes: %.300s", len(r.fault.Message), r.body)
			}
			s.alive(t)
		})
	}
	s.unharmed(t)
}

// TestBadMessages checks the responses to errors in the request line and the headers.
func TestBadMessages(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{HeaderTimeout: await.Hang, BodyTimeout: await.Hang})
	// Each of these servers has one short timeout; the other timeouts are long enough for a busy machine.
	headers := serve(t, s.engine, server.Options{HeaderTimeout: 500 * time.Millisecond, BodyTimeout: await.Hang})
	bodies := serve(t, s.engine, server.Options{HeaderTimeout: await.Hang, BodyTimeout: time.Second})
	good := fields("")
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		to     *service
		name   string
		send   func(*net.TCPConn) error
		status []int
	}{
		{s, "no content type", whole(post(good)), []int{415}},
		{s, "another content type", whole(post(good, "Content-Type: text/plain")), []int{415}},
		{s, "a compressed body", whole(post(good, jsonType, "Content-Encoding: gzip")), []int{415}},
		{s, "a body that ends early", func(w *net.TCPConn) error {
			message := post(good, jsonType)
			if _, err := io.WriteString(w, message[:len(message)-10]); err != nil {
				return err
			}
			return w.CloseWrite()
		}, []int{400, closed}},
		{s, "a body that is announced as huge",
			whole("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + jsonType +
				"\r\nContent-Length: 999999999999\r\n\r\n"), []int{413}},
		{s, "a body that turns out to be huge", func(w *net.TCPConn) error {
			if _, err := io.WriteString(w,
				"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"+jsonType+
					"\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
				return err
			}
			chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<20, strings.Repeat(" ", 1<<20))
			for range 12 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return err
				}
			}
			_, err := io.WriteString(w, "0\r\n\r\n")
			return err
		}, []int{413, closed}},
		{s, "a chunk whose length is no number",
			whole("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + jsonType +
				"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"), []int{400}},
		{s, "two lengths that differ", whole("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + jsonType +
			"\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), []int{400}},
		{s, "a negative length", whole("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + jsonType +
			"\r\nContent-Length: -1\r\n\r\n"), []int{400}},
		{s, "no host", whole("POST /v1/chat/completions HTTP/1.1\r\n" + jsonType + "\r\nContent-Length: 2\r\n\r\n{}"),
			[]int{400}},
		{s, "one header that is too long", whole(post(good, jsonType, "X-Long: "+long)), []int{431, closed}},
		{s, "a flood of headers", func(w *net.TCPConn) error {
			if _, err := io.WriteString(w, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"); err != nil {
				return err
			}
			for i := range 20_000 {
				if _, err := fmt.Fprintf(w, "X-%d: %d\r\n", i, i); err != nil {
					return err
				}
			}
			_, err := io.WriteString(w, "\r\n")
			return err
		}, []int{431, closed}},
		{s, "a path that is too long", whole("GET /" + long + " HTTP/1.1\r\nHost: x\r\n\r\n"), []int{414, 431, closed}},
		{s, "not HTTP at all", whole("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), []int{400}},
		{headers, "headers that never end",
			whole("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"), []int{408, closed}},
		{bodies, "a body that never comes", whole("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + jsonType +
			"\r\nContent-Length: 50\r\n\r\n{"), []int{400, 408}},
		{bodies, "a body that comes a byte at a time", func(w *net.TCPConn) error {
			message := post(good, jsonType)
			head := strings.Index(message, "\r\n\r\n") + 4
			if _, err := io.WriteString(w, message[:head]); err != nil {
				return err
			}
			for _, b := range []byte(message[head:]) {
				if _, err := w.Write([]byte{b}); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		}, []int{400, 408}},
		{headers, "a client that says nothing", func(*net.TCPConn) error { return nil }, []int{closed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.to.raw(t, c.send)
			found := false
			for _, status := range c.status {
				found = found || status == r.status
			}
			if !found {
				t.Errorf("status %d, want one of %v: %.300s", r.status, c.status, r.body)
			}
			s.alive(t)
		})
	}
	s.unharmed(t)
}

// TestManyIdleConnections checks that many idle connections do not block other requests.
func TestManyIdleConnections(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	for range 200 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	s.alive(t)
}

// unharmed checks that no handler panicked, and that no request runs or waits.
func (s *service) unharmed(t *testing.T) {
	t.Helper()
	for _, name := range []string{"sparrow_http_panics_total", "sparrow_requests_running", "sparrow_requests_waiting",
		`sparrow_requests_ended_total{outcome="failed"}`} {
		if v := s.metric(t, name); v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
}
