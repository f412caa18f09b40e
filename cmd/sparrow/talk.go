package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sparrow"
	"sparrow/chat"
)

// talk is a chat on a terminal that needs nothing but lines: it works wherever text can be read and written.
//
// Ctrl-C stops the answer that is being given; a second one, before anything else is said, leaves. Any other signal
// leaves at once.
type talk struct {
	*asker
	in         io.Reader
	interrupts <-chan os.Signal
	history    []chat.Message
	leaving    bool // a signal other than Ctrl-C came during an answer
}

func newTalk(a *asker, in io.Reader, interrupts <-chan os.Signal) *talk {
	return &talk{asker: a, in: in, interrupts: interrupts}
}

const talkHelp = "/reset forgets the conversation, /exit leaves, Ctrl-C stops an answer"

// run talks until the user leaves or input ends. The program's own reaction to Ctrl-C, ending ctx, is left aside:
// here it has another meaning.
func (t *talk) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if t.engine.Info().ChatFormat == "" {
		return errors.New("run: this checkpoint has no chat format; give a prompt with --raw")
	}
	fmt.Fprintf(t.out, "%s. %s.\n", t.engine.Info().Name, talkHelp)
	lines := t.lines(ctx)
	for stopped := false; ; {
		fmt.Fprint(t.out, "> ")
		select {
		case s := <-t.interrupts:
			fmt.Fprintln(t.out)
			if stopped || s != os.Interrupt {
				return nil
			}
			stopped = true
			fmt.Fprintln(t.out, "(Ctrl-C again leaves)")
		case l := <-lines:
			if l.end {
				fmt.Fprintln(t.out)
				return l.err
			}
			if l.text == "/exit" {
				return nil
			}
			var err error
			if stopped, err = t.line(ctx, l.text); err != nil || t.leaving {
				return err
			}
		}
	}
}

// inputLine is a line, or the end of input.
type inputLine struct {
	text string
	end  bool
	err  error
}

// lines reads input beside the conversation, so that Ctrl-C is noticed while nothing is typed. A read cannot be
// interrupted: the goroutine lives until input ends or the program does.
func (t *talk) lines(ctx context.Context) <-chan inputLine {
	out := make(chan inputLine)
	send := func(l inputLine) bool {
		select {
		case out <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		s := bufio.NewScanner(t.in)
		s.Buffer(nil, 16<<20) // a line may be a pasted document
		for s.Scan() {
			if !send(inputLine{text: strings.TrimSpace(s.Text())}) {
				return
			}
		}
		send(inputLine{end: true, err: s.Err()})
	}()
	return out
}

// line reacts to one line of input; stopped is true when its answer was stopped.
func (t *talk) line(ctx context.Context, text string) (stopped bool, err error) {
	switch {
	case text == "":
		return false, nil
	case text == "/reset":
		t.history = nil
		fmt.Fprintln(t.out, "(forgotten)")
		return false, nil
	case strings.HasPrefix(text, "/"):
		fmt.Fprintf(t.out, "(%q is no command: %s)\n", text, talkHelp)
		return false, nil
	}
	said := append(t.history, chat.Message{Role: chat.User, Content: text})
	reply, err := t.listen(ctx, said)
	switch {
	case err == nil, errors.Is(err, errInterrupted):
		t.history = append(said, reply) // a stopped answer was said, as far as it went
		return err != nil, nil
	case errors.Is(err, sparrow.ErrClosed):
		return false, err
	}
	fmt.Fprintf(t.side, "%v\n(this question is forgotten; /reset starts anew)\n", err)
	return false, nil
}

// listen streams one answer, which an interrupt stops.
func (t *talk) listen(ctx context.Context, said []chat.Message) (chat.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case s := <-t.interrupts:
			t.leaving = s != os.Interrupt
			cancel()
		case <-done:
		}
	}()
	reply, err := t.ask(ctx, t.conversation(said))
	close(done)
	<-stopped
	cancel()
	return reply, err
}
