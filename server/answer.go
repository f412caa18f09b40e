package server

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"time"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// collector receives all events of a request; result is called at the end.
type collector interface {
	event(prompt int, ev *sparrow.Event) error
}

// kept is a sink for responses without streaming: it passes events to a collector and stores the result.
type kept struct {
	collector
	result *result
}

func (k *kept) idle(limit time.Duration) (time.Duration, error) { return limit, nil }

func (k *kept) end(r *result) error {
	k.result = r
	return nil
}

// collect runs requests to their end and sends one JSON object.
func (s *service) collect(w http.ResponseWriter, r *http.Request, ask []sparrow.Request, to collector,
	response func(*result) (any, error)) error {
	// A response that waits for the model has no deadline as a whole.
	if err := writeBy(w, time.Time{}); err != nil {
		return err
	}
	k := &kept{collector: to}
	if err := s.generate(w, r, ask, k); err != nil {
		return err
	}
	out, err := response(k.result)
	if err != nil {
		return err
	}
	return s.respond(w, http.StatusOK, out)
}

// stream runs requests and sends a stream of events. After the first event, an error is sent as an event.
func (s *service) stream(w http.ResponseWriter, r *http.Request, ask []sparrow.Request, to func(*sse) sink) error {
	e, err := newSSE(w, s.options.WriteTimeout)
	if err != nil {
		return err
	}
	out := to(e)
	err = s.generate(w, r, ask, out)
	if err == nil || !e.open {
		return err
	}
	x := exchangeOf(r)
	x.fault = err
	if clientGone(err) {
		return nil
	}
	if err := e.abort(out, toError(err, x.id)); err != nil {
		s.options.Log.Debug("an error could not be delivered", "id", x.id, "error", err)
	}
	return nil
}

// failer is implemented by sinks whose streams have their own format of errors.
type failer interface {
	fail(*wire.Error) error
}

// abort ends a stream with an error event; buffered data is dropped.
func (e *sse) abort(to sink, err *wire.Error) error {
	e.buf = e.buf[:0]
	if f, ok := to.(failer); ok {
		return f.fail(err)
	}
	e.buf = openai.AppendError(e.buf, err)
	return e.flush()
}

// finish ends a stream with usage and trace, if requested.
func (e *sse) finish(closing func([]byte, *openai.Usage, json.RawMessage) ([]byte, error), usage bool,
	r *result) error {
	trace, err := traceJSON(r.traces)
	if err != nil {
		return err
	}
	var u *openai.Usage
	if usage {
		u = usageOf(&r.usage)
	}
	if e.buf, err = closing(e.buf, u, trace); err != nil {
		return err
	}
	e.buf = openai.AppendDone(e.buf)
	return e.flush()
}

// head returns the first fields of a response; model is the name in the request, which may be an alias.
func (s *service) head(id, object, model string) openai.Head {
	return openai.Head{ID: id, Object: object, Created: s.now().Unix(), Model: model,
		SystemFingerprint: "fp_" + s.info.Config.Fingerprint.String()}
}

// admit refuses requests while the server shuts down, and those for another model.
func (s *service) admit(o *openai.Options) error {
	if s.draining() {
		return ErrDraining
	}
	if err := s.checkModel(o.Model); err != nil {
		return err
	}
	return checkDraft(o, s.info)
}

// checkModel returns an error unless the name is that of the served model or an alias.
func (s *service) checkModel(name string) error {
	isAlias := func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return match && err == nil
	}
	if name != s.info.Name && !slices.ContainsFunc(s.options.Aliases, isAlias) {
		return wire.NewError(wire.CodeModelNotFound, "model", "%.100q is not served here; this server serves %q", name,
			append([]string{s.info.Name}, s.options.Aliases...))
	}
	return nil
}
