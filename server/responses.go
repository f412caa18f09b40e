package server

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/api/wire"
)

// responsePrefix takes ids of stored responses.
const responsePrefix = "/v1/responses/"

// createResponse answers POST /v1/responses.
func (s *Server) createResponse(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s, w, r, openai.DecodeResponses)
	if err != nil {
		return err
	}
	if err := s.admit(&req.Options); err != nil {
		return err
	}
	x := exchangeOf(r)
	items, err := s.itemsOf(x.tenant, req)
	if err != nil {
		return err
	}
	chat := req.AsChat(items)
	ask := []sparrow.Request{chatRequest(chat, s.origin(x, x.id))}
	if req.Truncation == openai.TruncationAuto {
		if err := s.truncate(&ask[0]); err != nil {
			return responsesError(err, x.id)
		}
	}
	name := rand.Text()
	to := &responseAnswer{
		server: s, tenant: x.tenant, conversation: items,
		response: openai.NewResponse(responseID(name), s.now().Unix(), req),
		output: responseOutput{name: name, shape: chatShape{spelling: newSpelling(s.engine, req.TokensAsIDs),
			logprobs: chat.Logprobs, singleCall: singleCall(chat)}},
	}
	if req.Stream {
		err = s.stream(w, r, ask, func(e *sse) sink { return newResponseStream(e, to) })
	} else {
		to.output.watch = unwatched{}
		err = s.collect(w, r, ask, &to.output, to.finish)
	}
	return responsesError(err, x.id)
}

// itemsOf is the whole conversation of a request: what came before its previous response, that response, and its
// input with references replaced by what they name.
func (s *Server) itemsOf(tenant string, r *openai.ResponsesRequest) ([]openai.Item, error) {
	var items []openai.Item
	if id := r.PreviousResponseID; id != "" {
		previous := s.responses.get(tenant, id)
		if previous == nil {
			return nil, wire.NewError(wire.CodeNoPrevious, "previous_response_id",
				"%.100q is not stored: it was created with store false, deleted, or gave way to newer ones; "+
					"send the whole conversation as input", id)
		}
		items = slices.Concat(previous.conversation, previous.response.Output)
	}
	for i := range r.Input {
		it := r.Input[i]
		if it.Type == openai.ItemReference {
			named := s.responses.item(tenant, it.ID)
			if named == nil {
				return nil, wire.NewError(wire.CodeInvalidValue, "input",
					"item %d refers to %.100q, which is not stored; send the item itself", i, it.ID)
			}
			it = *named
		}
		items = append(items, it)
	}
	if len(items) > openai.MaxMessages {
		return nil, wire.NewError(wire.CodeTooMany, "input",
			"%d items with those of earlier responses, at most %d are supported", len(items), openai.MaxMessages)
	}
	return items, nil
}

// storedResponse answers GET /v1/responses/{id}.
func (s *Server) storedResponse(w http.ResponseWriter, r *http.Request) error {
	id := strings.TrimPrefix(r.URL.Path, responsePrefix)
	if on := r.URL.Query().Get("stream"); on != "" && on != "false" {
		return wire.NewError(wire.CodeUnsupportedValue, "stream",
			"events are not kept; leave stream out to get the whole response")
	}
	stored := s.responses.get(exchangeOf(r).tenant, id)
	if stored == nil {
		return noResponse(id)
	}
	return s.respond(w, http.StatusOK, stored.response)
}

// deleteResponse answers DELETE /v1/responses/{id}.
func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request) error {
	id := strings.TrimPrefix(r.URL.Path, responsePrefix)
	if !s.responses.remove(exchangeOf(r).tenant, id) {
		return noResponse(id)
	}
	return s.respond(w, http.StatusOK, openai.DeletedResponse{ID: id, Object: openai.ObjectResponse, Deleted: true})
}

func noResponse(id string) error {
	return wire.NewError(wire.CodeNoResponse, "", "no response with the id %.100q is stored", id)
}

// responseFields are the names that chat completions have for fields of /v1/responses; the first match wins.
var responseFields = []struct{ chat, response string }{
	{"messages", "input"},
	{"prompt", "input"},
	{"max_tokens", "max_output_tokens"},
	{"max_completion_tokens", "max_output_tokens"},
	{schemaParam, "text.format.schema"},
	{"response_format", "text.format"},
}

// responsesError gives the fields in an error about a request the names they have here. A message of a chat may be
// several items, so its index is left out.
func responsesError(err error, requestID string) error {
	if err == nil {
		return nil
	}
	bad := toError(err, requestID)
	if bad.Status() != http.StatusBadRequest {
		return err
	}
	list := slices.Clone(bad.Problems)
	for i := range list {
		for _, f := range responseFields {
			rest, ok := strings.CutPrefix(list[i].Param, f.chat)
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				list[i].Param = f.response
				break
			}
		}
	}
	return wire.JoinProblems(list)
}

// responseAnswer turns what was generated into a response, and stores it.
type responseAnswer struct {
	server       *Server
	tenant       string
	conversation []openai.Item // up to the answer
	response     *openai.Response
	output       responseOutput
}

// finish completes the response.
func (a *responseAnswer) finish(res *result) (any, error) {
	trace, err := traceJSON(res.traces)
	if err != nil {
		return nil, err
	}
	r := a.response
	r.Output, r.Sparrow = a.output.items, trace
	r.Usage = responseUsage(&res.usage)
	r.Status = openai.StatusCompleted
	if a.output.finish == sparrow.FinishLength {
		r.Status = openai.StatusIncomplete
		r.IncompleteDetails = &openai.IncompleteDetails{Reason: openai.IncompleteTokens}
	} else {
		now := a.server.now().Unix()
		r.CompletedAt = &now
	}
	if r.Store {
		a.server.responses.put(a.tenant, &stored{response: r, conversation: a.conversation})
	}
	return r, nil
}

func responseUsage(u *sparrow.Usage) *openai.ResponseUsage {
	return &openai.ResponseUsage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, TotalTokens: u.PromptTokens + u.CompletionTokens,
		InputTokensDetails:  openai.InputTokensDetails{CachedTokens: u.CachedTokens},
		OutputTokensDetails: openai.OutputTokensDetails{ReasoningTokens: u.ReasoningTokens},
	}
}
