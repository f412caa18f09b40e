// Package process runs programs in their own processes: servers of this tree, and third-party programs. The output of
// each is written to a log file. Callers must end the processes.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Maximum times of a process.
const (
	startTime = time.Minute // maximum time from the start of a process until it responds
	stopTime  = time.Minute // maximum time from a signal until the process has ended
)

// client does not reuse connections, because a server that restarts on the same port is a different process.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Program is an executable file.
type Program struct {
	Path string
	Env  []string // variables in addition to the environment of this process
	Logs string   // folder for the output
}

// Process is a program that was started.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	log   string        // path of the file with the output
	ended chan struct{} // closed when the process has ended
	err   error         // error with which the process ended; valid after ended is closed
}

// Start runs the program. Its output is written to NAME.log.
func (p Program) Start(name string, args ...string) (*Process, error) {
	return p.start(name, func(log io.Writer) io.Writer { return log }, args)
}

// start runs the program like Start; through returns the writer for standard output.
func (p Program) start(name string, through func(log io.Writer) io.Writer, args []string) (*Process, error) {
	log, err := os.Create(filepath.Join(p.Logs, name+".log"))
	if err != nil {
		return nil, err
	}
	s := &Process{Name: name, cmd: exec.Command(p.Path, args...), log: log.Name(), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = through(log), log
	s.cmd.WaitDelay = time.Second // child processes may keep the pipe of its output open
	if len(p.Env) > 0 {
		s.cmd.Env = append(os.Environ(), p.Env...)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		s.err = s.cmd.Wait()
		log.Close()
		close(s.ended)
	}()
	return s, nil
}

// Running returns an error once the process has ended.
func (p *Process) Running() error {
	select {
	case <-p.ended:
		return p.end("")
	default:
		return nil
	}
}

// end returns an error that describes how the process has ended.
func (p *Process) end(after string) error {
	how := "with status 0"
	if p.err != nil {
		how = "by " + p.err.Error()
	}
	return fmt.Errorf("%s ended%s %s; %s", p.Name, after, how, p.lastLines())
}

// Kill ends the process at once, as the system does when memory runs out.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails if the process has already ended
	<-p.ended
}

// End sends a signal and waits: the process must exit with status 0.
func (p *Process) End(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.cmd.Process.Kill())
	}
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		p.Kill()
		return fmt.Errorf("%s did not end within %v after %v; %s", p.Name, stopTime, sig, p.lastLines())
	}
	if p.err != nil {
		return p.end(fmt.Sprintf(" after %v", sig))
	}
	return nil
}

// Answers waits until a URL answers with status 200.
func (p *Process) Answers(ctx context.Context, url string) error {
	for end := time.Now().Add(startTime); time.Now().Before(end); {
		if status, err := statusOf(ctx, url); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-p.ended:
			return p.end(" before it answered")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s does not answer at %s with status 200 after %v; %s", p.Name, url, startTime, p.lastLines())
}

func statusOf(ctx context.Context, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func (p *Process) lastLines() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return "the end of its log:\n" + string(data[max(len(data)-4000, 0):])
}
