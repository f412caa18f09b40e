package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sparrow/internal/wire"
	"sparrow/server/internal/page"
)

// route is an endpoint. A pattern that ends with a slash, except "/", matches every path that begins with it.
type route struct {
	method  string
	pattern string
	access  access
	handle  func(w http.ResponseWriter, r *http.Request) error
}

// access states which key an endpoint requires.
type access uint8

const (
	keyed access = iota // one of Options.Keys; none if there are no keys
	open                // no key
	probe               // no key; called by machines frequently, so success is logged at level debug
	admin               // one of Options.AdminKeys; disabled if there are none
)

// unmatched is the route of requests without an endpoint, in logs and metrics.
const unmatched = "unmatched"

// routes returns all endpoints. Those for load balancers and scrapers need no key, because they neither run requests
// nor return their text.
func routes(s *service, web *page.Files) []route {
	var (
		openai    = openaiAPI{s}
		responses = &responsesAPI{s, newResponseStore(int(s.options.StoreBytes))}
		anthropic = anthropicAPI{s}
		ollama    = ollamaAPI{s}
		files     = filesAPI{s}
		batches   = batchesAPI{s}
		bulk      = messageBatchesAPI{s}
		native    = sglangAPI{s}
		router    = routerAPI{s}
		admins    = adminAPI{s}
		debug     = debugAPI{s}
		status    = statusAPI{s, s.metrics.Handler()}
		site      = website{web}
	)
	list := []route{
		{http.MethodPost, "/v1/chat/completions", keyed, openai.chatCompletion},
		{http.MethodPost, "/v1/completions", keyed, openai.completion},
		{http.MethodPost, "/v1/chat/completions/render", keyed, router.renderChat},
		{http.MethodPost, "/v1/completions/render", keyed, router.renderCompletion},
		{http.MethodPost, "/v1/score", keyed, openai.score},
		{http.MethodPost, responsesPath, keyed, responses.createResponse},
		{http.MethodGet, responsePrefix, keyed, responses.storedResponse},
		{http.MethodDelete, responsePrefix, keyed, responses.deleteResponse},
		{http.MethodPost, messagesPath, keyed, anthropic.createMessage},
		{http.MethodPost, messagesPath + "/count_tokens", keyed, anthropic.countTokens},
		{http.MethodPost, messageBatches, keyed, bulk.create},
		{http.MethodGet, messageBatches, keyed, bulk.list},
		{http.MethodGet, messageBatchPrefix, keyed, bulk.batch},
		{http.MethodPost, messageBatchPrefix, keyed, bulk.cancel},
		{http.MethodDelete, messageBatchPrefix, keyed, bulk.remove},
		{http.MethodPost, filesPath, keyed, files.upload},
		{http.MethodGet, filesPath, keyed, files.list},
		{http.MethodGet, filePrefix, keyed, files.file},
		{http.MethodDelete, filePrefix, keyed, files.remove},
		{http.MethodPost, batchesPath, keyed, batches.create},
		{http.MethodGet, batchesPath, keyed, batches.list},
		{http.MethodGet, batchPrefix, keyed, batches.batch},
		{http.MethodPost, batchPrefix, keyed, batches.cancel},
		{http.MethodGet, "/v1/models", keyed, openai.models},
		{http.MethodGet, modelPrefix, keyed, openai.model},
		{http.MethodPost, ollamaPrefix + "chat", keyed, ollama.chat},
		{http.MethodPost, ollamaPrefix + "generate", keyed, ollama.complete},
		{http.MethodPost, ollamaPrefix + "show", keyed, ollama.show},
		{http.MethodGet, ollamaPrefix + "tags", keyed, ollama.tags},
		{http.MethodGet, ollamaPrefix + "ps", keyed, ollama.running},
		{http.MethodGet, ollamaPrefix + "version", open, ollama.version},
		{http.MethodPost, "/generate", keyed, native.generateNative},
		{http.MethodPost, "/tokenize", keyed, openai.tokenize},
		{http.MethodPost, "/detokenize", keyed, openai.detokenize},
		{http.MethodGet, "/tokenizer_info", keyed, openai.tokenizerInfo},
		{http.MethodGet, "/server_info", keyed, router.serverInfo},
		{http.MethodGet, "/get_server_info", keyed, router.serverInfo},
		{http.MethodGet, "/model_info", keyed, router.modelInfo},
		{http.MethodGet, "/get_model_info", keyed, router.modelInfo},
		{http.MethodGet, "/v1/loads", keyed, router.loads},
		{http.MethodGet, "/get_load", keyed, router.load},
		{http.MethodPost, "/flush_cache", admin, admins.flushCache},
		{http.MethodPost, "/sleep", admin, admins.sleep},
		{http.MethodPost, "/wake_up", admin, admins.wakeUp},
		{http.MethodGet, "/is_sleeping", admin, admins.isSleeping},
		{http.MethodPost, "/update_weights_from_disk", admin, admins.updateWeights},
		{http.MethodGet, "/debug/plans", keyed, debug.plans},
		{http.MethodGet, "/debug/explain", keyed, debug.explainChoices},
		{http.MethodPost, "/debug/explain", keyed, debug.explain},
		{http.MethodGet, "/health", probe, status.health},
		{http.MethodGet, "/ready", probe, status.ready},
		{http.MethodGet, "/metrics", probe, status.metricsText},
		{http.MethodGet, "/version", open, status.version},
		{http.MethodGet, "/", open, site.root},
	}
	if web != nil {
		list = append(list, route{http.MethodGet, page.Prefix, open, site.pageFile})
	}
	return list
}

func (r *route) matches(path string) bool {
	if strings.HasSuffix(r.pattern, "/") && r.pattern != "/" {
		return len(path) > len(r.pattern) && strings.HasPrefix(path, r.pattern)
	}
	return path == r.pattern
}

// find returns the endpoint of a request. If only the method is wrong, it returns the endpoint and an error.
func (s *Server) find(w http.ResponseWriter, r *http.Request) (*route, error) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http drops the body of the response to HEAD
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
		return nil, wire.NewError(wire.CodeUnknownURL, "", "this server has no %.200q; %s", r.URL.Path,
			s.suggest(r.URL.Path))
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return near, wire.NewError(wire.CodeBadMethod, "", "%s supports %s, not %.20q", near.pattern, list, r.Method)
}

// suggest returns the endpoint that is most similar to a path, or the most common endpoints.
func (s *Server) suggest(path string) string {
	patterns := make([]string, len(s.routes))
	for i, r := range s.routes {
		patterns[i] = r.pattern
	}
	for _, version := range []string{"", "/v1"} { // base URLs without the version are a frequent mistake
		if best := wire.Nearest(version+path, patterns); best != "" {
			return fmt.Sprintf("did you mean %s %s?", s.routes[slices.Index(patterns, best)].method, best)
		}
	}
	if strings.HasPrefix(path, "/api/") { // Ollama's API
		return "chats are POST /api/chat, completions POST /api/generate, models GET /api/tags; docs/operating.md " +
			"lists all endpoints"
	}
	return "chats are POST /v1/chat/completions, models GET /v1/models, the page is GET /; docs/operating.md lists " +
		"all endpoints"
}
