package wire

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Code is the machine-readable reason of an error. It decides the HTTP status.
type Code string

// The codes, in OpenAI's words where OpenAI has one.
const (
	CodeInvalidJSON      Code = "invalid_json"                // the body is not one JSON object in UTF-8
	CodeUnknownParameter Code = "unknown_parameter"           // a name that no version of the request has
	CodeUnsupportedParam Code = "unsupported_parameter"       // a field that other servers support
	CodeUnsupportedValue Code = "unsupported_value"           // a value that other servers support
	CodeDuplicate        Code = "duplicate_parameter"         // a name that occurs twice in one object
	CodeMissing          Code = "missing_required_parameter"  // a required field
	CodeInvalidType      Code = "invalid_type"                // a string where a number belongs
	CodeInvalidValue     Code = "invalid_value"               // right type, impossible value
	CodeOutOfRange       Code = "value_out_of_range"          // a number outside its range
	CodeTooMany          Code = "array_above_max_length"      // more elements or entries than allowed
	CodeTooLong          Code = "string_above_max_length"     // a string of too many bytes
	CodeContextLength    Code = "context_length_exceeded"     // prompt plus answer do not fit the model
	CodeInvalidKey       Code = "invalid_api_key"             // missing or wrong bearer key
	CodeNoAdmin          Code = "admin_disabled"              // an endpoint for administrators without keys for them
	CodeModelNotFound    Code = "model_not_found"             // a model this server does not serve
	CodeNoResponse       Code = "response_not_found"          // a response that is not stored
	CodeNoObject         Code = "not_found"                   // a file or batch that the tenant does not have
	CodeInUse            Code = "conflict"                    // a file or batch in a state that does not allow it
	CodeNoBatches        Code = "batches_disabled"            // files and batches without a folder for them
	CodeStorageFull      Code = "storage_full"                // the folder of files and batches is full
	CodeNoPrevious       Code = "previous_response_not_found" // the previous response of a request is not stored
	CodeUnknownURL       Code = "unknown_url"                 // no such path
	CodeBadMethod        Code = "method_not_supported"        // an HTTP method that the path does not support
	CodeWrongHost        Code = "misdirected_request"         // the Host is not a name of this server
	CodeBodyTooLarge     Code = "request_too_large"           // more bytes than the server reads
	CodeMediaType        Code = "unsupported_media_type"      // the body is not declared as JSON
	CodeQueueFull        Code = "rate_limit_exceeded"         // too many requests waiting; comes with Retry-After
	CodeInternal         Code = "internal_error"              // an error of the server
	CodeUnavailable      Code = "service_unavailable"         // the server is starting or shutting down
	CodeDeadline         Code = "deadline_exceeded"           // the request took longer than the server allows
)

// statuses maps codes to HTTP statuses. It is the only such map.
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

// Status returns the HTTP status of a code; an unknown code is a server error, because only this program makes codes.
func (c Code) Status() int {
	if status, ok := statuses[c]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// Problem is one error in a request.
type Problem struct {
	Param   string // path of the field, such as messages[2].content; empty if the problem concerns the whole body
	Code    Code
	Message string // states what was given and what is allowed; does not repeat Param
}

func (p Problem) String() string {
	if p.Param == "" {
		return p.Message
	}
	return p.Param + ": " + p.Message
}

// Error is a failed request. Param and Code belong to the first problem; Message describes all problems. Each
// interface writes it in its own format.
//
// Functions of this package and of those below api return *Error rather than error so that every failure has a status:
// compare with nil before storing one in a variable of type error.
type Error struct {
	Message  string
	Param    string // path of the field; empty if the problem concerns no field
	Code     Code
	Problems []Problem // at least one; not on the wire
}

// NewError makes an error of a single problem. The message should contain the requested value, the supported values
// and a suggestion.
func NewError(code Code, param, format string, args ...any) *Error {
	return joinProblems([]Problem{{Param: param, Code: code, Message: fmt.Sprintf(format, args...)}}, 0)
}

// JoinProblems returns one error with several problems, or nil if there are none. The first problem's code decides
// the status.
func JoinProblems(list []Problem) *Error {
	if len(list) == 0 {
		return nil
	}
	most := min(len(list), maxProblems)
	return joinProblems(list[:most], len(list)-most)
}

// joinProblems describes one or more problems and states how many were left out.
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

// Status returns the HTTP status of the response.
func (e *Error) Status() int { return e.Code.Status() }
