package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sparrow"
	"sparrow/chat"
)

// errInterrupted means that the user stopped an answer.
var errInterrupted = errors.New("interrupted")

// interrupted replaces the error of a cancelled context by errInterrupted, and keeps the errors that are joined with
// it.
func interrupted(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range list.Unwrap() {
			out = append(out, interrupted(e))
		}
		return errors.Join(out...)
	}
	return errInterrupted
}

// asker sends questions to an engine and prints the answers as they arrive.
type asker struct {
	engine   *sparrow.Engine
	out      io.Writer // writer for the answer
	side     io.Writer // writer for reasoning and messages
	terminal bool      // whether out is a terminal
	trace    bool

	request  sparrow.Request // request without a prompt
	chat     chat.Request    // chat with only the system message, or without messages
	document string          // document that is put before the next question
	last     sparrow.Event   // last event of the latest answer
	assumed  bool            // whether request.MaxTokens is a default, which is lowered for shorter contexts
}

// conversation returns the request for the answer that follows messages.
func (a *asker) conversation(messages []chat.Message) sparrow.Request {
	c := a.chat
	c.Messages = append(append([]chat.Message(nil), a.chat.Messages...), messages...)
	r := a.request
	r.Chat = &c
	return r
}

// withDocument returns a question with the document before it, if there is one.
func (a *asker) withDocument(question string) string {
	if a.document == "" {
		return question
	}
	return "Text:\n" + a.document + "\n\nQuestion: " + question
}

// ask streams one answer and returns its text, also the incomplete text if an error occurs.
func (a *asker) ask(ctx context.Context, r sparrow.Request) (chat.Message, error) {
	reading := a.watchPrefill(r)
	s, err := a.engine.Stream(ctx, r)
	if bad := (*sparrow.RequestError)(nil); a.assumed && errors.As(err, &bad) && bad.Field == "max_tokens" &&
		errors.Is(err, sparrow.ErrContext) {
		r.MaxTokens = 0
		s, err = a.engine.Stream(ctx, r)
	}
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		return chat.Message{}, err
	}
	p := &printer{out: a.out, reasoning: a.out, dim: a.terminal}
	if !a.terminal {
		// Standard output gets only the answer if it is a pipe. Reasoning is printed to standard error.
		p.reasoning, p.dim = a.side, isTerminal(a.side)
	}
	reading.start()
	defer reading.stop()
	var said chat.Collector
	var last sparrow.Event
	for ev := range s.All() {
		reading.stop()
		said.Add(ev.Deltas...)
		if r.Chat == nil {
			p.content(ev.Text)
		}
		for _, d := range ev.Deltas {
			p.delta(d)
		}
		if ev.Finish != "" {
			last = ev
		}
	}
	p.end()
	return said.Message(), errors.Join(p.err, a.conclude(last))
}

// conclude prints the reason why an answer ended.
func (a *asker) conclude(last sparrow.Event) error {
	a.last = last
	if a.trace && last.TraceLog != nil {
		printTrace(a.side, last, a.request.Sampling.Seed)
	}
	switch last.Finish {
	case sparrow.FinishError:
		return last.Err
	case sparrow.FinishCancelled:
		return errInterrupted
	case sparrow.FinishLength:
		fmt.Fprintf(a.side, "(cut off: %s)\n", a.limit(last.Usage))
	}
	return nil
}

// limit returns which limit ended an answer: the token limit or the context length.
func (a *asker) limit(u *sparrow.Usage) string {
	switch most := a.request.MaxTokens; {
	case most == 0 || u == nil || u.CompletionTokens < most:
		return "the context is full"
	case a.assumed:
		return fmt.Sprintf("%d tokens, the default limit; --max-tokens N sets another limit, --max-tokens 0 only "+
			"that of the context", most)
	default:
		return fmt.Sprintf("--max-tokens %d", most)
	}
}

// printer writes the pieces of an answer, and keeps reasoning separate from content.
type printer struct {
	out, reasoning io.Writer
	dim            bool // whether reasoning is written to a terminal
	thinking       bool // whether the latest piece was reasoning
	open           bool // whether the line of the answer is incomplete
	err            error
}

// The terminal codes for dim text and normal text.
const (
	dimOn  = "\x1b[2m"
	dimOff = "\x1b[0m"
)

func (p *printer) delta(d chat.Delta) {
	switch d.Kind {
	case chat.DeltaReasoning:
		if !p.thinking && p.dim {
			p.write(p.reasoning, dimOn)
		}
		p.thinking = true
		p.write(p.reasoning, d.Text)
	case chat.DeltaContent:
		p.content(d.Text)
	case chat.DeltaToolCall:
		if d.Call.Name != "" {
			p.content("call " + d.Call.Name + " ")
		}
		p.content(d.Call.Arguments)
	}
}

func (p *printer) content(text string) {
	p.thought()
	if text == "" {
		return
	}
	p.open = !strings.HasSuffix(text, "\n")
	p.write(p.out, text)
}

// thought ends a block of reasoning with an empty line.
func (p *printer) thought() {
	if !p.thinking {
		return
	}
	p.thinking = false
	if p.dim {
		p.write(p.reasoning, dimOff)
	}
	p.write(p.reasoning, "\n")
}

// end completes the last line of the answer.
func (p *printer) end() {
	p.thought()
	if p.open {
		p.write(p.out, "\n")
	}
}

func (p *printer) write(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil && p.err == nil {
		p.err = fmt.Errorf("write the answer: %w", err)
	}
}
