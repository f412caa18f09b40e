package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sparrow"
	"sparrow/api/ollama"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/wire"
)

// ollamaPrefix is the prefix of the paths of Ollama's API.
const ollamaPrefix = "/api/"

// ollamaAPI implements Ollama's endpoints.
type ollamaAPI struct{ *service }

// chat handles POST /api/chat.
func (s ollamaAPI) chat(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, ollama.DecodeChat)
	if err != nil {
		return err
	}
	return s.answer(w, r, req, len(req.Messages) == 0, false)
}

// complete handles POST /api/generate.
func (s ollamaAPI) complete(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, ollama.DecodeGenerate)
	if err != nil {
		return err
	}
	return s.answer(w, r, req, req.Prompt == "", true)
}

// answer handles /api/chat and /api/generate. load is true for a request without a prompt, by which clients load a
// model; here the model is always loaded.
func (s ollamaAPI) answer(w http.ResponseWriter, r *http.Request, req *ollama.Request, load, generated bool) error {
	x := exchangeOf(r)
	to := &ollamaReply{service: s.service, x: x, raw: generated && req.Raw,
		next: ollama.Chunk{Model: req.Model, Generated: generated}}
	to.turn.watch = to
	var ask sparrow.Request
	if to.raw {
		completion := req.AsCompletion()
		if err := s.admit(&completion.Options); err != nil {
			return err
		}
		ask = completionRequests(completion, func(int) origin { return s.origin(x, x.id) })[0]
	} else {
		c := req.AsChat()
		if err := s.admit(&c.Options); err != nil {
			return err
		}
		s.fitEffort(w, x, c)
		noteTools(w, x, c, openai.LeftOut(c.Tools))
		ask = chatRequest(c, s.origin(x, x.id))
	}
	if load {
		to.next.CreatedAt, to.next.Done = s.now(), &ollama.Done{Reason: ollama.DoneLoad}
		return s.respond(w, http.StatusOK, &to.next)
	}
	var err error
	if req.Streams() {
		err = s.stream(w, r, []sparrow.Request{ask}, func(e *sse) sink { return newOllamaStream(e, to) })
	} else {
		err = s.collect(w, r, []sparrow.Request{ask}, to, to.finish)
	}
	return x.dialect.rename(err, x.id)
}

// ollamaReply collects a reply. Calls are sent when they are complete.
type ollamaReply struct {
	service *service
	x       *exchange
	raw     bool // whether the reply is that of a text completion
	turn    turn
	next    ollama.Chunk // part of the reply that was not sent yet
}

func (a *ollamaReply) event(prompt int, ev *sparrow.Event) error {
	if a.raw && ev.Text != "" {
		said := *ev
		said.Deltas = []chat.Delta{{Kind: chat.DeltaContent, Text: ev.Text}}
		ev = &said
	}
	return a.turn.event(prompt, ev)
}

func (a *ollamaReply) began(int, *piece) error { return nil }

func (a *ollamaReply) grew(_ int, p *piece, text string, _ []openai.TokenLogprob) error {
	switch p.kind {
	case chat.DeltaReasoning:
		a.next.Thinking += text
	case chat.DeltaContent:
		a.next.Content += text
	}
	return nil
}

func (a *ollamaReply) ended(_ int, p *piece) error {
	if p.kind == chat.DeltaToolCall {
		a.next.Calls = append(a.next.Calls, ollama.Call{ID: p.call.ID, Name: p.call.Name,
			Arguments: json.RawMessage(chat.WholeArguments(p.text))})
	}
	return nil
}

// finish returns the last chunk.
func (a *ollamaReply) finish(res *result) (any, error) {
	total := time.Since(a.x.arrived)
	first := min(a.x.firstToken, total)
	a.next.CreatedAt = a.service.now()
	a.next.Done = &ollama.Done{Reason: ollama.DoneStop, Total: total, PromptTokens: res.usage.PromptTokens,
		PromptTime: first, GeneratedTokens: res.usage.CompletionTokens, GeneratedTime: total - first}
	if a.turn.finish == sparrow.FinishLength {
		a.next.Done.Reason = ollama.DoneLength
	}
	return &a.next, nil
}

// ollamaStream streams a reply as lines of JSON.
type ollamaStream struct {
	*sse
	reply *ollamaReply
}

func newOllamaStream(e *sse, a *ollamaReply) *ollamaStream {
	s := &ollamaStream{e, a}
	e.mediaType = "application/x-ndjson"
	// Lines of JSON have no comments, so an empty chunk is sent to keep the connection open.
	e.keepAlive = func(dst []byte) []byte {
		line, err := wire.Marshal(&ollama.Chunk{Model: a.next.Model, Generated: a.next.Generated,
			CreatedAt: a.service.now()})
		if err != nil {
			return dst // encoding a chunk without calls cannot fail
		}
		return append(append(dst, line...), '\n')
	}
	return s
}

// write appends the pending part of the reply as a line.
func (s *ollamaStream) write() error {
	next := &s.reply.next
	next.CreatedAt = s.reply.service.now()
	line, err := wire.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	s.buf = append(append(s.buf, line...), '\n')
	next.Content, next.Thinking, next.Calls = "", "", nil
	return nil
}

func (s *ollamaStream) event(prompt int, ev *sparrow.Event) error {
	if err := s.reply.event(prompt, ev); err != nil {
		return err
	}
	if n := &s.reply.next; n.Content == "" && n.Thinking == "" && len(n.Calls) == 0 {
		return nil
	}
	if err := s.write(); err != nil {
		return err
	}
	return s.flush()
}

func (s *ollamaStream) end(r *result) error {
	if _, err := s.reply.finish(r); err != nil {
		return err
	}
	if err := s.write(); err != nil {
		return err
	}
	return s.flush()
}

// fail ends the stream with a line that contains the error.
func (s *ollamaStream) fail(e *wire.Error) error {
	line, err := wire.Marshal(ollama.NewErrorBody(e))
	if err != nil {
		return err
	}
	s.buf = append(append(s.buf, line...), '\n')
	return s.flush()
}
