package chat

import (
	"errors"
	"fmt"
)

var (
	// ErrRequest is wrapped by every error that the sender of a request can correct: an unknown role, a tool result
	// without a call, arguments that are not JSON. The message names the field.
	ErrRequest = errors.New("invalid chat request")

	// ErrUnsupported means that the request is well formed but the model's chat format has no markers for it.
	ErrUnsupported = errors.New("not supported by the model's chat format")

	// ErrTemplate means that a checkpoint's chat template does not compile, or fails on a request.
	ErrTemplate = errors.New("chat template failed")

	// ErrNoFormat means that Detect found no format for the checkpoint.
	ErrNoFormat = errors.New("there is no chat format for this checkpoint")

	// ErrMalformedCall means that the reply contained a tool call that does not follow the format; Parser.Close returns
	// it. Its text was delivered as content deltas with Malformed set, or as arguments that are not a JSON object.
	ErrMalformedCall = errors.New("malformed tool call")

	// ErrUnfinishedCall means that the reply ended inside a tool call, for example at the token limit; Parser.Close
	// returns it. The incomplete markers and names before its arguments were not delivered.
	ErrUnfinishedCall = errors.New("the reply ended inside a tool call")
)

// fieldError builds an ErrRequest that starts with the field's path, such as "messages[3].role".
func fieldError(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrRequest, field, fmt.Sprintf(format, args...))
}

// messageField returns the path of a message's field, or of the message itself if field is empty.
func messageField(index int, field string) string {
	if field == "" {
		return fmt.Sprintf("messages[%d]", index)
	}
	return fmt.Sprintf("messages[%d].%s", index, field)
}

// malformedArguments returns the error for arguments of a call that are not a JSON object. They have already been
// delivered.
func malformedArguments(call int, err error) error {
	return fmt.Errorf("%w: arguments of call %d: %w", ErrMalformedCall, call, err)
}
