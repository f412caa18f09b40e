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

// lineRunner sends the lines of batches to the endpoints of its own server, in the background.
type lineRunner struct{ *Server }

// Run sends a line.
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
		case wire.CodeQueueFull, wire.CodeUnavailable: // the line has no error and can be sent again
			return batch.Result{}, &batch.Later{After: s.retryAfter(x, x.fault)}
		}
	}
	return s.result(&b, &l, got)
}

// lineID returns the id of a line in results and in the log.
func lineID(b *batch.Batch, l *batch.Line) string {
	return fmt.Sprintf("batch_req_%s_%d", b.ID, l.Number)
}

// requestOf returns the request of a line, or its error.
func requestOf(b *batch.Batch, l *batch.Line) (endpoint string, body []byte, bad *wire.Error) {
	switch {
	case l.TooLong:
		return "", nil, wire.NewError(wire.CodeBodyTooLarge, "", "line %d is longer than this server reads",
			l.Number+1)
	case l.Duplicate:
		return "", nil, wire.NewError(wire.CodeDuplicate, "custom_id", "an earlier line has the same custom_id")
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
	if b.Kind == anthropicBatch { // it was checked when the batch was received
		var item anthropic.BatchItem
		if err := json.Unmarshal(l.Text, &item); err != nil {
			return nil, wire.NewError(wire.CodeInvalidJSON, "", "the request cannot be read: %v", err)
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

// lineWriter keeps a response in memory.
type lineWriter struct {
	header http.Header
	body   bytes.Buffer
}

// Header returns the header of the response.
func (w *lineWriter) Header() http.Header { return w.header }

// WriteHeader does nothing: the recorder around it records the status.
func (w *lineWriter) WriteHeader(int) {}

// Write keeps the body.
func (w *lineWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

// answered is the response of an endpoint.
type answered struct {
	status int
	body   []byte
}

// perform does what serveHTTP does, for a request from a file. The key was checked when the file was uploaded.
func (s *Server) perform(ctx context.Context, x *exchange, endpoint string, body []byte) answered {
	out := &lineWriter{header: http.Header{}}
	rec := &recorder{ResponseWriter: out}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil { // endpoints are from a table, so this does not happen
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "batch"
	r = s.beginSpan(r, x)
	func() {
		defer func() { // rescue has sent a response, or has cut it off
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

// result returns the result line of an endpoint's response.
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

// refused returns the result line of a request that was not sent.
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

// Left returns the result line of a request that was not computed.
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

// encodeLine writes a result as one line: json.Marshal compacts embedded JSON.
func encodeLine(class batch.Class, v any) batch.Result {
	text, err := json.Marshal(v)
	if err != nil { // the answer is not JSON
		class, text = batch.Errored, fmt.Appendf(nil, `{"error": {"code": "internal_error", "message": %q}}`, err)
	}
	return batch.Result{Class: class, Text: text}
}
