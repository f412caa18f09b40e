package server

import (
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
)

// turn is the reply of a chat as pieces: reasoning, text and each call, in the order of arrival. Interfaces whose
// responses have such pieces convert them to their own.
type turn struct {
	shape chatShape
	watch turnWatcher
	// spoken means that a reply without any piece gets an empty text.
	spoken bool

	pieces  []piece
	finish  sparrow.Finish
	matched string // stop string that ended the reply

	open     bool // whether the last piece may grow
	text     strings.Builder
	logprobs []openai.TokenLogprob // log probabilities of tokens that belong to no piece yet
}

// piece is one part of a reply.
type piece struct {
	kind     chat.DeltaKind
	call     chat.CallDelta // index, id and name of a call
	text     string         // complete reasoning, text, or arguments of a call; set when the piece has ended
	logprobs []openai.TokenLogprob
	cut      bool // whether the reply ended inside the piece because of its length limit
}

// turnWatcher is called with the pieces of a reply as they arrive.
type turnWatcher interface {
	began(i int, p *piece) error
	grew(i int, p *piece, text string, logprobs []openai.TokenLogprob) error
	ended(i int, p *piece) error
}

// unwatched is the watcher for replies that are sent as a whole.
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

// add handles a delta: it begins a piece, or extends the last one.
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

// begin ends the last piece and starts another.
func (t *turn) begin(next piece) error {
	if err := t.end(false); err != nil {
		return err
	}
	t.pieces = append(t.pieces, next)
	t.open = true
	return t.watch.began(len(t.pieces)-1, t.last())
}

// end completes the last piece, if it is open.
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
