package openai

import (
	"net/http"

	"sparrow/internal/wire"
)

// Error types, which clients distinguish.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeAuthentication = "authentication_error"
	TypeRateLimit      = "rate_limit_error"
	TypeServer         = "server_error"
)

// errorType returns the type of an error with a status.
func errorType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return TypeAuthentication
	case status == http.StatusTooManyRequests:
		return TypeRateLimit
	case status >= http.StatusInternalServerError:
		return TypeServer
	}
	return TypeInvalidRequest
}

// ErrorBody is the body of a failed response: {"error": {"message", "type", "param", "code"}}.
type ErrorBody struct {
	Error ErrorFields `json:"error"`
}

// ErrorFields is the object inside [ErrorBody].
type ErrorFields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// NewErrorBody returns the JSON body of an error.
func NewErrorBody(e *wire.Error) ErrorBody {
	fields := ErrorFields{Message: e.Message, Type: errorType(e.Status())}
	if e.Param != "" {
		fields.Param = &e.Param
	}
	if e.Code != "" {
		code := string(e.Code)
		fields.Code = &code
	}
	return ErrorBody{Error: fields}
}
