package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sparrow/api/anthropic"
	"sparrow/api/openai"
	"sparrow/internal/batch"
	"sparrow/internal/wire"
)

// lineRunner runs the lines of batches as requests to the server's own endpoints.
type lineRunner struct{ *Server }

// Run sends a line to its endpoint and returns the result.
func (s lineRunner) Run(ctx context.Context, b batch.Batch, l batch.Line) (batch.Result, error) {
	endpoint, body, bad := requestOf(&b, &l)
	if bad != nil {
		return s.refused(&b, &l, bad), nil
	}
	x := &exchange{id: lineID(&b, &l), arrived: time.Now(), route: unmatched, dialect: dialectOf(endpoint),
		tenant: b.Tenant, source: "batch", flow: b.ID, background: true}
	got := s.perform(ctx, x, endpoint, body)
	if err := ctx.Err(); err != nil {
		return batch.Result{}, err
	}
	if x.fault != nil {
		switch toError(x.fault, x.id).Code {
		case wire.CodeQueueFull, wire.CodeUnavailable: // not an error of the line, which can be sent again
			return batch.Result{}, &batch.Later{After: s.retryAfter(x, x.fault)}
		}
	}
	return s.result(&b, &l, got)
}

// lineID returns the id of a line in results and logs.
func lineID(b *batch.Batch, l *batch.Line) string {
	return fmt.Sprintf("batch_req_%s_%d", b.ID, l.Number)
}

// requestOf returns the endpoint and body of a line's request, or the error of an invalid line.
func requestOf(b *batch.Batch, l *batch.Line) (endpoint string, body []byte, bad *wire.Error) {
	switch {
	case l.TooLong:
		return "", nil, wire.NewError(wire.CodeBodyTooLarge, "", "line %d is longer than the server's limit for a "+
			"body; send a shorter request",
			l.Number+1)
	case l.Duplicate:
		return "", nil, wire.NewError(wire.CodeDuplicate, "custom_id", "an earlier line has the same custom_id; "+
			"give each line its own")
	}
	body, bad = lineBody(b, l)
	if bad != nil {
		return "", nil, bad
	}
	var options struct {
		Stream json.RawMessage `json:"stream"`
	}
	if err := json.Unmarshal(body, &options); err == nil && string(options.Stream) == "true" {
		return "", nil, wire.NewError(wire.CodeUnsupportedValue, "stream", "batches do not stream results; omit it")
	}
	return b.Endpoint, body, nil
}

// lineBody returns the body of a line's request.
func lineBody(b *batch.Batch, l *batch.Line) ([]byte, *wire.Error) {
	if b.Kind == anthropicBatch { // it was checked when the batch was created
		var item anthropic.BatchItem
		if err := json.Unmarshal(l.Text, &item); err != nil {
			return nil, wire.NewError(wire.CodeInvalidJSON, "", "the body of the line cannot be decoded: %v", err)
		}
		return item.Params, nil
	}
	var line openai.BatchLine
	if err := json.Unmarshal(l.Text, &line); err != nil {
		return nil, wire.NewError(wire.CodeInvalidJSON, "", "line %d is not a JSON object with custom_id, method, url "+
			"and body: %v", l.Number+1, err)
	}
	switch {
	case line.CustomID == "":
		return nil, wire.NewError(wire.CodeMissing, "custom_id", "required; it identifies the result")
	case line.Method != http.MethodPost:
		return nil, wire.NewError(wire.CodeInvalidValue, "method", "is %.20q; want POST", line.Method)
	case line.URL != b.Endpoint:
		return nil, wire.NewError(wire.CodeInvalidValue, "url", "is %.100q; all lines of this batch must use %s",
			line.URL, b.Endpoint)
	case len(line.Body) == 0 || line.Body[0] != '{':
		return nil, wire.NewError(wire.CodeMissing, "body", "required; want the body of a request")
	}
	return line.Body, nil
}

// lineWriter is an http.ResponseWriter that stores the response in memory.
type lineWriter struct {
	header http.Header
	body   bytes.Buffer
}

// Header returns the header of the response.
func (w *lineWriter) Header() http.Header { return w.header }

// WriteHeader does nothing, because the recorder that wraps it stores the status.
func (w *lineWriter) WriteHeader(int) {}

// Write stores the body.
func (w *lineWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

// answered is the stored response of an endpoint.
type answered struct {
	status int
	body   []byte
}

// perform handles a request from a file as serveHTTP handles one over HTTP. The key was checked when the file was
// uploaded.
func (s *Server) perform(ctx context.Context, x *exchange, endpoint string, body []byte) answered {
	out := &lineWriter{header: http.Header{}}
	rec := &recorder{ResponseWriter: out}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil { // cannot happen: endpoints are from a table
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "batch"
	r = s.beginSpan(r, x)
	func() {
		defer func() { // after a panic, rescue has written or cut off the response
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		defer s.account(rec, r, x)
		defer x.memory.close()
		defer s.rescue(rec, x)
		to, err := s.find(rec, r)
		if err == nil {
			x.route = to.pattern
			err = to.handle(rec, withExchange(r, x))
		}
		if err != nil {
			s.fail(rec, x, err)
		}
	}()
	if x.fault != nil && rec.status < http.StatusBadRequest { // the response was cut off
		e := wire.NewError(wire.CodeInternal, "", "the server failed on this line; the log has the reason under "+
			"request id %s", x.id)
		text, _ := wire.Marshal(x.dialect.failure(e, x.id)) // encoding strings cannot fail
		return answered{e.Status(), text}
	}
	return answered{rec.status, out.body.Bytes()}
}

// result returns the result of a line from the endpoint's response.
func (s lineRunner) result(b *batch.Batch, l *batch.Line, got answered) (batch.Result, error) {
	class := batch.Succeeded
	if got.status >= http.StatusBadRequest {
		class = batch.Errored
	}
	var line any
	if b.Kind == anthropicBatch {
		answer := anthropic.BatchAnswer{Type: anthropic.AnswerSucceeded, Message: got.body}
		if class == batch.Errored {
			answer = anthropic.BatchAnswer{Type: anthropic.AnswerErrored, Error: json.RawMessage(got.body)}
		}
		line = anthropic.BatchResult{CustomID: l.CustomID, Result: answer}
	} else {
		line = openai.BatchResult{ID: lineID(b, l), CustomID: l.CustomID, Response: &openai.BatchResponse{
			StatusCode: got.status, RequestID: lineID(b, l), Body: got.body}}
	}
	return encodeLine(class, line), nil
}

// refused returns the result of an invalid line, which was not sent.
func (s lineRunner) refused(b *batch.Batch, l *batch.Line, bad *wire.Error) batch.Result {
	if b.Kind == anthropicBatch {
		return encodeLine(batch.Errored, anthropic.BatchResult{CustomID: l.CustomID, Result: anthropic.BatchAnswer{
			Type: anthropic.AnswerErrored, Error: anthropic.NewErrorBody(bad, lineID(b, l))}})
	}
	code := openai.BatchLineInvalid
	if l.Duplicate {
		code = openai.BatchLineDuplicate
	}
	return encodeLine(batch.Errored, openai.BatchResult{ID: lineID(b, l), CustomID: l.CustomID,
		Error: &openai.BatchError{Code: code, Message: bad.Message}})
}

// Left returns the result of a line that was not run.
func (s lineRunner) Left(b batch.Batch, l batch.Line, why batch.Class) batch.Result {
	if b.Kind == anthropicBatch {
		answer := anthropic.AnswerExpired
		if why == batch.LineCancel {
			answer = anthropic.AnswerCanceled
		}
		return encodeLine(why, anthropic.BatchResult{CustomID: l.CustomID, Result: anthropic.BatchAnswer{Type: answer}})
	}
	e := openai.BatchError{Code: openai.BatchLineExpired, Message: "the batch expired before this line ended"}
	if why == batch.LineCancel {
		e = openai.BatchError{Code: openai.BatchLineCancelled,
			Message: "the batch was cancelled before this line ended"}
	}
	return encodeLine(why, openai.BatchResult{ID: lineID(&b, &l), CustomID: l.CustomID, Error: &e})
}

// encodeLine encodes a result as one line; json.Marshal removes line breaks from embedded JSON.
func encodeLine(class batch.Class, v any) batch.Result {
	text, err := json.Marshal(v)
	if err != nil { // the response is not JSON
		class, text = batch.Errored, fmt.Appendf(nil, `{"error": {"code": "internal_error", "message": %q}}`, err)
	}
	return batch.Result{Class: class, Text: text}
}
