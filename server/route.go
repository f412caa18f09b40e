package server

import (
	"net/http"
	"slices"
	"sparrow/api/wire"
	"sparrow/server/page"
	"strings"
)

// route is an endpoint. A pattern that ends with a slash takes every longer path, but for the root.
type route struct {
	method  string
	pattern string
	open    bool // needs no key
	handle  func(w http.ResponseWriter, r *http.Request) error
}

// unmatched is the route of everything else, in logs and metrics.
const unmatched = "unmatched"

// table lists every endpoint. Those that a load balancer or a scraper calls need no key: they show no text and do no
// work.
func (s *Server) table() []route {
	routes := []route{
		{http.MethodPost, "/v1/chat/completions", false, s.chatCompletion},
		{http.MethodPost, "/v1/completions", false, s.completion},
		{http.MethodPost, "/v1/score", false, s.score},
		{http.MethodPost, responsesPath, false, s.createResponse},
		{http.MethodGet, responsePrefix, false, s.storedResponse},
		{http.MethodDelete, responsePrefix, false, s.deleteResponse},
		{http.MethodPost, messagesPath, false, s.createMessage},
		{http.MethodPost, messagesPath + "/count_tokens", false, s.countTokens},
		{http.MethodGet, "/v1/models", false, s.models},
		{http.MethodGet, modelPrefix, false, s.model},
		{http.MethodPost, ollamaPrefix + "chat", false, s.ollamaChat},
		{http.MethodPost, ollamaPrefix + "generate", false, s.ollamaGenerate},
		{http.MethodPost, ollamaPrefix + "show", false, s.ollamaShow},
		{http.MethodGet, ollamaPrefix + "tags", false, s.ollamaTags},
		{http.MethodGet, ollamaPrefix + "ps", false, s.ollamaRunning},
		{http.MethodGet, ollamaPrefix + "version", true, s.ollamaVersion},
		{http.MethodPost, "/tokenize", false, s.tokenize},
		{http.MethodPost, "/detokenize", false, s.detokenize},
		{http.MethodGet, "/debug/plans", false, s.plans},
		{http.MethodGet, "/debug/explain", false, s.explainChoices},
		{http.MethodPost, "/debug/explain", false, s.explain},
		{http.MethodGet, "/health", true, s.health},
		{http.MethodGet, "/ready", true, s.ready},
		{http.MethodGet, "/metrics", true, s.metricsText},
		{http.MethodGet, "/version", true, s.version},
		{http.MethodGet, "/", true, s.root},
	}
	if s.page != nil {
		routes = append(routes, route{http.MethodGet, page.Prefix, true, s.pageFile})
	}
	return routes
}

func (r *route) matches(path string) bool {
	if strings.HasSuffix(r.pattern, "/") && r.pattern != "/" {
		return len(path) > len(r.pattern) && strings.HasPrefix(path, r.pattern)
	}
	return path == r.pattern
}

// find looks for the endpoint of a request. An error has the endpoint too where only the method is wrong.
func (s *Server) find(w http.ResponseWriter, r *http.Request) (*route, error) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http drops the body
	}
	var near *route
	var allowed []string
	for i := range s.routes {
		each := &s.routes[i]
		if !each.matches(r.URL.Path) {
			continue
		}
		if each.method == method {
			return each, nil
		}
		near, allowed = each, append(allowed, each.method)
	}
	if near == nil {
		return nil, wire.NewError(wire.CodeUnknownURL, "", "there is no %.200q here; the endpoints are %s",
			r.URL.Path, s.endpoints())
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return near, wire.NewError(wire.CodeBadMethod, "", "%s takes %s, not %.20q", near.pattern, list, r.Method)
}

func (s *Server) endpoints() string {
	var b strings.Builder
	for i, r := range s.routes {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.method + " " + r.pattern)
	}
	return b.String()
}
