package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sparrow/api/wire"
	"sparrow/server/page"
)

// route is an endpoint. A pattern that ends with a slash takes every longer path, but for the root.
type route struct {
	method  string
	pattern string
	access  access
	handle  func(w http.ResponseWriter, r *http.Request) error
}

// access is who may use an endpoint.
type access uint8

const (
	keyed access = iota // whoever has one of Options.Keys; everybody without them
	open                // everybody
	probe               // everybody; machines call it all the time, so that success is logged at level debug
	admin               // whoever has one of Options.AdminKeys; nobody without them
)

// unmatched is the route of everything else, in logs and metrics.
const unmatched = "unmatched"

// table lists every endpoint. Those that a load balancer or a scraper calls need no key: they show no text and do no
// work.
func (s *Server) table() []route {
	routes := []route{
		{http.MethodPost, "/v1/chat/completions", keyed, s.chatCompletion},
		{http.MethodPost, "/v1/completions", keyed, s.completion},
		{http.MethodPost, "/v1/chat/completions/render", keyed, s.renderChat},
		{http.MethodPost, "/v1/completions/render", keyed, s.renderCompletion},
		{http.MethodPost, "/v1/score", keyed, s.score},
		{http.MethodPost, responsesPath, keyed, s.createResponse},
		{http.MethodGet, responsePrefix, keyed, s.storedResponse},
		{http.MethodDelete, responsePrefix, keyed, s.deleteResponse},
		{http.MethodPost, messagesPath, keyed, s.createMessage},
		{http.MethodPost, messagesPath + "/count_tokens", keyed, s.countTokens},
		{http.MethodGet, "/v1/models", keyed, s.models},
		{http.MethodGet, modelPrefix, keyed, s.model},
		{http.MethodPost, ollamaPrefix + "chat", keyed, s.ollamaChat},
		{http.MethodPost, ollamaPrefix + "generate", keyed, s.ollamaGenerate},
		{http.MethodPost, ollamaPrefix + "show", keyed, s.ollamaShow},
		{http.MethodGet, ollamaPrefix + "tags", keyed, s.ollamaTags},
		{http.MethodGet, ollamaPrefix + "ps", keyed, s.ollamaRunning},
		{http.MethodGet, ollamaPrefix + "version", open, s.ollamaVersion},
		{http.MethodPost, "/tokenize", keyed, s.tokenize},
		{http.MethodPost, "/detokenize", keyed, s.detokenize},
		{http.MethodGet, "/server_info", keyed, s.serverInfo},
		{http.MethodGet, "/get_server_info", keyed, s.serverInfo},
		{http.MethodGet, "/model_info", keyed, s.modelInfo},
		{http.MethodGet, "/get_model_info", keyed, s.modelInfo},
		{http.MethodGet, "/v1/loads", keyed, s.loads},
		{http.MethodGet, "/get_load", keyed, s.load},
		{http.MethodPost, "/flush_cache", admin, s.flushCache},
		{http.MethodPost, "/sleep", admin, s.sleep},
		{http.MethodPost, "/wake_up", admin, s.wakeUp},
		{http.MethodGet, "/is_sleeping", admin, s.isSleeping},
		{http.MethodPost, "/update_weights_from_disk", admin, s.updateWeights},
		{http.MethodGet, "/debug/plans", keyed, s.plans},
		{http.MethodGet, "/debug/explain", keyed, s.explainChoices},
		{http.MethodPost, "/debug/explain", keyed, s.explain},
		{http.MethodGet, "/health", probe, s.health},
		{http.MethodGet, "/ready", probe, s.ready},
		{http.MethodGet, "/metrics", probe, s.metricsText},
		{http.MethodGet, "/version", open, s.version},
		{http.MethodGet, "/", open, s.root},
	}
	if s.page != nil {
		routes = append(routes, route{http.MethodGet, page.Prefix, open, s.pageFile})
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
		return nil, wire.NewError(wire.CodeUnknownURL, "", "there is no %.200q here; %s", r.URL.Path,
			s.suggest(r.URL.Path))
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return near, wire.NewError(wire.CodeBadMethod, "", "%s takes %s, not %.20q", near.pattern, list, r.Method)
}

// suggest names the endpoint that a path was probably meant for, or those that most clients use.
func (s *Server) suggest(path string) string {
	patterns := make([]string, len(s.routes))
	for i, r := range s.routes {
		patterns[i] = r.pattern
	}
	for _, version := range []string{"", "/v1"} { // a base URL without its version is a usual mistake
		if best := wire.Nearest(version+path, patterns); best != "" {
			return fmt.Sprintf("did you mean %s %s?", s.routes[slices.Index(patterns, best)].method, best)
		}
	}
	return "chats are POST /v1/chat/completions, models GET /v1/models, the page is GET /; docs/operating.md lists " +
		"all endpoints"
}
