package server

import (
	"net/http"
	"strings"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/batch"
)

// batchWindow is the time after which a batch expires.
const batchWindow = 24 * time.Hour

// Kinds of batches in the store.
const (
	openaiBatch    = "openai"
	anthropicBatch = "anthropic"
)

// batchesAPI implements OpenAI's batch endpoints.
type batchesAPI struct{ *service }

// create handles POST /v1/batches.
func (s batchesAPI) create(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	req, err := decode(s.service, w, r, openai.DecodeBatch)
	if err != nil {
		return err
	}
	b, err := store.Create(batch.New{Tenant: exchangeOf(r).tenant, Kind: openaiBatch, Endpoint: req.Endpoint,
		Input: req.InputFileID, Metadata: req.Metadata, Window: batchWindow})
	if err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, s.object(store, &b))
}

// object returns a batch in OpenAI's format.
func (s batchesAPI) object(store *batch.Store, b *batch.Batch) openai.Batch {
	at := func(t time.Time) *int64 {
		if t.IsZero() {
			return nil
		}
		n := t.Unix()
		return &n
	}
	out := openai.Batch{ID: b.ID, Object: "batch", Endpoint: b.Endpoint, InputFileID: b.Input,
		CompletionWindow: openai.CompletionWindow, CreatedAt: b.Created.Unix(), InProgressAt: at(b.Created),
		ExpiresAt: at(b.Expires), CancellingAt: at(b.Cancel), Metadata: b.Metadata,
		RequestCounts: openai.BatchCounts{Total: b.Lines, Completed: b.Counts.Succeeded,
			Failed: b.Counts.Done() - b.Counts.Succeeded}}
	switch b.State {
	case batch.Running:
		out.Status = openai.BatchInProgress
	case batch.Cancelling:
		out.Status = openai.BatchCancelling
	case batch.Completed:
		out.Status, out.FinalizingAt, out.CompletedAt = openai.BatchCompleted, at(b.Ended), at(b.Ended)
	case batch.Cancelled:
		out.Status, out.CancelledAt = openai.BatchCancelled, at(b.Ended)
	case batch.Expired:
		out.Status, out.ExpiredAt = openai.BatchExpired, at(b.Ended)
	}
	if b.State.Ended() {
		if store.HasFile(b.Output) {
			out.OutputFileID = &b.Output
		}
		if store.HasFile(b.Errors) {
			out.ErrorFileID = &b.Errors
		}
	}
	return out
}

// list handles GET /v1/batches.
func (s batchesAPI) list(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	limit, err := listLimit(r, 20, 100)
	if err != nil {
		return err
	}
	found, more := store.Batches(exchangeOf(r).tenant, openaiBatch, r.URL.Query().Get("after"), limit)
	out := make([]openai.Batch, len(found))
	for i := range found {
		out[i] = s.object(store, &found[i])
	}
	return s.respond(w, http.StatusOK, openai.NewList(out, func(b *openai.Batch) string { return b.ID }, more))
}

// batch handles GET /v1/batches/{id}.
func (s batchesAPI) batch(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	b, err := store.Batch(exchangeOf(r).tenant, strings.TrimPrefix(r.URL.Path, batchPrefix))
	if err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, s.object(store, &b))
}

// cancel handles POST /v1/batches/{id}/cancel.
func (s batchesAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	id, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, batchPrefix), "/cancel")
	if !ok {
		return noSuchPath(r)
	}
	b, err := store.Cancel(exchangeOf(r).tenant, id)
	if err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, s.object(store, &b))
}
