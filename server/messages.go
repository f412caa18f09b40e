package server

import (
	"crypto/rand"
	"encoding/json"
	"net/http"

	"sparrow"
	"sparrow/api/anthropic"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/wire"
)

const messagesPath = "/v1/messages"

// Headers of Anthropic's API: the version, which clients send, and the request's id in responses.
const (
	anthropicVersion  = "Anthropic-Version"
	anthropicIDHeader = "Request-Id"
)

// anthropicAPI implements Anthropic's endpoints.
type anthropicAPI struct{ *service }

// createMessage handles POST /v1/messages.
func (s anthropicAPI) createMessage(w http.ResponseWriter, r *http.Request) error {
	x := exchangeOf(r)
	w.Header().Set(anthropicIDHeader, x.id)
	req, err := decode(s.service, w, r, anthropic.DecodeMessages)
	if err != nil {
		return err
	}
	turnChat := req.AsChat()
	if err := s.admit(&turnChat.Options); err != nil {
		return err
	}
	s.fitEffort(w, x, turnChat)
	noteTools(w, x, turnChat, req.LeftOut())
	ask := []sparrow.Request{chatRequest(turnChat, s.origin(x, x.id))}
	to := &messageAnswer{
		limit: *req.MaxTokens, omit: req.Omit,
		response: anthropic.NewResponse("msg_"+rand.Text(), req.Model),
		turn:     turn{watch: unwatched{}, shape: chatShape{singleCall: singleCall(turnChat)}},
	}
	if to.limit == 0 {
		ask[0].MaxTokens = 1 // the prompt's last step samples a token, which is not returned
	}
	if req.Stream {
		err = s.stream(w, r, ask, func(e *sse) sink { return newMessageStream(e, to) })
	} else {
		err = s.collect(w, r, ask, to, to.finish)
	}
	return x.dialect.rename(err, x.id)
}

// countTokens handles POST /v1/messages/count_tokens.
func (s anthropicAPI) countTokens(w http.ResponseWriter, r *http.Request) error {
	x := exchangeOf(r)
	w.Header().Set(anthropicIDHeader, x.id)
	req, err := decode(s.service, w, r, anthropic.DecodeCount)
	if err != nil {
		return err
	}
	if err := s.checkModel(req.Model); err != nil {
		return err
	}
	counted := req.AsChat()
	s.fitEffort(w, x, counted)
	noteTools(w, x, counted, req.LeftOut())
	ids, err := s.engine.EncodeChat(conversation(counted), false)
	if err != nil {
		return x.dialect.rename(err, x.id)
	}
	return s.respond(w, http.StatusOK, anthropic.Count{InputTokens: len(ids)})
}

// messageAnswer converts a reply to a message.
type messageAnswer struct {
	limit    int  // maximum tokens of the answer; 0 only computes the prompt and caches it
	omit     bool // whether thinking blocks contain only the signature
	response *anthropic.Response
	turn     turn
}

func (a *messageAnswer) event(prompt int, ev *sparrow.Event) error {
	if a.limit == 0 {
		a.turn.finish = sparrow.FinishLength
		return nil
	}
	return a.turn.event(prompt, ev)
}

// finish returns the complete message.
func (a *messageAnswer) finish(res *result) (any, error) {
	r := a.response
	for i := range a.turn.pieces {
		r.Content = append(r.Content, a.block(&a.turn.pieces[i]))
	}
	u := &res.usage
	r.Usage = anthropic.Usage{InputTokens: u.PromptTokens - u.CachedTokens, CacheReadInputTokens: u.CachedTokens,
		OutputTokens:        min(u.CompletionTokens, a.limit),
		OutputTokensDetails: anthropic.OutputTokensDetails{ThinkingTokens: min(u.ReasoningTokens, a.limit)}}
	reason := a.stopReason()
	r.StopReason = &reason
	if reason == anthropic.StopSequence {
		r.StopSequence = &a.turn.matched
	}
	return r, nil
}

func (a *messageAnswer) stopReason() string {
	switch t := &a.turn; {
	case t.finish == sparrow.FinishLength && a.response.Usage.OutputTokens < a.limit:
		return anthropic.StopContext
	case t.finish == sparrow.FinishLength:
		return anthropic.StopMaxTokens
	case t.finish == sparrow.FinishToolCalls:
		return anthropic.StopToolUse
	case t.matched != "":
		return anthropic.StopSequence
	}
	return anthropic.StopEndTurn
}

// block converts a piece to a block. The input of a call is completed to an object if the reply ended inside it.
func (a *messageAnswer) block(p *piece) anthropic.Block {
	switch p.kind {
	case chat.DeltaReasoning:
		return anthropic.Block{Type: anthropic.BlockThinking, Text: p.text, Omit: a.omit}
	case chat.DeltaToolCall:
		return anthropic.Block{Type: anthropic.BlockToolUse, ID: p.call.ID, Name: p.call.Name,
			Input: json.RawMessage(chat.WholeArguments(p.text))}
	}
	return anthropic.Block{Type: anthropic.BlockText, Text: p.text}
}

// messageStream streams a message.
type messageStream struct {
	*sse
	answer *messageAnswer
	begun  bool
}

func newMessageStream(e *sse, a *messageAnswer) *messageStream {
	s := &messageStream{sse: e, answer: a}
	e.keepAlive = anthropic.AppendPing
	a.turn.watch = s
	return s
}

// start sets the length of the prompt. The number of cached tokens is only known at the end.
func (s *messageStream) start(promptTokens int) { s.answer.response.Usage.InputTokens = promptTokens }

// begin writes the first events. It is called at the first token, so that earlier errors can be sent with an HTTP
// status.
func (s *messageStream) begin() (err error) {
	if s.begun {
		return nil
	}
	s.begun = true
	if s.buf, err = anthropic.AppendStart(s.buf, s.answer.response); err != nil {
		return err
	}
	s.buf = anthropic.AppendPing(s.buf)
	return nil
}

func (s *messageStream) event(prompt int, ev *sparrow.Event) error {
	if err := s.begin(); err != nil {
		return err
	}
	if err := s.answer.event(prompt, ev); err != nil {
		return err
	}
	return s.flush()
}

func (s *messageStream) end(r *result) error {
	if _, err := s.answer.finish(r); err != nil {
		return err
	}
	var err error
	if s.buf, err = anthropic.AppendStop(s.buf, s.answer.response); err != nil {
		return err
	}
	return s.flush()
}

// fail ends the stream with an error event.
func (s *messageStream) fail(e *wire.Error) error {
	s.buf = anthropic.AppendError(s.buf, e)
	return s.flush()
}

func (s *messageStream) began(i int, p *piece) (err error) {
	s.buf, err = anthropic.AppendBlockStart(s.buf, i, s.answer.block(p))
	return err
}

func (s *messageStream) grew(i int, p *piece, text string, _ []openai.TokenLogprob) error {
	if b := s.answer.block(p); !b.Omit {
		s.buf = anthropic.AppendDelta(s.buf, i, b.Type, text)
	}
	return nil
}

func (s *messageStream) ended(i int, p *piece) error {
	s.buf = anthropic.AppendBlockStop(s.buf, i, s.answer.block(p))
	return nil
}
