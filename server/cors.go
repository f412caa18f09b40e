package server

import (
	"net/http"
	"slices"
)

// cors sets the CORS headers that allow pages of Options.AllowOrigins to read responses. It returns true if the request
// was a preflight request, which it has answered. Without these headers, browsers block pages of other origins.
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
	// All requested headers are allowed, because none of them can do harm. Client libraries add headers such as
	// x-stainless-*.
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
