package anthropic

import (
	"encoding/json"
	"fmt"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// MessageBatch is a batch of messages. Times are RFC 3339.
type MessageBatch struct {
	ID                string      `json:"id"`
	Type              string      `json:"type"` // "message_batch"
	ProcessingStatus  string      `json:"processing_status"`
	RequestCounts     BatchCounts `json:"request_counts"`
	CreatedAt         string      `json:"created_at"`
	ExpiresAt         string      `json:"expires_at"`
	EndedAt           *string     `json:"ended_at"`
	CancelInitiatedAt *string     `json:"cancel_initiated_at"`
	ArchivedAt        *string     `json:"archived_at"`
	ResultsURL        *string     `json:"results_url"`
}

// The states of batches.
const (
	BatchInProgress = "in_progress"
	BatchCanceling  = "canceling"
	BatchEnded      = "ended"
)

// BatchCounts counts the requests of a batch by their outcome.
type BatchCounts struct {
	Processing int `json:"processing"`
	Succeeded  int `json:"succeeded"`
	Errored    int `json:"errored"`
	Canceled   int `json:"canceled"`
	Expired    int `json:"expired"`
}

// BatchList is a page of batches, newest first.
type BatchList struct {
	Data    []MessageBatch `json:"data"`
	HasMore bool           `json:"has_more"`
	FirstID *string        `json:"first_id"`
	LastID  *string        `json:"last_id"`
}

// DeletedBatch reports that a batch was deleted.
type DeletedBatch struct {
	ID   string `json:"id"`
	Type string `json:"type"` // "message_batch_deleted"
}

// BatchRequest is the body of POST /v1/messages/batches.
type BatchRequest struct {
	Requests []BatchItem
}

// BatchItem is one request of a batch. The file of the batch stores one item per line.
type BatchItem struct {
	CustomID string          `json:"custom_id"`
	Params   json.RawMessage `json:"params"`
}

// MaxBatch is the maximum number of requests in a batch, maxCustomID the maximum length of their names in bytes.
const (
	MaxBatch    = 100_000
	maxCustomID = 64
)

var itemFields = wire.Fields[BatchItem]{
	"custom_id": wire.TextField(func(b *BatchItem) *string { return &b.CustomID }),
	"params": {Read: func(c *wire.Reader, b *BatchItem) {
		if c.Shape() != jsonscan.Object {
			c.WrongShape("an object")
			return
		}
		b.Params = c.Raw()
	}},
}

var batchFields = wire.Fields[BatchRequest]{
	"requests": {Read: func(c *wire.Reader, b *BatchRequest) {
		b.Requests = wire.ReadList(c, MaxBatch, "requests", wire.ReadStruct(c, itemFields))
	}},
}

// DecodeBatch reads the body of POST /v1/messages/batches. The params of an item are checked when it runs: invalid
// params fail only that item.
func DecodeBatch(d *wire.Decoder, body []byte) (*BatchRequest, *wire.Error) {
	return wire.Decode(d, body, batchFields, func(b *BatchRequest, p *wire.Problems) {
		if len(b.Requests) == 0 {
			p.AddNew(wire.CodeMissing, "requests", "required; send at least one request")
		}
		seen := map[string]bool{}
		for i := range b.Requests {
			r, at := &b.Requests[i], fmt.Sprintf("requests[%d]", i)
			switch {
			case r.CustomID == "" || len(r.CustomID) > maxCustomID:
				p.AddNew(wire.CodeInvalidValue, at+".custom_id", "has %d bytes, want 1 to %d", len(r.CustomID),
					maxCustomID)
			case seen[r.CustomID]:
				p.AddNew(wire.CodeDuplicate, at+".custom_id", "%q is also the custom_id of an earlier request; send "+
					"different ones",
					jsonscan.Clip(r.CustomID))
			case r.Params == nil:
				p.AddNew(wire.CodeMissing, at+".params", "required; send the body of a message")
			}
			seen[r.CustomID] = true
		}
	})
}

// BatchResult is a line of a batch's results.
type BatchResult struct {
	CustomID string      `json:"custom_id"`
	Result   BatchAnswer `json:"result"`
}

// BatchAnswer is the outcome of one request.
type BatchAnswer struct {
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message,omitempty"` // message of a request that succeeded
	Error   any             `json:"error,omitempty"`   // body of the error of a request that failed
}

// The types of answers.
const (
	AnswerSucceeded = "succeeded"
	AnswerErrored   = "errored"
	AnswerCanceled  = "canceled"
	AnswerExpired   = "expired"
)
