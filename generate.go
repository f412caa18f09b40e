package sparrow

import (
	"context"
	"errors"

	"sparrow/chat"
	"sparrow/record"
)

// Response is the complete answer to a request: one Answer for each choice.
type Response struct {
	Choices []Answer
	Usage   Usage
	Trace   *Trace
}

// Answer is one complete choice.
type Answer struct {
	Text    string
	Message chat.Message // parsed reply; set for chats
	Tokens  []Token
	Scored  []Token // scored tokens of the prompt
	// Recorded holds the recorded rows, if requested.
	Recorded *record.Rows
	Finish   Finish
	Matched  string
}

// Generate runs a request to its end. If any choice fails, the request fails. If ctx ends first, the error is the cause
// of ctx.
func (e *Engine) Generate(ctx context.Context, r Request) (*Response, error) {
	s, err := e.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.whole(ctx)
}

// whole reads all events of a stream and returns the response.
func (s *Stream) whole(ctx context.Context) (*Response, error) {
	var err error
	out := &Response{Choices: make([]Answer, s.job.Choices())}
	messages := make([]chat.Collector, s.job.Choices())
	cancelled := false
	for ev := range s.All() {
		a := &out.Choices[ev.Choice]
		a.Text += ev.Text
		a.Tokens = append(a.Tokens, ev.Tokens...)
		a.Scored = append(a.Scored, ev.Scored...)
		a.Recorded = a.Recorded.With(ev.Recorded)
		messages[ev.Choice].Add(ev.Deltas...)
		if ev.Finish != "" {
			a.Finish, a.Matched = ev.Finish, ev.Matched
		}
		cancelled = cancelled || ev.Finish == FinishCancelled
		if ev.Err != nil {
			err = errors.Join(err, ev.Err)
		}
		if ev.Usage != nil {
			out.Usage, out.Trace = *ev.Usage, ev.TraceLog
		}
	}
	if cancelled {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if s.replies != nil {
		for i := range out.Choices {
			out.Choices[i].Message = messages[i].Message()
		}
	}
	return out, nil
}
