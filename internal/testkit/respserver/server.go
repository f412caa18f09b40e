// Package respserver implements a store with the protocol RESP in the memory of a test, which can be made to fail in
// the ways in which real stores fail.
package respserver

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"sparrow/internal/kv/tier/resp"
)

// Mode is the behaviour of the store.
type Mode string

// Modes of the store.
const (
	Works     Mode = "works"
	Down      Mode = "down"      // connections are refused
	Hangs     Mode = "hangs"     // connections are accepted, but commands get no reply
	Full      Mode = "full"      // values are not stored
	Garbage   Mode = "garbage"   // values have the right length, but wrong bytes
	Short     Mode = "short"     // values are too short
	Long      Mode = "long"      // values are too long
	Exchanged Mode = "exchanged" // values belong to another key
	CutOff    Mode = "cut off"   // connections end in the middle of a value
	Nonsense  Mode = "nonsense"  // answers are not RESP
	Another   Mode = "another"   // answers belong to another command
)

// Modes lists all modes in which a store fails, and the mode in which it works.
var Modes = []Mode{Works, Down, Hangs, Full, Garbage, Short, Long, Exchanged, CutOff, Nonsense,
	Another}

// Server is a store.
type Server struct {
	listener net.Listener
	wait     sync.WaitGroup

	mu     sync.Mutex
	mode   Mode
	values map[string][]byte
	times  map[string]string // seconds after which a value expires, for values that expire
	conns  map[net.Conn]bool
}

// Start makes a store that works. The store is closed when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{listener: l, mode: Works, values: map[string][]byte{}, times: map[string]string{},
		conns: map[net.Conn]bool{}}
	s.wait.Go(s.accept)
	t.Cleanup(func() {
		l.Close()
		s.drop()
		s.wait.Wait()
	})
	return s
}

// URL returns the URL of the store.
func (s *Server) URL() string { return "redis://" + s.listener.Addr().String() }

// Set changes the mode, and ends open connections.
func (s *Server) Set(m Mode) {
	s.mu.Lock()
	s.mode = m
	s.mu.Unlock()
	s.drop()
}

// Len returns the number of stored values.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}

// Expiring returns the number of values that expire after the given number of seconds.
func (s *Server) Expiring(seconds string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.times {
		if t == seconds {
			n++
		}
	}
	return n
}

// Clear removes all values.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.values)
}

func (s *Server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		down := s.mode == Down
		if !down {
			s.conns[c] = true
		}
		s.mu.Unlock()
		if down {
			c.Close()
			continue
		}
		s.wait.Go(func() { s.serve(c) })
	}
}

func (s *Server) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	r := resp.NewReader(c)
	for {
		args, err := command(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		mode := s.mode
		s.mu.Unlock()
		switch mode {
		case Hangs:
			io.Copy(io.Discard, c) // reads until the connection is closed
			return
		case Nonsense:
			c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			return
		}
		answer, end := s.answer(mode, args)
		if _, err := c.Write(answer); err != nil || end {
			return
		}
	}
}

// command reads a command whose arguments may be long.
func command(r *resp.Reader) ([]string, error) {
	n, err := r.Array()
	if err != nil {
		return nil, err
	}
	var args []string
	for range n {
		b, err := r.Argument(1 << 30)
		if err != nil {
			return nil, err
		}
		args = append(args, string(b))
	}
	return args, nil
}

// answer returns the store's reply to a command, and whether the connection must end after it.
func (s *Server) answer(mode Mode, args []string) (answer []byte, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToUpper(args[0])
	if (name == "SET" || name == "SETEX") && mode == Full {
		return []byte("-OOM command not allowed when used memory > 'maxmemory'.\r\n"), false
	}
	if mode == Another {
		switch name {
		case "EXISTS", "GET":
			return []byte("+OK\r\n"), false
		case "SET", "SETEX":
			s.values[args[1]] = []byte(args[len(args)-1])
			return []byte(":1\r\n"), false
		}
	}
	switch name {
	case "AUTH", "SELECT", "PING":
		return []byte("+OK\r\n"), false
	case "SET", "SETEX":
		s.values[args[1]] = []byte(args[len(args)-1])
		if name == "SETEX" {
			s.times[args[1]] = args[2]
		}
		return []byte("+OK\r\n"), false
	case "EXISTS":
		n := 0
		if _, ok := s.values[args[1]]; ok {
			n = 1
		}
		return fmt.Appendf(nil, ":%d\r\n", n), false
	case "GET":
		v, ok := s.values[args[1]]
		if !ok {
			return []byte("$-1\r\n"), false
		}
		v = s.lie(mode, args[1], v)
		answer = append(append(resp.AppendBulk(nil, int64(len(v))), v...), "\r\n"...)
		if mode == CutOff {
			return answer[:len(answer)/2], true
		}
		return answer, false
	}
	return []byte("-ERR unknown command\r\n"), false
}

// lie returns a value as altered by the failure mode. The caller holds mu.
func (s *Server) lie(mode Mode, key string, v []byte) []byte {
	v = bytes.Clone(v)
	switch mode {
	case Garbage:
		for i := range v {
			if i%97 == 96 { // the header stays unchanged, so that only rows are wrong
				v[len(v)-1-i/2] ^= 0x40
			}
		}
	case Short:
		v = v[:len(v)/2]
	case Long:
		v = append(v, v...)
	case Exchanged:
		for k, other := range s.values {
			if k != key {
				return other
			}
		}
	}
	return v
}
