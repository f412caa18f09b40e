package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"sparrow"
	"sparrow/internal/wire"
)

// serveHTTP handles a request: it sets the id, finds the endpoint, checks the key, and responds. Every request is
// logged and counted.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{id: requestID(r), arrived: time.Now(), route: unmatched, dialect: dialectOf(r.URL.Path)}
	rec := &recorder{ResponseWriter: w}
	r = s.beginSpan(r, x)
	rec.Header().Set(requestIDHeader, x.id)
	defer s.account(rec, r, x)
	defer x.memory.close()
	defer s.rescue(rec, x)
	if err := s.checkHost(r); err != nil {
		s.fail(rec, x, err)
		return
	}
	if s.cors(rec, r) {
		x.route = "preflight"
		return
	}
	if err := s.dispatch(rec, withExchange(r, x), x); err != nil {
		s.fail(rec, x, err)
		if rec.status == 0 {
			// The client has disconnected. If the handler returned, net/http would send status 200.
			panic(http.ErrAbortHandler)
		}
	}
}

func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, x *exchange) error {
	to, err := s.find(w, r)
	if to != nil {
		x.route, x.access = to.pattern, to.access
	}
	if err != nil {
		return err
	}
	switch to.access {
	case keyed:
		if s.options.Keys != nil {
			x.tenant, err = authorise(r, s.options.Keys, "a key")
		}
	case admin:
		if s.options.AdminKeys == nil {
			return wire.NewError(wire.CodeNoAdmin, "", "%s is for administrators, but this server has no keys for "+
				"them; start it with --admin-keys FILE", to.pattern)
		}
		_, err = authorise(r, s.options.AdminKeys, "an administrator's key (--admin-keys)")
	}
	if err != nil {
		return err
	}
	x.source, x.flow = sourceOf(r.RemoteAddr), cmp.Or(r.Header.Get(fairnessHeader), r.RemoteAddr)
	x.priority = s.options.Objectives[r.Header.Get(objectiveHeader)]
	return to.handle(w, r)
}

// sourceOf returns the key by which requests without a tenant are served round-robin: an IPv4 address, or an IPv6
// network, because a client can use any address of its network.
func sourceOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote // a Unix socket
	}
	a := at.Addr().Unmap()
	if a.Is4() || a.IsLoopback() {
		return a.String()
	}
	const client = 64 // bits of an IPv6 network
	net, err := a.WithZone("").Prefix(client)
	if err != nil {
		return a.String()
	}
	return net.String()
}

// authorise checks the key, a bearer key or Anthropic's header x-api-key, and returns its tenant. wanted describes the
// required keys in the error.
func authorise(r *http.Request, keys *Keys, wanted string) (tenant string, err error) {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || given == "" {
		given = r.Header.Get("X-Api-Key")
	}
	if given == "" {
		return "", wire.NewError(wire.CodeInvalidKey, "",
			"no key; send %s in the header Authorization: Bearer KEY, or in X-Api-Key", wanted)
	}
	tenant, ok := keys.tenant(strings.TrimSpace(given))
	if !ok {
		return "", wire.NewError(wire.CodeInvalidKey, "", "the key is not valid for this endpoint; "+
			"send %s", wanted)
	}
	return tenant, nil
}

// rescue recovers from a panic, which then fails only this request. If the response has begun, the connection is
// closed, so that the response does not look complete.
func (s *Server) rescue(w *recorder, x *exchange) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.metrics.Panic()
	err := fmt.Errorf("panic: %v", v)
	s.options.Log.Error("an HTTP handler panicked", "id", x.id, "route", x.route, "panic", fmt.Sprint(v), "stack",
		string(debug.Stack()))
	if w.status == 0 {
		s.fail(w, x, err)
		return
	}
	x.fault = err
	panic(http.ErrAbortHandler)
}

// account logs a request and counts it. The log does not contain prompts, answers, keys or query strings.
func (s *Server) account(w *recorder, r *http.Request, x *exchange) {
	status := w.status
	if status == 0 {
		status = http.StatusOK // sent by net/http if the handler writes nothing
		if x.fault != nil {
			status = statusClientGone
		}
	}
	s.metrics.HTTP(x.route, status)
	x.endSpan(r.Method, status)
	level := slog.LevelInfo
	if (x.access == probe || x.background) && status < http.StatusBadRequest {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("id", x.id), slog.String("method", r.Method), slog.String("route", x.route),
		slog.Int("status", status), slog.Int64("bytes", w.bytes), slog.Duration("took", time.Since(x.arrived)),
		slog.String("remote", r.RemoteAddr),
	}
	if id := x.traceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if x.tenant != "" {
		attrs = append(attrs, slog.String("tenant", x.tenant))
	}
	if x.firstToken > 0 {
		attrs = append(attrs, slog.Duration("first_token", x.firstToken))
	}
	if u := x.usage; u.PromptTokens > 0 {
		attrs = append(attrs, slog.Int("prompt_tokens", u.PromptTokens), slog.Int("cached_tokens", u.CachedTokens),
			slog.Int("completion_tokens", u.CompletionTokens))
	}
	if len(x.ignored) > 0 {
		attrs = append(attrs, slog.String("ignored", strings.Join(x.ignored, ", ")))
	}
	if len(x.leftOut) > 0 {
		attrs = append(attrs, slog.String("left_out", strings.Join(x.leftOut, ", ")))
	}
	if x.effort.asked != "" {
		attrs = append(attrs, slog.String("effort", x.effort.String()))
	}
	if x.fault != nil {
		attrs = append(attrs, slog.String("code", string(faultCode(x))))
		if toError(x.fault, x.id).Status() >= http.StatusInternalServerError && !clientGone(x.fault) &&
			!errors.Is(x.fault, sparrow.ErrAsleep) { // an administrator has put the engine to sleep
			// Errors of clients may quote the request, so only server errors are logged with their message.
			level = slog.LevelError
			attrs = append(attrs, slog.Any("error", x.fault))
		}
	}
	s.options.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// faultCode returns the code of the request's error, even if the client has disconnected.
func faultCode(x *exchange) wire.Code {
	if clientGone(x.fault) {
		return "client_gone"
	}
	return toError(x.fault, x.id).Code
}
