package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"sparrow/api/anthropic"
	"sparrow/internal/batch"
	"sparrow/internal/wire"
)

const (
	messageBatches     = messagesPath + "/batches"
	messageBatchPrefix = messageBatches + "/"
)

// messageBatchesAPI implements Anthropic's batch endpoints.
type messageBatchesAPI struct{ *service }

// create handles POST /v1/messages/batches.
func (s messageBatchesAPI) create(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set(anthropicIDHeader, exchangeOf(r).id)
	store, err := s.store()
	if err != nil {
		return err
	}
	req, err := decode(s.service, w, r, anthropic.DecodeBatch)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for i := range req.Requests { // json.Marshal removes line breaks from the parameters
		line, err := json.Marshal(&req.Requests[i])
		if err != nil {
			return err
		}
		lines.Write(append(line, '\n'))
	}
	b, err := store.Create(batch.New{Tenant: exchangeOf(r).tenant, Kind: anthropicBatch, Endpoint: messagesPath,
		Prefix: batch.MessagePrefix, Lines: &lines, Window: batchWindow, OneFile: true})
	if err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, s.object(r, store, &b))
}

// object returns a batch in Anthropic's format.
func (s messageBatchesAPI) object(r *http.Request, store *batch.Store, b *batch.Batch) anthropic.MessageBatch {
	at := func(t time.Time) *string {
		if t.IsZero() {
			return nil
		}
		text := t.UTC().Format(time.RFC3339)
		return &text
	}
	out := anthropic.MessageBatch{ID: b.ID, Type: "message_batch", ProcessingStatus: anthropic.BatchEnded,
		CreatedAt: *at(b.Created), ExpiresAt: *at(b.Expires), EndedAt: at(b.Ended), CancelInitiatedAt: at(b.Cancel),
		RequestCounts: anthropic.BatchCounts{Processing: b.Lines - b.Counts.Done(), Succeeded: b.Counts.Succeeded,
			Errored: b.Counts.Errored, Canceled: b.Counts.Cancelled, Expired: b.Counts.Expired}}
	switch {
	case b.State == batch.Running:
		out.ProcessingStatus = anthropic.BatchInProgress
	case b.State == batch.Cancelling:
		out.ProcessingStatus = anthropic.BatchCanceling
	case store.HasFile(b.Output):
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		url := scheme + "://" + r.Host + messageBatchPrefix + b.ID + "/results"
		out.ResultsURL = &url
	}
	return out
}

// list handles GET /v1/messages/batches.
func (s messageBatchesAPI) list(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	limit, err := listLimit(r, 20, 1000)
	if err != nil {
		return err
	}
	if r.URL.Query().Has("before_id") {
		return wire.NewError(wire.CodeUnsupportedParam, "before_id", "is not supported; use after_id")
	}
	found, more := store.Batches(exchangeOf(r).tenant, anthropicBatch, r.URL.Query().Get("after_id"), limit)
	out := anthropic.BatchList{Data: []anthropic.MessageBatch{}, HasMore: more}
	for i := range found {
		out.Data = append(out.Data, s.object(r, store, &found[i]))
	}
	if n := len(found); n > 0 {
		out.FirstID, out.LastID = &found[0].ID, &found[n-1].ID
	}
	return s.respond(w, http.StatusOK, out)
}

// batch handles GET /v1/messages/batches/{id} and GET /v1/messages/batches/{id}/results.
func (s messageBatchesAPI) batch(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	tenant := exchangeOf(r).tenant
	id, results := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, messageBatchPrefix), "/results")
	b, err := store.Batch(tenant, id)
	if err != nil {
		return storeError(err)
	}
	if !results {
		return s.respond(w, http.StatusOK, s.object(r, store, &b))
	}
	if !b.State.Ended() {
		return wire.NewError(wire.CodeNoObject, "", "the batch %s has not ended; its results are available when "+
			"processing_status is ended", id)
	}
	f, data, err := store.Content(tenant, b.Output)
	if err != nil {
		return storeError(err)
	}
	return s.sendLines(w, f, data)
}

// cancel handles POST /v1/messages/batches/{id}/cancel.
func (s messageBatchesAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	id, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, messageBatchPrefix), "/cancel")
	if !ok {
		return noSuchPath(r)
	}
	b, err := store.Cancel(exchangeOf(r).tenant, id)
	if err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, s.object(r, store, &b))
}

// remove handles DELETE /v1/messages/batches/{id}.
func (s messageBatchesAPI) remove(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(r.URL.Path, messageBatchPrefix)
	if err := store.DeleteBatch(exchangeOf(r).tenant, id); err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, anthropic.DeletedBatch{ID: id, Type: "message_batch_deleted"})
}

// noSuchPath returns the error for an unknown path.
func noSuchPath(r *http.Request) error {
	return wire.NewError(wire.CodeUnknownURL, "", "this server has no %s %.200q", r.Method, r.URL.Path)
}
