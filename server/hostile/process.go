package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a running server.
type process struct {
	cmd   *exec.Cmd
	url   string
	log   string        // file of what it logs
	ended chan struct{} // closed when it has
	err   error         // how, then
}

// startup bounds how long a server may take to listen, and to end.
const startup = 60 * time.Second

// start runs a server on a free port of loopback and waits until it is ready.
func start(ctx context.Context, dir, binary string, flags ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{log: log.Name(), ended: make(chan struct{}),
		cmd: exec.Command(binary, append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, flags...)...)}
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	address := make(chan string, 1)
	go func() { // ends with the process
		for s := bufio.NewScanner(out); s.Scan(); {
			if rest, ok := strings.CutPrefix(s.Text(), "address "); ok {
				url, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
				address <- url
			}
		}
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	select {
	case p.url = <-address:
		return p, p.ready(ctx)
	case <-p.ended:
		return nil, fmt.Errorf("the server ended at its start: %w; %s", p.err, p.lastLines())
	case <-time.After(startup):
	case <-ctx.Done():
	}
	p.kill()
	return nil, fmt.Errorf("the server does not listen after %v", startup)
}

func (p *process) ready(ctx context.Context) error {
	for range 100 {
		if resp, err := http.Get(p.url + "/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-p.ended:
			return fmt.Errorf("the server ended: %w; %s", p.err, p.lastLines())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("/ready does not say 200")
}

// running is an error once the process has ended.
func (p *process) running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("the server ended: %v; %s", p.err, p.lastLines())
	default:
		return nil
	}
}

// kill ends the process as the system does when memory runs out.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// terminate asks the process to end and waits: it must exit by itself, with status 0.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(startup):
		p.kill()
		return fmt.Errorf("the server has not ended %v after TERM; %s", startup, p.lastLines())
	}
	if p.err != nil {
		return fmt.Errorf("the server ended after TERM by %w; %s", p.err, p.lastLines())
	}
	return nil
}

// lastLines is the end of the log.
func (p *process) lastLines() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return "its log ends:\n" + string(data[max(len(data)-4000, 0):])
}
