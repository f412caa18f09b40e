package sparrow

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"sparrow/chat"
	"sparrow/engine"
	"sparrow/internal/mark"
)

// Stream returns the events of one request. Only one goroutine may read it; Close is safe for concurrent use.
type Stream struct {
	engine  *Engine
	job     *engine.Job
	replies []reply     // [choices] parsing state; nil unless the request is a chat
	stop    func() bool // stops watching the caller's context
	ignored []Ignored
	prompt  int // number of prompt tokens
	done    atomic.Bool
	reason  int // number of reasoning tokens

	parsed engine.Period // time from the first to the last piece of tool calls
	calls  int
}

// reply is the parsing state of one choice.
type reply struct {
	parser  chat.Parser
	read    int         // bytes of text that the parser has got
	control []mark.Span // spans of the reply after read that come from control tokens
	calls   bool        // whether the reply contains a tool call
	pending int         // number of tokens whose text the parser holds back
}

// Stream starts a request. If ctx ends, or after Close, the request is cancelled and its pages are released.
func (e *Engine) Stream(ctx context.Context, r Request) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, reasoning, err := e.prepare(ctx, &r)
	if err != nil {
		return nil, err
	}
	j, err := e.submit(in)
	if err != nil {
		if in.Guide.Release != nil {
			in.Guide.Release()
		}
		return nil, err
	}
	s := &Stream{engine: e, job: j, ignored: ignoredBy(&in.Guide), prompt: len(in.Prompt)}
	if r.Chat != nil {
		c := e.conversation(r.Chat)
		c.Begun = &reasoning
		for range j.Choices() {
			s.replies = append(s.replies, reply{parser: e.format.Parser(c)})
		}
	}
	s.stop = context.AfterFunc(ctx, j.Cancel)
	return s, nil
}

// submit passes a request to the core of the engine.
func (e *Engine) submit(in engine.Request) (*engine.Job, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	j, err := c.Submit(in)
	if errors.Is(err, ErrClosed) && e.Stats().Asleep {
		err = ErrAsleep
	}
	return j, err
}

// Ignored returns the schema keywords of the request that are not enforced.
func (s *Stream) Ignored() []Ignored { return s.ignored }

// Waited returns the time that the request has waited for its first step so far.
func (s *Stream) Waited() time.Duration { return s.job.Waited() }

// Progress returns the number of prompt tokens that were computed or found in the cache so far, and of those found in
// the cache. It is safe for concurrent use.
func (s *Stream) Progress() (computed, cached int) { return s.job.Progress() }

// PromptTokens returns the length of the prompt.
func (s *Stream) PromptTokens() int { return s.prompt }

// Next waits for the next event; it returns false after the last one.
func (s *Stream) Next() (Event, bool) {
	if s.done.Load() {
		return Event{}, false
	}
	got := s.job.Next()
	ev := Event{Choice: got.Choice, Text: got.Text, Finish: got.Finish, Matched: got.Matched, Err: got.Err,
		Recorded: got.Recorded}
	if got.Token >= 0 {
		ev.Tokens = []Token{{ID: got.Token, Text: s.textOf(got.Token), Logprob: got.Logprob, Top: got.Top}}
	}
	for i := range got.Scores {
		t := &got.Scores[i]
		ev.Scored = append(ev.Scored,
			Token{ID: t.Token, Rank: t.Rank, Text: s.textOf(t.Token), Logprob: t.Logprob, Top: t.Top})
	}
	if s.replies != nil {
		s.note(&got)
		s.parse(&ev)
	}
	if got.Last {
		s.done.Store(true)
		s.stop()
		u := s.job.Usage()
		u.ReasoningTokens = s.reason
		ev.Usage, ev.TraceLog = &u, s.job.Trace()
		if t := ev.TraceLog; t != nil {
			t.Parsed, t.Calls = s.parsed, s.calls
		}
	}
	return ev, true
}

// textOf returns the bytes of a token, or "" without a tokenizer or for ids that pad the vocabulary.
func (s *Stream) textOf(id int32) string {
	if t := s.engine.tok; t != nil && int(id) < t.VocabSize() {
		return t.Text(id)
	}
	return ""
}

// note records the position of a control token in a reply, which is the end of the text so far.
func (s *Stream) note(got *engine.Event) {
	t := s.engine.tok
	if got.Token < 0 || got.Decoded == 0 || int(got.Token) >= t.VocabSize() || !t.IsAdded(got.Token) {
		return
	}
	r := &s.replies[got.Choice]
	r.control = append(r.control, mark.Span{Start: max(got.Decoded-len(t.Text(got.Token)), 0), End: got.Decoded})
}

// text returns the next piece of a reply, in which all bytes are marked except those from control tokens.
func (r *reply) text(piece string) mark.Text {
	if len(r.control) == 0 {
		r.read += len(piece)
		return mark.Marked(piece)
	}
	var b mark.Builder
	at := 0
	for _, m := range mark.Within(r.control, r.read, r.read+len(piece)) {
		b.Mark(piece[at:m.Start])
		b.WriteString(piece[m.Start:m.End])
		at = m.End
	}
	b.Mark(piece[at:])
	r.read += len(piece)
	for len(r.control) > 0 && r.control[0].End <= r.read {
		r.control = r.control[1:]
	}
	return b.Text()
}

// parse parses a chat's text. It counts the tokens of reasoning.
func (s *Stream) parse(ev *Event) {
	r := &s.replies[ev.Choice]
	if ev.Text != "" {
		ev.Deltas = r.parser.Feed(r.text(ev.Text))
	}
	if ev.Finish != "" {
		rest, err := r.parser.Close()
		ev.Deltas = append(ev.Deltas, rest...)
		if err != nil && ev.Finish == FinishStop {
			s.engine.cfg.Log.Info("the reply's tool calls are incomplete", "id", s.job.ID(), "error", err)
		}
	}
	r.pending += len(ev.Tokens)
	reasoning := false
	for i := range ev.Deltas {
		switch ev.Deltas[i].Kind {
		case chat.DeltaToolCall:
			r.calls = true
			s.noteCall(ev.Deltas[i].Call.Index)
		case chat.DeltaReasoning:
			reasoning = true
		}
	}
	if reasoning {
		s.reason += r.pending
	}
	if len(ev.Deltas) > 0 {
		r.pending = 0
	}
	if ev.Finish == FinishStop && r.calls {
		ev.Finish = FinishToolCalls
	}
}

// noteCall records the time of a piece of a tool call, and the number of calls.
func (s *Stream) noteCall(index int) {
	now := time.Now()
	if s.parsed.From.IsZero() {
		s.parsed.From = now
	}
	s.parsed.To = now
	s.calls = max(s.calls, index+1)
}

// All yields the remaining events.
func (s *Stream) All() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			if !yield(ev) {
				return
			}
		}
	}
}

// Close cancels the request if it still runs. Choices that have not ended then end with FinishCancelled; Next still
// returns these events.
func (s *Stream) Close() {
	s.stop()
	if !s.done.Load() {
		s.job.Cancel()
	}
}
