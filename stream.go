package sparrow

import (
	"context"
	"iter"
	"sync/atomic"

	"sparrow/chat"
	"sparrow/engine"
)

// Stream is the answer to one request as it is generated. One goroutine reads it; Close may be called from any.
type Stream struct {
	engine  *Engine
	job     *engine.Job
	replies []reply     // one for each choice of a chat
	stop    func() bool // detaches the caller's context
	done    atomic.Bool
	reason  int // tokens inside reasoning
}

// reply is how far the reply of one choice was read.
type reply struct {
	parser  chat.Parser
	calls   bool // it called a tool
	pending int  // tokens whose text the parser holds back
}

// Stream starts a request. Cancelling ctx, or Close, ends it and gives its pages back.
func (e *Engine) Stream(ctx context.Context, r Request) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	j, err := e.submit(&r)
	if err != nil {
		return nil, err
	}
	s := &Stream{engine: e, job: j}
	if r.Chat != nil {
		for range j.Choices() {
			s.replies = append(s.replies, reply{parser: e.format.Parser(*r.Chat)})
		}
	}
	s.stop = context.AfterFunc(ctx, j.Cancel)
	return s, nil
}

// Next waits for the next event; false after the last one.
func (s *Stream) Next() (Event, bool) {
	if s.done.Load() {
		return Event{}, false
	}
	got := s.job.Next()
	ev := Event{Choice: got.Choice, Text: got.Text, Finish: got.Finish, Matched: got.Matched, Err: got.Err}
	if got.Token >= 0 {
		ev.Tokens = []Token{{ID: got.Token, Logprob: got.Logprob, Top: got.Top}}
		if t := s.engine.tok; t != nil && int(got.Token) < t.VocabSize() {
			ev.Tokens[0].Text = t.Text(got.Token)
		}
	}
	if s.replies != nil {
		s.parse(&ev)
	}
	if got.Last {
		s.done.Store(true)
		s.stop()
		u := s.job.Usage()
		u.ReasoningTokens = s.reason
		ev.Usage, ev.TraceLog = &u, s.job.Trace()
	}
	return ev, true
}

// parse reads a chat's text. Tokens count as reasoning when the text they lead to is.
func (s *Stream) parse(ev *Event) {
	r := &s.replies[ev.Choice]
	if ev.Text != "" {
		ev.Deltas = r.parser.Feed(ev.Text)
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

// All ranges over the events that are left.
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
