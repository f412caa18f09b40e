package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// answerTime is the maximum time for one command to the browser, and for the page to show something. It is generous,
// because a prompt of 4,000 tokens takes two seconds on two idle processors, and more on busy ones.
const answerTime = 2 * time.Minute

// browser is a running Chromium. Commands go through a pipe; each is a JSON object followed by a zero byte.
type browser struct {
	cmd *exec.Cmd
	to  io.WriteCloser

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	tabs    map[string]*tab
	gone    chan struct{} // closed when the browser has ended
}

type reply struct {
	result json.RawMessage
	err    error
}

// message is data from the browser: the result of a command, or an event of a tab.
type message struct {
	ID        int
	SessionID string `json:"sessionId"`
	Method    string
	Params    json.RawMessage
	Result    json.RawMessage
	Error     *struct{ Message string }
}

// startBrowser starts Chromium with an empty profile and with all connections to other hosts disabled.
func startBrowser(t *testing.T, program string) *browser {
	t.Helper()
	fromUs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{to: to, waiting: map[int]chan reply{}, tabs: map[string]*tab{}, gone: make(chan struct{})}
	b.cmd = exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(),
		"about:blank")
	b.cmd.ExtraFiles = []*os.File{fromUs, toUs} // file descriptor 3 is for commands, 4 for answers
	b.cmd.WaitDelay = time.Second
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fromUs.Close()
	toUs.Close()
	go b.read(from)
	t.Cleanup(func() {
		b.call("", "Browser.close", nil, nil)
		b.to.Close()
		ended := make(chan error, 1)
		go func() { ended <- b.cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			b.cmd.Process.Kill()
			<-ended
		}
	})
	return b
}

// read delivers messages from the browser until it ends.
func (b *browser) read(from io.ReadCloser) {
	defer close(b.gone)
	defer from.Close()
	for r := bufio.NewReader(from); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		wait, tab := b.waiting[m.ID], b.tabs[m.SessionID]
		if m.ID != 0 {
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
		switch {
		case m.ID != 0 && wait != nil:
			out := reply{result: m.Result}
			if m.Error != nil {
				out.err = errors.New(m.Error.Message)
			}
			wait <- out
		case m.ID == 0 && tab != nil:
			tab.event(m.Method, m.Params)
		}
	}
}

// call sends a command to the browser, or to a tab by its session, and decodes the response into result.
func (b *browser) call(session, method string, params map[string]any, result any) error {
	command := map[string]any{"method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
	}
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.next++
	command["id"] = b.next
	b.waiting[b.next] = answer
	text, err := json.Marshal(command)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case r := <-answer:
		if r.err != nil || result == nil {
			return r.err
		}
		return json.Unmarshal(r.result, result)
	case <-b.gone:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-time.After(answerTime):
		return fmt.Errorf("%s: %w", method, context.DeadlineExceeded)
	}
}
