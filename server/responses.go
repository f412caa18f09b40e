package server

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/wire"
)

const (
	responsesPath  = "/v1/responses"
	responsePrefix = responsesPath + "/" // followed by the id of a stored response
)

// responsesAPI implements OpenAI's Responses API.
type responsesAPI struct {
	*service
	store *responseStore
}

// createResponse handles POST /v1/responses.
func (s *responsesAPI) createResponse(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeResponses)
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
	s.fitEffort(w, x, chat)
	noteTools(w, x, chat, openai.LeftOut(chat.Tools))
	ask := []sparrow.Request{chatRequest(chat, s.origin(x, x.id))}
	if req.Truncation == openai.TruncationAuto {
		if err := s.truncate(&ask[0]); err != nil {
			return responsesDialect.rename(err, x.id)
		}
	}
	if s.options.StoreBytes == NoStore {
		req.Store = new(bool)
	}
	name := rand.Text()
	to := &responseAnswer{
		server: s, tenant: x.tenant, conversation: items, name: name,
		response: openai.NewResponse(responseID(name), s.now().Unix(), req),
		turn: turn{spoken: true, watch: unwatched{}, shape: chatShape{spelling: newSpelling(s.engine, req.TokensAsIDs),
			logprobs: chat.Logprobs, singleCall: singleCall(chat), inputs: &inputs{tools: newToolbox(chat.Tools)}}},
		summary: req.Reasoning.Summarised(), sealed: req.WantsEncrypted(),
	}
	to.response.Reasoning.Effort = nil // the request sets no effort, or the model has no levels
	if slices.Contains(openai.Efforts, x.effort.used) {
		to.response.Reasoning.Effort = &x.effort.used
	}
	if req.Stream {
		err = s.stream(w, r, ask, func(e *sse) sink { return newResponseStream(e, to) })
	} else {
		err = s.collect(w, r, ask, &to.turn, to.finish)
	}
	return responsesDialect.rename(err, x.id)
}

// itemsOf returns the whole conversation of a request: the conversation of the previous response, its output, and the
// input with references resolved.
func (s *responsesAPI) itemsOf(tenant string, r *openai.ResponsesRequest) ([]openai.Item, error) {
	var items []openai.Item
	if id := r.PreviousResponseID; id != "" {
		previous := s.store.get(tenant, id)
		if previous == nil {
			return nil, wire.NewError(wire.CodeNoPrevious, "previous_response_id",
				"%.100q is not stored%s; send the whole conversation as input", id, s.whyNotStored())
		}
		items = slices.Concat(previous.conversation, previous.response.Output)
	}
	for i := range r.Input {
		it := r.Input[i]
		if it.Type == openai.ItemReference {
			named := s.store.item(tenant, it.ID)
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
			"has %d items with those of earlier responses, but at most %d are supported", len(items),
			openai.MaxMessages)
	}
	return items, nil
}

// storedResponse handles GET /v1/responses/{id} and GET /v1/responses/{id}/input_items.
func (s *responsesAPI) storedResponse(w http.ResponseWriter, r *http.Request) error {
	id := strings.TrimPrefix(r.URL.Path, responsePrefix)
	if of, ok := strings.CutSuffix(id, inputItemsSuffix); ok {
		return s.inputItems(w, r, of)
	}
	if on := r.URL.Query().Get("stream"); on != "" && on != "false" {
		return wire.NewError(wire.CodeUnsupportedValue, "stream",
			"events are not stored; omit stream to get the whole response")
	}
	stored := s.store.get(exchangeOf(r).tenant, id)
	if stored == nil {
		return s.noResponse(id)
	}
	return s.respond(w, http.StatusOK, stored.response)
}

// deleteResponse handles DELETE /v1/responses/{id}.
func (s *responsesAPI) deleteResponse(w http.ResponseWriter, r *http.Request) error {
	id := strings.TrimPrefix(r.URL.Path, responsePrefix)
	if !s.store.remove(exchangeOf(r).tenant, id) {
		return s.noResponse(id)
	}
	return s.respond(w, http.StatusOK, openai.DeletedResponse{ID: id, Object: openai.ObjectResponse, Deleted: true})
}

func (s *responsesAPI) noResponse(id string) error {
	return wire.NewError(wire.CodeNoResponse, "", "no response with the id %.100q is stored%s", id, s.whyNotStored())
}

// whyNotStored returns the probable reason why a response is not stored, as a clause for an error.
func (s *responsesAPI) whyNotStored() string {
	if s.options.StoreBytes == NoStore {
		return ": this server stores none (--store-bytes 0)"
	}
	return ": it was created with store false, deleted, or replaced by newer ones"
}

// responseAnswer converts a reply to a response, and stores it.
type responseAnswer struct {
	server       *responsesAPI
	tenant       string
	conversation []openai.Item // conversation before the answer
	name         string        // random part of the response's id, from which the ids of items are made
	response     *openai.Response
	turn         turn
	summary      bool // whether reasoning is in the field summary of its item
	sealed       bool // whether reasoning items also have encrypted_content
}

// itemPrefixes maps the types of items to the prefixes of their ids.
var itemPrefixes = map[string]string{openai.ItemMessage: "msg", openai.ItemReasoning: "rs", openai.ItemCall: "fc",
	openai.ItemCustom: "ctc"}

// item converts a piece to an item of the response.
func (a *responseAnswer) item(i int, p *piece, status string) openai.Item {
	it := openai.Item{Type: openai.ItemMessage, Role: openai.RoleAssistant, Status: status, Logprobs: p.logprobs}
	switch p.kind {
	case chat.DeltaReasoning:
		it = openai.Item{Type: openai.ItemReasoning, Status: status, Summary: a.summary, Sealed: a.sealed}
	case chat.DeltaToolCall:
		it = openai.Item{Type: openai.ItemCall, Status: status, CallID: p.call.ID, Name: p.call.Name,
			Arguments: p.text}
		if t := a.turn.shape.inputs.tools[p.call.Name]; t != nil {
			it.Namespace, it.Name = t.Namespace, t.Function.Name
			if t.Type == openai.TypeCustom {
				it.Type = openai.ItemCustom
			}
		}
	}
	if p.kind != chat.DeltaToolCall && status != openai.StatusInProgress {
		it.Content = openai.Content{p.text}
	}
	it.ID = fmt.Sprintf("%s_%s_%d", itemPrefixes[it.Type], a.name, i)
	return it
}

// items converts all pieces, which must be complete.
func (a *responseAnswer) items() []openai.Item {
	list := make([]openai.Item, len(a.turn.pieces))
	for i := range list {
		p := &a.turn.pieces[i]
		list[i] = a.item(i, p, ended(p))
	}
	return list
}

// ended returns the status of the item of a complete piece.
func ended(p *piece) string {
	if p.cut {
		return openai.StatusIncomplete
	}
	return openai.StatusCompleted
}

// finish returns the complete response.
func (a *responseAnswer) finish(res *result) (any, error) {
	trace, err := traceJSON(res.traces)
	if err != nil {
		return nil, err
	}
	r := a.response
	r.Output, r.Sparrow = a.items(), trace
	r.Usage = responseUsage(&res.usage)
	r.Status = openai.StatusCompleted
	if a.turn.finish == sparrow.FinishLength {
		r.Status = openai.StatusIncomplete
		r.IncompleteDetails = &openai.IncompleteDetails{Reason: openai.IncompleteTokens}
	} else {
		now := a.server.now().Unix()
		r.CompletedAt = &now
	}
	if r.Store {
		a.server.store.put(a.tenant, &stored{response: r, conversation: a.conversation})
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
