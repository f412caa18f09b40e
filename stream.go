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

// Stream is the answer to one request as it is generated. One goroutine reads it; Close may be called from any
// goroutine.
type Stream struct {
	engine  *Engine
	job     *engine.Job
	replies []reply     // parsing state of each choice; nil unless the request is a chat
	stop    func() bool // detaches the stream from the caller's context
	ignored []Ignored
	prompt  int // number of prompt tokens
	done    atomic.Bool
	reason  int // number of tokens inside reasoning

	parsed engine.Period // time from the first to the last piece of a tool call
	calls  int
}

// reply is the parsing state of one choice's reply.
type reply struct {
	parser  chat.Parser
	read    int         // bytes of text given to the parser
	control []mark.Span // spans of the reply, from read on, that control tokens wrote
	calls   bool        // reports whether the reply called a tool
	pending int         // number of tokens whose text the parser holds back
}

// Stream starts a request. Cancelling ctx, or Close, ends it and releases its pages.
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

// Ignored returns the keywords of the request's schemas that are not enforced.
func (s *Stream) Ignored() []Ignored { return s.ignored }

// Waited returns how long the request waited for its first step. If it has not run yet, this is the time so far.
func (s *Stream) Waited() time.Duration { return s.job.Waited() }

// Progress returns how many tokens of the prompt have been computed or found in the cache, and how many of these were
// found in the cache. Any goroutine may call it.
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

// textOf returns the bytes of a token; they are empty without a tokenizer, and for ids that pad the vocabulary.
func (s *Stream) textOf(id int32) string {
	if t := s.engine.tok; t != nil && int(id) < t.VocabSize() {
		return t.Text(id)
	}
	return ""
}

// note records the position of a control token in a reply: the end of the text decoded so far.
func (s *Stream) note(got *engine.Event) {
	t := s.engine.tok
	if got.Token < 0 || got.Decoded == 0 || int(got.Token) >= t.VocabSize() || !t.IsAdded(got.Token) {
		return
	}
	r := &s.replies[got.Choice]
	r.control = append(r.control, mark.Span{Start: max(got.Decoded-len(t.Text(got.Token)), 0), End: got.Decoded})
}

// text returns the next piece of a reply with marks on the bytes that no control token wrote.
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

// parse parses a chat's text. Tokens count as reasoning if their text is reasoning.
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

// noteCall records when pieces of tool calls arrived, and the number of calls.
func (s *Stream) noteCall(index int) {
	now := time.Now()
	if s.parsed.From.IsZero() {
		s.parsed.From = now
	}
	s.parsed.To = now
	s.calls = max(s.calls, index+1)
}

// All ranges over the remaining events.
func (s *Stream) All() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			if !yield(ev) {
				return
			}
		}
	}
}

// Close ends the request if it still runs and detaches it from the caller's context. The choices that had not ended
// finish with FinishCancelled, which Next still returns.
func (s *Stream) Close() {
	s.stop()
	if !s.done.Load() {
		s.job.Cancel()
	}
}
