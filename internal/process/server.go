package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Sparrow builds the program of this tree in the folder dir, which is also the folder of its logs. The working
// directory must be inside the tree.
func Sparrow(ctx context.Context, dir string) (Program, error) {
	p := Program{Path: filepath.Join(dir, "sparrow.exe"), Logs: dir} // name of an executable on every system
	build := exec.CommandContext(ctx, "go", "build", "-o", p.Path, "sparrow/cmd/sparrow")
	if out, err := build.CombinedOutput(); err != nil {
		return p, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return p, nil
}

// Server is a running `sparrow serve`.
type Server struct {
	*Process
	URL string
}

// Serve runs `sparrow serve` on a free loopback port, or on the address in the flags, and waits until it is ready.
func (p Program) Serve(ctx context.Context, name string, flags ...string) (*Server, error) {
	address := make(chan string, 1)
	s, err := p.start(name, func(log io.Writer) io.Writer { return &addressReader{log: log, address: address} },
		append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, flags...))
	if err != nil {
		return nil, err
	}
	select {
	case url := <-address:
		if err := s.Answers(ctx, url+"/ready"); err != nil {
			s.Kill()
			return nil, err
		}
		return &Server{s, url}, nil
	case <-s.ended:
		return nil, s.end(" at its start")
	case <-time.After(startTime):
		err = fmt.Errorf("%s printed no line with its address within %v; %s", name, startTime, s.lastLines())
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Kill()
	return nil, err
}

// addressReader forwards a server's output and looks for the line with its address.
type addressReader struct {
	log     io.Writer
	address chan<- string
	line    []byte // beginning of a line that is not complete
	found   bool
}

func (r *addressReader) Write(data []byte) (int, error) {
	for rest := data; !r.found; {
		before, after, whole := bytes.Cut(rest, []byte("\n"))
		r.line = append(r.line, before...)
		if !whole {
			break
		}
		if words := strings.Fields(string(r.line)); len(words) > 1 && words[0] == "address" {
			r.found = true
			r.address <- words[1]
		}
		r.line, rest = r.line[:0], after
	}
	return r.log.Write(data)
}

// Metrics reads the server's metrics from /metrics, by name and labels.
func (s *Server) Metrics(ctx context.Context) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(r)
	if err != nil {
		return nil, errors.Join(err, s.Running())
	}
	defer res.Body.Close()
	list := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || lines.Text()[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: metrics: %w", s.Name, err)
		}
		list[lines.Text()[:at]] = v
	}
	return list, lines.Err()
}
