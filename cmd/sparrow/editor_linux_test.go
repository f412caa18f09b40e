package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sparrow/internal/testkit/await"
)

// pseudoTerminal returns a terminal in memory: text written to keyboard is typed on screen.
func pseudoTerminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this system gives out no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	size := &unix.Winsize{Row: 24, Col: 80}
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	return keyboard, screen
}

func TestLinesAreEditedOnATerminal(t *testing.T) {
	keyboard, screen := pseudoTerminal(t)
	shown := &watcher{}
	go io.Copy(shown, keyboard)
	r := newLineReader(screen, screen)
	if _, ok := r.(*editor); !ok {
		t.Fatalf("a terminal is read by %T", r)
	}
	before, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	const up, left, home = "\x1b[A", "\x1b[D", "\x01"
	for i, c := range []struct {
		name, typed string
		want        []line
		err         error
	}{
		{"plain", "hello\r", []line{{text: "hello"}}, nil},
		{"in the middle", "helo" + left + "l\r", []line{{text: "hello"}}, nil},
		{"at the start", "orld" + home + "w\r", []line{{text: "world"}}, nil},
		{"history", up + up + "!\r", []line{{text: "hello!"}}, nil},
		{"a word deleted", "one two\x17three\r", []line{{text: "one three"}}, nil},
		{"Ctrl-C drops the line", "oops\x03", nil, errCtrlC},
		{"history after Ctrl-C", up + "\r", []line{{text: "one three"}}, nil},
		{"pasted lines", "\x1b[200~a\rb\rc\x1b[201~d\r", []line{{text: "a", pasted: true}, {text: "b", pasted: true},
			{text: "cd"}}, nil},
		{"wide characters", "日本語\x7f\r", []line{{text: "日本"}}, nil},
		{"Ctrl-D", "\x04", nil, io.EOF},
	} {
		go func() {
			// The prompt shows that the terminal is raw: text typed earlier would be echoed by the system.
			for !strings.Contains(shown.String(), fmt.Sprintf("%d> ", i)) {
				time.Sleep(time.Millisecond)
			}
			io.WriteString(keyboard, c.typed)
		}()
		var got []line
		var err error
		for len(got) < max(len(c.want), 1) && err == nil {
			var l line
			if l, err = r.read(fmt.Sprintf("%d> ", i)); err == nil {
				got = append(got, l)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, error %v; want %+v, %v", c.name, got, err, c.want, c.err)
		}
	}
	after, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is left as %+v, error %v; it was %+v", after, err, before)
	}
}

// A signal that arrives while a line is read restores the settings of the terminal.
func TestTheTerminalIsGivenBackWhileALineIsRead(t *testing.T) {
	keyboard, screen := pseudoTerminal(t)
	shown := &watcher{}
	go io.Copy(shown, keyboard)
	k, interrupts := startTalk(t, screen, screen)
	ended := make(chan error, 1)
	before, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- k.run(t.Context()) }()
	await.True(t, "a prompt comes", func() bool { return strings.Contains(shown.String(), "> ") })
	interrupts <- unix.SIGTERM
	mustEnd(t, ended, nil)
	after, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is left as %+v, error %v; it was %+v", after, err, before)
	}
}
