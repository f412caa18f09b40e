package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// No bar is shown for work that takes less than progressAfter. A bar is drawn at most once per progressEvery.
const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

// progress draws the state of long work on one line of a terminal. On other outputs it draws nothing. Only one
// goroutine may use it.
type progress struct {
	w       io.Writer
	label   string
	columns int // width of the terminal in columns; 0 if w is not a terminal
	now     func() time.Time
	started time.Time
	drawn   time.Time // time of the latest drawing; zero before the first
}

// newProgress returns a progress whose time starts now. The writer is usually standard error, so that output can be
// piped.
func newProgress(w io.Writer, label string) *progress {
	p := &progress{w: w, label: label, now: time.Now}
	p.columns, _ = columnsOf(w)
	p.started = p.now()
	return p
}

// columnsOf returns the width of a terminal; ok is false if v is not a terminal.
func columnsOf(v any) (columns int, ok bool) {
	f, isFile := v.(*os.File)
	if !isFile {
		return 0, false
	}
	columns, ok = terminalWidth(f.Fd())
	if ok && columns == 0 {
		columns = 80 // default for a terminal that does not report its size
	}
	return columns, ok
}

// isTerminal reports whether v is a terminal.
func isTerminal(v any) bool {
	_, ok := columnsOf(v)
	return ok
}

// set draws the share done/total, followed by a note.
func (p *progress) set(done, total int64, note string) {
	if p.columns == 0 || total <= 0 {
		return
	}
	now := p.now()
	if now.Sub(p.started) < progressAfter || !p.drawn.IsZero() && now.Sub(p.drawn) < progressEvery {
		return
	}
	p.drawn = now
	fmt.Fprint(p.w, "\r\x1b[K"+p.line(done, total, now.Sub(p.started), note))
}

// line returns the text of the bar. The line fits the terminal: if necessary the bar is shortened, then the note is
// omitted, then the line is cut.
func (p *progress) line(done, total int64, took time.Duration, note string) string {
	const mostCells, leastCells = 24, 8
	text := fmt.Sprintf(" %3d %%", 100*done/total)
	left := ""
	if rest := time.Duration(float64(took) * float64(total-done) / float64(max(done, 1))); done > 0 &&
		rest >= time.Second {
		left = "  " + remaining(rest)
	}
	if note != "" {
		note = "  " + note
	}
	columns := p.columns - 1 - len(p.label+" []"+text+left)
	if columns < leastCells+len(note) {
		note = ""
	}
	cells := min(max(columns-len(note), leastCells), mostCells)
	full := int(int64(cells) * done / total)
	s := p.label + " [" + strings.Repeat("#", full) + strings.Repeat(".", cells-full) + "]" + text + note + left
	return s[:min(len(s), p.columns-1)]
}

// remaining returns d as text: in seconds below ten minutes, otherwise in minutes.
func remaining(d time.Duration) string {
	if d < 10*time.Minute {
		return d.Round(time.Second).String() + " left"
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s") + " left"
}

// end removes the bar.
func (p *progress) end() {
	if !p.drawn.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
