package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// errCtrlC means that Ctrl-C was typed while a line was edited.
var errCtrlC = errors.New("Ctrl-C")

// line is one line of input.
type line struct {
	text   string
	pasted bool // whether another line of the same paste follows
}

// lineReader reads lines that a person types. Only one goroutine may read at a time.
type lineReader interface {
	// read shows a prompt and waits for a line. The error is io.EOF at the end of input, errCtrlC, or a read error.
	read(prompt string) (line, error)
	// close restores the terminal. It may be called while read waits.
	close()
}

// newLineReader edits lines if input and output are a terminal; other input is read line by line.
func newLineReader(in io.Reader, out io.Writer) lineReader {
	input, ok := in.(*os.File)
	if output, isFile := out.(*os.File); ok && isFile && isTerminal(input) && isTerminal(output) {
		return &editor{in: input, out: output, past: &past{}}
	}
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20) // a line may be a pasted document
	return &plainLines{s, out}
}

// plainLines reads plain text lines from any input.
type plainLines struct {
	in  *bufio.Scanner
	out io.Writer
}

func (p *plainLines) read(prompt string) (line, error) {
	fmt.Fprint(p.out, prompt)
	if p.in.Scan() {
		return line{text: p.in.Text()}, nil
	}
	if err := p.in.Err(); err != nil {
		return line{}, err
	}
	return line{}, io.EOF
}

func (p *plainLines) close() {}

// editor edits lines on a terminal: cursor keys, history, and text that is pasted over several lines. The terminal is
// raw only while a line is read, so that Ctrl-C is a signal during an answer.
//
// It uses golang.org/x/term, which depends only on golang.org/x/sys and supports pasted text. Larger libraries add
// completion and search, which a chat does not need.
type editor struct {
	in, out *os.File
	past    *past
	keys    *keys          // source of the typed bytes
	edit    *term.Terminal // recreated after Ctrl-C, because it still contains the typed line

	mu    sync.Mutex
	saved *term.State // settings of the terminal before raw mode; nil if it is not in raw mode
}

func (e *editor) read(prompt string) (line, error) {
	if e.edit == nil {
		e.keys = &keys{Reader: e.in, Writer: e.out}
		e.edit = term.NewTerminal(e.keys, "")
		e.edit.History = e.past
	}
	if err := e.raw(); err != nil {
		return line{}, fmt.Errorf("run: the terminal: %w", err)
	}
	defer e.close()
	if columns, rows, err := term.GetSize(int(e.out.Fd())); err == nil && columns > 0 {
		if err := e.edit.SetSize(columns, rows); err != nil {
			return line{}, err
		}
	}
	e.edit.SetPrompt(prompt)
	e.edit.SetBracketedPasteMode(true)
	defer e.edit.SetBracketedPasteMode(false)
	e.keys.ctrlC = false
	text, err := e.edit.ReadLine()
	switch {
	case errors.Is(err, term.ErrPasteIndicator):
		return line{text: text, pasted: true}, nil
	case errors.Is(err, io.EOF) && e.keys.ctrlC:
		e.edit = nil
		fmt.Fprint(e.out, "^C\r\n")
		return line{}, errCtrlC
	}
	return line{text: text}, err
}

func (e *editor) raw() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	saved, err := term.MakeRaw(int(e.in.Fd()))
	if err == nil {
		e.saved = saved
	}
	return err
}

func (e *editor) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.saved == nil {
		return
	}
	// The error is ignored: usually the terminal was closed.
	_ = term.Restore(int(e.in.Fd()), e.saved)
	e.saved = nil
}

// keys forwards typed bytes and records whether Ctrl-C was typed, because the editor reports Ctrl-C as the end of
// input.
type keys struct {
	io.Reader
	io.Writer
	ctrlC bool
}

func (k *keys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	k.ctrlC = k.ctrlC || bytes.IndexByte(p[:n], 3) >= 0
	return n, err
}

// past is the history of the editor: typed lines, oldest first.
type past struct{ lines []string }

// keptLines is the maximum length of the history.
const keptLines = 500

// Add stores a line unless it equals the previous one.
func (p *past) Add(entry string) {
	if entry == "" || len(p.lines) > 0 && p.lines[len(p.lines)-1] == entry {
		return
	}
	p.lines = append(p.lines, entry)
	if n := len(p.lines) - keptLines; n > 0 {
		p.lines = p.lines[n:]
	}
}

// Len returns the number of lines.
func (p *past) Len() int { return len(p.lines) }

// At returns a line of the history; idx 0 is the latest line.
func (p *past) At(idx int) string { return p.lines[len(p.lines)-1-idx] }
