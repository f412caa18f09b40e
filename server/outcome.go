package server

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"sparrow"
	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/internal/wire"
	"sparrow/sample"
)

// statusClientGone is the status in logs and metrics if the client has disconnected before the response. It is never
// sent.
const statusClientGone = 499

// schemaParam is the default path of a schema in a request (sparrow.Format.Field overrides it).
const schemaParam = "response_format.json_schema.schema"

// outcomes maps errors to codes. The first match is used, so more specific errors are listed first. say replaces the
// text of the error, if clients must not see it.
var outcomes = []struct {
	is    error
	code  wire.Code
	param string
	say   string
}{
	{sparrow.ErrQueueFull, wire.CodeQueueFull, "",
		"too many requests are waiting; try again after the time in Retry-After"},
	{sparrow.ErrSchemaMemory, wire.CodeQueueFull, schemaParam, ""},
	{sparrow.ErrAsleep, wire.CodeUnavailable, "",
		"the server is asleep until an administrator sends POST /wake_up, or its weights are being replaced now; " +
			"try again later, or send the request to another server"},
	{sparrow.ErrClosed, wire.CodeUnavailable, "", "the engine is closed; send the request to another server"},
	{sparrow.ErrDevice, wire.CodeUnavailable, "",
		"the device that this server computes on has failed; send the request to another server, or again after a " +
			"restart"},
	{ErrDraining, wire.CodeUnavailable, "",
		"the server is shutting down; send the request again, to another server if there is one"},
	{ErrDeadline, wire.CodeDeadline, "",
		"the request took longer than this server allows; request fewer tokens or send a shorter prompt"},
	{context.DeadlineExceeded, wire.CodeDeadline, "",
		"the request took longer than this server allows; request fewer tokens or send a shorter prompt"},
	{sparrow.ErrNoTokenizer, wire.CodeUnsupportedValue, "",
		"this model has no tokenizer; send token ids as the prompt of /v1/completions"},
	{chat.ErrNoFormat, wire.CodeUnsupportedValue, "messages",
		"this model has no chat format; send a prompt to /v1/completions"},
	{chat.ErrUnsupported, wire.CodeUnsupportedValue, "", ""},
	{chat.ErrTemplate, wire.CodeInvalidValue, "messages", ""},
	{chat.ErrRequest, wire.CodeInvalidValue, "", ""},
	{grammar.ErrSchema, wire.CodeInvalidValue, schemaParam, ""},
	{grammar.ErrUnsupported, wire.CodeUnsupportedValue, schemaParam, ""},
	{grammar.ErrTooLarge, wire.CodeTooLong, schemaParam, ""},
	{grammar.ErrUnsatisfiable, wire.CodeInvalidValue, schemaParam, ""},
	{sparrow.ErrContext, wire.CodeContextLength, "", ""},
	{sample.ErrParams, wire.CodeInvalidValue, "", ""},
	{sample.ErrToken, wire.CodeOutOfRange, "", ""},
	{sparrow.ErrRequest, wire.CodeInvalidValue, "", ""},
}

// toError converts an error to a response. Unknown errors are errors of the server, whose text is logged but not sent.
func toError(err error, requestID string) *wire.Error {
	var ready *wire.Error
	var field *sparrow.RequestError
	var params *sample.ParamsError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &field):
		return fieldError(err, field)
	case errors.As(err, &params):
		return joinParams(params)
	case errors.As(err, &large):
		return wire.NewError(wire.CodeBodyTooLarge, "",
			"the body is larger than the %d bytes this server reads; send less", large.Limit)
	}
	for _, o := range outcomes {
		if errors.Is(err, o.is) {
			return describe(err, o.code, o.param, o.say)
		}
	}
	return wire.NewError(wire.CodeInternal, "",
		"the server failed on this request only; the log has the reason under request id %s", requestID)
}

// fieldError returns the error for an invalid field. outcomes determines the code and the path inside the field.
func fieldError(err error, field *sparrow.RequestError) *wire.Error {
	for _, o := range outcomes {
		if !errors.Is(err, o.is) {
			continue
		}
		param := field.Field
		if strings.HasPrefix(o.param, param+".") {
			param = o.param
		}
		return wire.NewError(o.code, param, "%s", field.Reason)
	}
	return wire.NewError(wire.CodeInvalidValue, field.Field, "%s", field.Reason)
}

// describe converts err to the API's error with a code. The message is say, or the text of err if say is empty.
func describe(err error, code wire.Code, param, say string) *wire.Error {
	if say != "" {
		return wire.NewError(code, param, "%s", say)
	}
	text := err.Error()
	for _, is := range []error{chat.ErrRequest, chat.ErrUnsupported} {
		if at, reason, ok := cutField(text, is.Error()+": "); ok && errors.Is(err, is) {
			return wire.NewError(code, at, "%s", reason)
		}
	}
	return wire.NewError(code, param, "%s", text)
}

func joinParams(e *sample.ParamsError) *wire.Error {
	list := make([]wire.Problem, len(e.Problems))
	for i, p := range e.Problems {
		list[i] = wire.Problem{Param: p.Field, Code: wire.CodeInvalidValue, Message: p.Message}
	}
	if joined := wire.JoinProblems(list); joined != nil {
		return joined
	}
	return wire.NewError(wire.CodeInvalidValue, "", "%s", e.Error())
}

var fieldPath = regexp.MustCompile(`^[a-z_]+(\[\d+\])?(\.[A-Za-z0-9_]+(\[\d+\])?)*$`)

// cutField parses "... sentinel: messages[3].role: reason" into the field and the reason.
func cutField(text, sentinel string) (field, reason string, ok bool) {
	_, rest, found := strings.Cut(text, sentinel)
	if !found {
		return "", "", false
	}
	field, reason, found = strings.Cut(rest, ": ")
	return field, reason, found && fieldPath.MatchString(field)
}
