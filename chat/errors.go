package chat

import (
	"errors"
	"fmt"
)

var (
	// ErrRequest is wrapped by every error that the sender of a request can repair: an unknown role, a tool result
	// without a call, arguments that are not JSON. The message names the field.
	ErrRequest = errors.New("invalid chat request")

	// ErrUnsupported is wrapped when the request is well formed but the model's format has no way to express it.
	ErrUnsupported = errors.New("not supported by the model's chat format")

	// ErrTemplate is wrapped when a checkpoint's chat template does not compile, or fails on a request.
	ErrTemplate = errors.New("chat template failed")

	// ErrNoFormat is returned by Detect when nothing known fits the checkpoint.
	ErrNoFormat = errors.New("no chat format for this checkpoint")

	// ErrMalformedCall is wrapped by Parser.Close when the reply contained a tool call that does not follow the format.
	// The text of it was delivered as content deltas marked Malformed, or as arguments that are not a JSON object.
	ErrMalformedCall = errors.New("malformed tool call")

	// ErrUnfinishedCall is wrapped by Parser.Close when the reply ended inside a tool call, as it does when the token
	// limit is met. Markers and pieces of names before its arguments were not delivered.
	ErrUnfinishedCall = errors.New("reply ended inside a tool call")
)

// fieldError builds an ErrRequest that starts with the field's path, such as "messages[3].role".
func fieldError(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrRequest, field, fmt.Sprintf(format, args...))
}

// messageField is the path of a message's field, or of the message itself when field is empty.
func messageField(index int, field string) string {
	if field == "" {
		return fmt.Sprintf("messages[%d]", index)
	}
	return fmt.Sprintf("messages[%d].%s", index, field)
}

// malformedArguments is for arguments that were handed out before they turned out not to be a JSON object.
func malformedArguments(call int, err error) error {
	return fmt.Errorf("%w: arguments of call %d: %w", ErrMalformedCall, call, err)
}
