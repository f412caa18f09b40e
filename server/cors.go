package server

import (
	"net/http"
	"slices"
)

// cors lets the pages of allowed origins read responses. It returns true if the request was a browser's preflight
// request, which it has then answered. Without allowed origins no header is ever set, and browsers block other pages.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	allowed := s.options.AllowOrigins
	if len(allowed) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	switch {
	case slices.Contains(allowed, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(allowed, origin):
		h.Set("Access-Control-Allow-Origin", origin)
	default:
		return false
	}
	h.Set("Access-Control-Expose-Headers", requestIDHeader+", "+anthropicIDHeader+", "+ignoredHeader+", Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	// Browsers ask for permission to send the headers that a client library adds, such as x-stainless-*. All of these
	// headers are harmless, so all requested headers are allowed.
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
