package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// FileObject is a stored file.
type FileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // "file"
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt int64  `json:"expires_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"` // "processed"
}

// The purposes of files: uploads for batches, and their results.
const (
	PurposeBatch  = "batch"
	PurposeOutput = "batch_output"
)

// List is a page of objects, newest first.
type List[T any] struct {
	Object  string  `json:"object"` // "list"
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// NewList returns a page of objects with the ids of its first and last object; more means that another page follows.
func NewList[T any](data []T, id func(*T) string, more bool) List[T] {
	l := List[T]{Object: "list", Data: data, HasMore: more}
	if n := len(data); n > 0 {
		first, last := id(&data[0]), id(&data[n-1])
		l.FirstID, l.LastID = &first, &last
	} else {
		l.Data = []T{}
	}
	return l
}

// Deleted reports that an object was deleted.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Batch is a batch of requests.
type Batch struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"` // "batch"
	Endpoint         string            `json:"endpoint"`
	Errors           *struct{}         `json:"errors"` // always null, because each line fails by itself
	InputFileID      string            `json:"input_file_id"`
	CompletionWindow string            `json:"completion_window"`
	Status           string            `json:"status"`
	OutputFileID     *string           `json:"output_file_id"`
	ErrorFileID      *string           `json:"error_file_id"`
	CreatedAt        int64             `json:"created_at"`
	InProgressAt     *int64            `json:"in_progress_at"`
	ExpiresAt        *int64            `json:"expires_at"`
	FinalizingAt     *int64            `json:"finalizing_at"`
	CompletedAt      *int64            `json:"completed_at"`
	FailedAt         *int64            `json:"failed_at"`
	ExpiredAt        *int64            `json:"expired_at"`
	CancellingAt     *int64            `json:"cancelling_at"`
	CancelledAt      *int64            `json:"cancelled_at"`
	RequestCounts    BatchCounts       `json:"request_counts"`
	Metadata         map[string]string `json:"metadata"`
}

// BatchCounts counts the lines of a batch.
type BatchCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// The states of batches that this server has.
const (
	BatchInProgress = "in_progress"
	BatchCancelling = "cancelling"
	BatchCompleted  = "completed"
	BatchCancelled  = "cancelled"
	BatchExpired    = "expired"
)

// BatchRequest is the body of POST /v1/batches.
type BatchRequest struct {
	InputFileID      string            `json:"input_file_id"`
	Endpoint         string            `json:"endpoint"`
	CompletionWindow string            `json:"completion_window"`
	Metadata         map[string]string `json:"metadata,omitempty"`
}

// BatchEndpoints lists the endpoints that lines can be sent to.
var BatchEndpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/responses"}

// CompletionWindow is the only supported window, as in OpenAI's interface.
const CompletionWindow = "24h"

var batchFields = wire.Fields[BatchRequest]{
	"input_file_id":        wire.TextField(func(b *BatchRequest) *string { return &b.InputFileID }),
	"endpoint":             wire.TextField(func(b *BatchRequest) *string { return &b.Endpoint }),
	"completion_window":    wire.TextField(func(b *BatchRequest) *string { return &b.CompletionWindow }),
	"metadata":             {Read: func(c *wire.Reader, b *BatchRequest) { b.Metadata = readMetadata(c) }},
	"output_expires_after": wire.IgnoreAs[BatchRequest](jsonscan.Object),
}

// DecodeBatch reads the body of POST /v1/batches.
func DecodeBatch(d *wire.Decoder, body []byte) (*BatchRequest, *wire.Error) {
	return wire.Decode(d, body, batchFields, func(b *BatchRequest, p *wire.Problems) {
		if b.InputFileID == "" {
			p.AddNew(wire.CodeMissing, "input_file_id", "required; upload the lines with POST /v1/files")
		}
		if !slices.Contains(BatchEndpoints, b.Endpoint) {
			p.AddNew(wire.CodeInvalidValue, "endpoint", "%q is not one of %s", jsonscan.Clip(b.Endpoint),
				strings.Join(BatchEndpoints, ", "))
		}
		if b.CompletionWindow != CompletionWindow {
			p.AddNew(wire.CodeInvalidValue, "completion_window", "%q is not supported, only %q",
				jsonscan.Clip(b.CompletionWindow), CompletionWindow)
		}
	})
}

// BatchLine is one line, a request, of a batch's input file.
type BatchLine struct {
	CustomID string          `json:"custom_id"`
	Method   string          `json:"method"`
	URL      string          `json:"url"`
	Body     json.RawMessage `json:"body"`
}

// BatchResult is one line of a batch's output file or error file.
type BatchResult struct {
	ID       string         `json:"id"`
	CustomID string         `json:"custom_id"`
	Response *BatchResponse `json:"response"`
	Error    *BatchError    `json:"error"`
}

// BatchResponse is the endpoint's response to one line.
type BatchResponse struct {
	StatusCode int             `json:"status_code"`
	RequestID  string          `json:"request_id"`
	Body       json.RawMessage `json:"body"`
}

// BatchError is the reason why a line was not sent to its endpoint.
type BatchError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The error codes of lines that were not sent.
const (
	BatchLineInvalid   = "invalid_request"
	BatchLineDuplicate = "duplicate_custom_id"
	BatchLineExpired   = "batch_expired"
	BatchLineCancelled = "batch_cancelled"
)
