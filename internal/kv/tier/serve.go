package tier

import (
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier/resp"
)

// Limits of Serve.
const (
	maxPulls  = 256             // maximum number of connections
	pullIdle  = 5 * time.Minute // maximum time between two commands of a connection
	pullWrite = 30 * time.Second
)

// Serve serves pages in host memory to other engines, which request them as from a store, until the listener or the
// stack is closed. It serves no pages until the digest of the weights is known. Any client that can connect can read
// the pages of prompts that it knows.
func (s *Stack) Serve(l net.Listener) {
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	go func() { // ends when the stack is closed
		<-s.ctx.Done()
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for c := range open {
			c.Close()
		}
	}()
	s.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			refuse := len(open) >= maxPulls || s.ctx.Err() != nil
			if !refuse {
				open[c] = true
			}
			mu.Unlock()
			if refuse {
				c.Close()
				continue
			}
			s.wait.Go(func() {
				s.answer(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
}

// answer executes the commands of one connection.
func (s *Stack) answer(c net.Conn) {
	r := resp.NewReader(c)
	for {
		if c.SetReadDeadline(time.Now().Add(pullIdle)) != nil {
			return
		}
		args, err := r.Command()
		if err != nil {
			return
		}
		if c.SetWriteDeadline(time.Now().Add(pullWrite)) != nil || s.command(c, args) != nil {
			return
		}
	}
}

// command executes one command.
func (s *Stack) command(c net.Conn, args []string) error {
	var p *Page
	spec := s.outside()
	name := strings.ToUpper(args[0])
	if len(args) == 2 && (name == "GET" || name == "EXISTS") && spec != nil {
		if k, ok := spec.parseKey(args[1]); ok {
			p = s.host.find(k)
		}
	}
	if p != nil {
		defer p.Drop()
	}
	answer := []byte("-ERR only GET, EXISTS and PING are supported\r\n")
	switch {
	case name == "PING":
		answer = []byte("+PONG\r\n")
	case name == "EXISTS" && p != nil:
		answer = []byte(":1\r\n")
	case name == "EXISTS":
		answer = []byte(":0\r\n")
	case name == "GET" && p == nil:
		answer = resp.AppendBulk(nil, -1)
	case name == "GET":
		answer = spec.AppendHeader(resp.AppendBulk(nil, int64(spec.Size())), p)
		parts := net.Buffers{answer, p.Data, []byte("\r\n")}
		_, err := parts.WriteTo(c)
		return err
	}
	_, err := c.Write(answer)
	return err
}

// parseKey returns the page's hash from a key; ok is false for other keys.
func (s *Spec) parseKey(text string) (k prefix.Hash, ok bool) {
	digits, found := strings.CutPrefix(text, s.keys())
	if !found || len(digits) != hex.EncodedLen(len(k)) {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(digits))
	return k, err == nil
}
