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

// Limits for engines that pull pages.
const (
	maxPulls  = 256             // maximum number of connections
	pullIdle  = 5 * time.Minute // maximum time between two commands of a connection
	pullWrite = 30 * time.Second
)

// Serve sends pages of host memory to other engines, which request them with the protocol of a store, until the
// listener or the stack is closed. Until all weights have been read, it serves no pages. Any client that can connect
// can read pages of prompts whose tokens it knows.
func (s *Stack) Serve(l net.Listener) {
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	go func() { // this goroutine ends with the stack
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

// answer answers the commands of one connection.
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

// command answers one command.
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

// parseKey returns the page hash in a key of a store.
func (s *Spec) parseKey(text string) (k prefix.Hash, ok bool) {
	digits, found := strings.CutPrefix(text, s.keys())
	if !found || len(digits) != hex.EncodedLen(len(k)) {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(digits))
	return k, err == nil
}
