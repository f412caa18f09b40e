package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"sparrow"
	"sparrow/chat"
)

// talk is a chat on a terminal.
//
// Ctrl-C stops the current answer; a second Ctrl-C before any other input ends the program. Any other signal ends it
// immediately.
type talk struct {
	*asker
	in         lineReader
	interrupts <-chan os.Signal
	history    []chat.Message
	draft      draft
	pending    <-chan reading // result of a read that has not returned
	leaving    bool           // whether a signal other than Ctrl-C arrived during an answer
}

func newTalk(a *asker, in io.Reader, interrupts <-chan os.Signal) *talk {
	return &talk{asker: a, in: newLineReader(in, a.out), interrupts: interrupts}
}

const talkHelp = "/help lists the commands, /exit ends the chat, Ctrl-C stops an answer"

// talkCommands lists the commands and their descriptions, in the order of /help.
var talkCommands = [][2]string{
	{"/help", "lists the commands"},
	{"/system TEXT", "sets the system message; without a text shows it, and - removes it"},
	{"/file PATH", "puts a document before the next question"},
	{"/plan", "shows how the last answer was computed: plans with reasons, prefix match, times"},
	{"/reset", "clears the conversation but keeps the system message"},
	{"/exit", "ends the chat, as do /quit, /bye and Ctrl-D"},
}

const talkKeys = `a line that ends with \ continues on the next; """ begins and ends several lines
up and down: earlier lines; Ctrl-A and Ctrl-E: start and end of the line
Ctrl-W, Ctrl-U and Ctrl-K: delete a word, all before the cursor, all after it
Ctrl-C: discards the line or stops an answer; typed twice it ends the chat
`

// run runs the chat until the user leaves or input ends. Ctrl-C stops only the current answer; it does not end ctx.
func (t *talk) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer t.in.close()
	if t.engine.Info().ChatFormat == "" {
		return errors.New("run: this checkpoint has no chat format; give a prompt with --raw")
	}
	fmt.Fprintf(t.out, "%s. %s.\n", t.engine.Info().Name, talkHelp)
	for stopped := false; ; {
		select {
		case s := <-t.interrupts:
			fmt.Fprintln(t.out)
			switch {
			case s != os.Interrupt:
				return nil
			case stopped:
				return errInterrupted
			}
			stopped = t.interrupt()
			fmt.Fprint(t.out, t.prompt())
		case r := <-t.next():
			t.pending = nil
			switch {
			case errors.Is(r.err, errCtrlC) && stopped:
				return errInterrupted
			case errors.Is(r.err, errCtrlC):
				stopped = t.interrupt()
				continue
			case errors.Is(r.err, io.EOF):
				fmt.Fprintln(t.out)
				return nil
			case r.err != nil:
				return r.err
			}
			text, command, whole := t.draft.add(r.line)
			if !whole {
				continue
			}
			if command && (text == "/exit" || text == "/quit" || text == "/bye") {
				return nil
			}
			var err error
			if stopped, err = t.message(ctx, text, command); err != nil || t.leaving {
				return err
			}
		}
	}
}

// interrupt drops the message that is being typed. It returns true if no message was being typed; then the next Ctrl-C
// ends the program.
func (t *talk) interrupt() bool {
	typed := t.draft.open()
	t.draft = draft{}
	if !typed {
		fmt.Fprintln(t.out, "(press Ctrl-C again to end the chat)")
	}
	return !typed
}

func (t *talk) prompt() string {
	if t.draft.open() {
		return ". "
	}
	return "> "
}

// reading is the result of a read.
type reading struct {
	line line
	err  error
}

// next starts a read in a goroutine, because signals must be handled while it waits. A read cannot be interrupted: it
// ends with a line, with the end of input, or with the program.
func (t *talk) next() <-chan reading {
	if t.pending == nil {
		out := make(chan reading, 1)
		prompt := t.prompt()
		go func() {
			l, err := t.in.read(prompt)
			out <- reading{l, err}
		}()
		t.pending = out
	}
	return t.pending
}

// message runs a command or sends a message to the model; stopped is true if the user stopped the answer.
func (t *talk) message(ctx context.Context, text string, command bool) (stopped bool, err error) {
	if text == "" {
		return false, nil
	}
	if command {
		name, argument, _ := strings.Cut(text, " ")
		t.command(name, strings.TrimSpace(argument))
		return false, nil
	}
	said := append(t.history, chat.Message{Role: chat.User, Content: t.withDocument(text)})
	reply, err := t.listen(ctx, said)
	switch {
	case err == nil, errors.Is(err, errInterrupted):
		t.history = append(said, reply) // keep the printed part of a stopped answer in the chat
		t.document = ""
		return err != nil, nil
	case errors.Is(err, sparrow.ErrClosed):
		return false, err
	}
	fmt.Fprintf(t.side, "%v\n(this question was dropped from the chat; /reset starts a new one)\n", err)
	return false, nil
}

// command runs a line that begins with a slash.
func (t *talk) command(name, argument string) {
	switch name {
	case "/help":
		for _, c := range talkCommands {
			fmt.Fprintf(t.out, "%-14s %s\n", c[0], c[1])
		}
		fmt.Fprint(t.out, talkKeys)
	case "/reset", "/clear":
		t.history, t.document = nil, ""
		fmt.Fprintln(t.out, "(forgotten)")
	case "/system":
		t.setSystem(argument)
	case "/file":
		if argument == "" {
			fmt.Fprintln(t.out, "(/file needs the path of a text file)")
			return
		}
		text, err := readDocument(argument)
		if err != nil {
			fmt.Fprintf(t.out, "(/file: %v)\n", err)
			return
		}
		t.document = text
		fmt.Fprintf(t.out, "(%d characters are put before your next question)\n", utf8.RuneCountInString(text))
	case "/plan":
		if t.last.TraceLog == nil {
			fmt.Fprintln(t.out, "(there is no answer yet)")
			return
		}
		printTrace(t.out, t.last, t.request.Sampling.Seed)
	default:
		var names []string
		for _, c := range talkCommands {
			names = append(names, strings.Fields(c[0])[0])
		}
		fmt.Fprintf(t.out, "(%q is not a command%s: %s)\n", name, suggestion(name, names), talkHelp)
	}
}

func (t *talk) setSystem(text string) {
	switch {
	case text == "" && len(t.chat.Messages) == 0:
		fmt.Fprintln(t.out, "(there is no system message)")
	case text == "":
		fmt.Fprintln(t.out, t.chat.Messages[0].Content)
	case text == "-":
		t.chat.Messages = nil
		fmt.Fprintln(t.out, "(the system message is removed)")
	default:
		t.chat.Messages = []chat.Message{{Role: chat.System, Content: text}}
		fmt.Fprintln(t.out, "(the system message is set)")
	}
}

// listen streams one answer until it ends or the user interrupts it.
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
