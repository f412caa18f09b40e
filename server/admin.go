package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"sparrow/internal/wire"
)

// adminAPI implements endpoints of vLLM and SGLang for administrators, and for trainers on the same device: to release
// the server's device memory, to allocate it again, and to load other weights.
type adminAPI struct{ *service }

// sleep handles POST /sleep. In vLLM the level selects where weights are kept; here they are always read from their
// files again. mode is abort, or wait (the default), which waits for running requests.
func (s adminAPI) sleep(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if level := q.Get("level"); level != "" && level != "1" && level != "2" {
		return wire.NewError(wire.CodeInvalidValue, "level", "is %.20q; want 1 or 2 (both have the same effect)",
			level)
	}
	abort := false
	switch mode := q.Get("mode"); mode {
	case "", "wait":
	case "abort":
		abort = true
	default:
		return wire.NewError(wire.CodeInvalidValue, "mode", "is %.20q; want wait or abort", mode)
	}
	if err := s.engine.Sleep(r.Context(), abort); err != nil {
		return err
	}
	s.options.Log.Info("asleep", "id", exchangeOf(r).id)
	return s.respond(w, http.StatusOK, statusBody{Status: "asleep"})
}

// wakeUp handles POST /wake_up. vLLM's parameter tags has no effect: all memory is allocated again.
func (s adminAPI) wakeUp(w http.ResponseWriter, r *http.Request) error {
	if err := s.engine.Wake(r.Context()); err != nil {
		return err
	}
	s.options.Log.Info("awake", "id", exchangeOf(r).id)
	return s.respond(w, http.StatusOK, statusBody{Status: "awake"})
}

// isSleeping handles GET /is_sleeping.
func (s adminAPI) isSleeping(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, struct {
		Sleeping bool `json:"is_sleeping"`
	}{s.engine.Stats().Asleep})
}

// updateRequest is the body of POST /update_weights_from_disk, as in SGLang.
type updateRequest struct {
	Path  string
	Abort bool
}

var updateFields = wire.Fields[updateRequest]{
	"model_path":         wire.TextField(func(u *updateRequest) *string { return &u.Path }),
	"abort_all_requests": wire.BoolField(func(u *updateRequest) *bool { return &u.Abort }),
	// In SGLang these select how weights are loaded and whether the cache is kept. Here the cache is always emptied.
	"load_format":          wire.IgnoreAny[updateRequest](),
	"weight_version":       wire.IgnoreAny[updateRequest](),
	"is_async":             wire.IgnoreAny[updateRequest](),
	"keep_pause":           wire.IgnoreAny[updateRequest](),
	"recapture_cuda_graph": wire.IgnoreAny[updateRequest](),
	"torch_empty_cache":    wire.IgnoreAny[updateRequest](),
	"flush_cache":          wire.IgnoreAny[updateRequest](),
	"token_step":           wire.IgnoreAny[updateRequest](),
}

// updateAnswer is the response in SGLang's format.
type updateAnswer struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Paused  int    `json:"num_paused_requests"`
}

// updateWeights handles POST /update_weights_from_disk.
func (s adminAPI) updateWeights(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, func(d *wire.Decoder, body []byte) (*updateRequest, *wire.Error) {
		return wire.Decode(d, body, updateFields, func(u *updateRequest, p *wire.Problems) {
			if u.Path == "" {
				p.Add(wire.CodeMissing, "model_path", "is missing; send the folder of a checkpoint")
			}
		})
	})
	if err != nil {
		return err
	}
	dir, err := s.weightsFolder(req.Path)
	if err != nil {
		return err
	}
	if err := s.engine.UpdateWeights(r.Context(), dir, req.Abort); err != nil {
		s.options.Log.Error("weights were not replaced", "id", exchangeOf(r).id, "folder", dir, "error", err)
		return s.respond(w, http.StatusBadRequest, updateAnswer{Message: err.Error()})
	}
	s.options.Log.Info("weights were replaced", "id", exchangeOf(r).id, "folder", dir)
	return s.respond(w, http.StatusOK, updateAnswer{Success: true, Message: "weights were replaced"})
}

// weightsFolder returns the resolved path of a folder, which must be below WeightsRoot.
func (s adminAPI) weightsFolder(path string) (string, error) {
	refuse := func(format string, args ...any) error {
		return wire.NewError(wire.CodeInvalidValue, "model_path", "%s", fmt.Sprintf(format, args...))
	}
	if s.options.WeightsRoot == "" {
		return "", refuse("replacing weights is disabled; start the server with --weights-root FOLDER")
	}
	root, err := filepath.Abs(s.options.WeightsRoot)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return "", fmt.Errorf("the folder of --weights-root: %w", err)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		dir = filepath.Clean(path) // the error for a path outside the root must not reveal whether it exists
	}
	switch below, outside := filepath.Rel(root, dir); {
	case outside != nil || below == ".." || strings.HasPrefix(below, ".."+string(filepath.Separator)):
		return "", refuse("%.200q is not below the folder of --weights-root; give a folder below %s", path, root)
	case err != nil:
		return "", refuse("%.200q does not exist; give a folder below %s", path, root)
	}
	return dir, nil
}

// flushCache handles POST /flush_cache: it empties the prefix cache.
func (s adminAPI) flushCache(w http.ResponseWriter, r *http.Request) error {
	if err := s.engine.Flush(r.Context()); err != nil {
		return err
	}
	s.options.Log.Info("the prefix cache was emptied", "id", exchangeOf(r).id)
	return s.respond(w, http.StatusOK, statusBody{Status: "flushed"})
}
