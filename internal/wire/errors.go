package wire

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Code is the machine-readable reason of an error. It determines the HTTP status.
type Code string

// Codes; the values are OpenAI's if OpenAI has the same error.
const (
	CodeInvalidJSON      Code = "invalid_json"                // the body is not one JSON object in UTF-8
	CodeUnknownParameter Code = "unknown_parameter"           // a field that no interface has
	CodeUnsupportedParam Code = "unsupported_parameter"       // a field that is not supported here
	CodeUnsupportedValue Code = "unsupported_value"           // a value that is not supported here
	CodeDuplicate        Code = "duplicate_parameter"         // two members of an object have the same name
	CodeMissing          Code = "missing_required_parameter"  // a required field is missing
	CodeInvalidType      Code = "invalid_type"                // a value has the wrong JSON type
	CodeInvalidValue     Code = "invalid_value"               // a value of the right type is not allowed
	CodeOutOfRange       Code = "value_out_of_range"          // a number is outside its range
	CodeTooMany          Code = "array_above_max_length"      // an array or object has too many elements
	CodeTooLong          Code = "string_above_max_length"     // a string has too many bytes
	CodeContextLength    Code = "context_length_exceeded"     // prompt and answer do not fit the context
	CodeInvalidKey       Code = "invalid_api_key"             // the bearer key is missing or wrong
	CodeNoAdmin          Code = "admin_disabled"              // no keys for administrators are configured
	CodeModelNotFound    Code = "model_not_found"             // the server does not serve the model
	CodeNoResponse       Code = "response_not_found"          // the response is not stored
	CodeNoObject         Code = "not_found"                   // the tenant has no such file or batch
	CodeInUse            Code = "conflict"                    // the state of a file or batch does not allow it
	CodeNoBatches        Code = "batches_disabled"            // no folder for files and batches is configured
	CodeStorageFull      Code = "storage_full"                // the folder of files and batches is full
	CodeNoPrevious       Code = "previous_response_not_found" // the response in previous_response_id is not stored
	CodeUnknownURL       Code = "unknown_url"                 // the path does not exist
	CodeBadMethod        Code = "method_not_supported"        // the path does not support the HTTP method
	CodeWrongHost        Code = "misdirected_request"         // the header Host is not a name of this server
	CodeBodyTooLarge     Code = "request_too_large"           // the body exceeds the server's limit
	CodeMediaType        Code = "unsupported_media_type"      // the content type is not JSON
	CodeQueueFull        Code = "rate_limit_exceeded"         // too many requests wait; comes with Retry-After
	CodeInternal         Code = "internal_error"              // an unexpected error in the server
	CodeUnavailable      Code = "service_unavailable"         // the server is starting or shutting down
	CodeDeadline         Code = "deadline_exceeded"           // the request exceeded the server's time limit
)

// statuses maps all codes to HTTP statuses.
var statuses = map[Code]int{
	CodeInvalidJSON:      http.StatusBadRequest,
	CodeUnknownParameter: http.StatusBadRequest,
	CodeUnsupportedParam: http.StatusBadRequest,
	CodeUnsupportedValue: http.StatusBadRequest,
	CodeDuplicate:        http.StatusBadRequest,
	CodeMissing:          http.StatusBadRequest,
	CodeInvalidType:      http.StatusBadRequest,
	CodeInvalidValue:     http.StatusBadRequest,
	CodeOutOfRange:       http.StatusBadRequest,
	CodeTooMany:          http.StatusBadRequest,
	CodeTooLong:          http.StatusBadRequest,
	CodeContextLength:    http.StatusBadRequest,
	CodeInvalidKey:       http.StatusUnauthorized,
	CodeNoAdmin:          http.StatusForbidden,
	CodeModelNotFound:    http.StatusNotFound,
	CodeNoResponse:       http.StatusNotFound,
	CodeNoObject:         http.StatusNotFound,
	CodeInUse:            http.StatusConflict,
	CodeNoBatches:        http.StatusForbidden,
	CodeStorageFull:      http.StatusInsufficientStorage,
	CodeNoPrevious:       http.StatusBadRequest,
	CodeUnknownURL:       http.StatusNotFound,
	CodeBadMethod:        http.StatusMethodNotAllowed,
	CodeWrongHost:        http.StatusMisdirectedRequest,
	CodeBodyTooLarge:     http.StatusRequestEntityTooLarge,
	CodeMediaType:        http.StatusUnsupportedMediaType,
	CodeQueueFull:        http.StatusTooManyRequests,
	CodeInternal:         http.StatusInternalServerError,
	CodeUnavailable:      http.StatusServiceUnavailable,
	CodeDeadline:         http.StatusGatewayTimeout,
}

// Status returns the HTTP status of a code. An unknown code is a bug of the server, so its status is 500.
func (c Code) Status() int {
	if status, ok := statuses[c]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// Problem is one error in a request.
type Problem struct {
	Param   string // path of the field, such as messages[2].content; empty for the whole body
	Code    Code
	Message string // the given value and the allowed values, without Param
}

func (p Problem) String() string {
	if p.Param == "" {
		return p.Message
	}
	return p.Param + ": " + p.Message
}

// Error is the error of a request. Param and Code are those of the first problem; Message contains all problems. Each
// interface has its own JSON format for it.
//
// Functions here and below api return *Error, not error, so that every error has a status. Compare the result with nil
// before assigning it to a variable of type error.
type Error struct {
	Message  string
	Param    string // path of the field; empty if there is none
	Code     Code
	Problems []Problem // at least one; not sent to clients
}

// NewError returns an error with a single problem. The message should contain the requested value, the supported values
// and what to do.
func NewError(code Code, param, format string, args ...any) *Error {
	return joinProblems([]Problem{{Param: param, Code: code, Message: fmt.Sprintf(format, args...)}}, 0)
}

// JoinProblems returns an error with all problems of the list, or nil if it is empty. The code of the first problem
// determines the status.
func JoinProblems(list []Problem) *Error {
	if len(list) == 0 {
		return nil
	}
	most := min(len(list), maxProblems)
	return joinProblems(list[:most], len(list)-most)
}

// joinProblems returns an error with the listed problems; omitted is the number of further ones.
func joinProblems(list []Problem, omitted int) *Error {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.String())
	}
	if omitted > 0 {
		fmt.Fprintf(&b, "; and %d more", omitted)
	}
	return &Error{Message: b.String(), Param: list[0].Param, Code: list[0].Code, Problems: slices.Clone(list)}
}

func (e *Error) Error() string { return e.Message }

// Status returns the HTTP status for the error.
func (e *Error) Status() int { return e.Code.Status() }
