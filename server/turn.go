package server

import (
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
)

// turn is the reply of a chat as a list of pieces: reasoning, text and calls. Anthropic's messages and OpenAI's
// responses are converted from it.
type turn struct {
	shape chatShape
	watch turnWatcher
	// spoken makes a reply without any piece contain an empty text.
	spoken bool

	pieces  []piece
	finish  sparrow.Finish
	matched string // stop string that ended the reply

	open     bool // whether the last piece is incomplete
	text     strings.Builder
	logprobs []openai.TokenLogprob // log probabilities of tokens that belong to no piece yet
}

// piece is a part of a reply: reasoning, text, or a call.
type piece struct {
	kind     chat.DeltaKind
	call     chat.CallDelta // index, id and name of a call
	text     string         // complete reasoning, text, or arguments of a call; set at the end of the piece
	logprobs []openai.TokenLogprob
	cut      bool // whether the reply reached its token limit inside the piece
}

// turnWatcher is notified of the pieces of a reply.
type turnWatcher interface {
	began(i int, p *piece) error
	grew(i int, p *piece, text string, logprobs []openai.TokenLogprob) error
	ended(i int, p *piece) error
}

// unwatched ignores all notifications, for replies that are sent as a whole.
type unwatched struct{}

func (unwatched) began(int, *piece) error                               { return nil }
func (unwatched) grew(int, *piece, string, []openai.TokenLogprob) error { return nil }
func (unwatched) ended(int, *piece) error                               { return nil }

func (t *turn) event(_ int, ev *sparrow.Event) error {
	t.logprobs = t.shape.tokens(t.logprobs, ev)
	for _, d := range t.shape.deltas(ev) {
		if err := t.add(&d); err != nil {
			return err
		}
	}
	if ev.Finish == "" {
		return nil
	}
	t.finish, t.matched = ev.Finish, ev.Matched
	if len(t.pieces) == 0 && t.spoken {
		if err := t.begin(piece{kind: chat.DeltaContent}); err != nil {
			return err
		}
	}
	return t.end(ev.Finish == sparrow.FinishLength)
}

// add adds a delta to the last piece, or begins a new one.
func (t *turn) add(d *chat.Delta) error {
	text := d.Text
	if d.Kind == chat.DeltaToolCall {
		text = d.Call.Arguments
	}
	if !t.open || t.last().kind != d.Kind || d.Kind == chat.DeltaToolCall && t.last().call.Index != d.Call.Index {
		if err := t.begin(piece{kind: d.Kind, call: d.Call}); err != nil {
			return err
		}
	}
	var logprobs []openai.TokenLogprob
	if d.Kind == chat.DeltaContent {
		logprobs = t.logprobs
		t.last().logprobs = append(t.last().logprobs, logprobs...)
	}
	t.logprobs = nil
	if text == "" {
		return nil
	}
	t.text.WriteString(text)
	return t.watch.grew(len(t.pieces)-1, t.last(), text, logprobs)
}

func (t *turn) last() *piece { return &t.pieces[len(t.pieces)-1] }

// begin ends the last piece and begins another.
func (t *turn) begin(next piece) error {
	if err := t.end(false); err != nil {
		return err
	}
	t.pieces = append(t.pieces, next)
	t.open = true
	return t.watch.began(len(t.pieces)-1, t.last())
}

// end completes the last piece if it is incomplete.
func (t *turn) end(cut bool) error {
	if !t.open {
		return nil
	}
	t.open = false
	p := t.last()
	p.text, p.cut = t.text.String(), cut
	t.text = strings.Builder{}
	return t.watch.ended(len(t.pieces)-1, p)
}
