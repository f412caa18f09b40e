package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// line forwards bytes between an index and a publisher, with injected faults.
type line struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	open map[net.Conn]bool
	skip int // number of messages to drop
	lost int
	cuts int
}

func newLine(target string) (*line, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &line{listener: l, target: target, open: map[net.Conn]bool{}}
	go n.accept()
	return n, nil
}

func (n *line) address() string { return n.listener.Addr().String() }

func (n *line) accept() {
	for {
		a, err := n.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", n.target)
		if err != nil {
			a.Close() // the publisher is not running
			continue
		}
		n.mu.Lock()
		n.open[a], n.open[b] = true, true
		n.mu.Unlock()
		go n.pass(a, b, func() error { _, err := io.Copy(b, a); return err })
		go n.pass(a, b, func() error { return n.messages(a, b) })
	}
}

// pass runs work until either connection closes, and then closes both.
func (n *line) pass(a, b net.Conn, work func() error) {
	work() // an error ends the connection
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range []net.Conn{a, b} {
		c.Close()
		delete(n.open, c)
	}
}

// messages forwards the publisher's greeting, and then messages, except those that are to be dropped.
func (n *line) messages(to io.Writer, from io.Reader) error {
	in := bufio.NewReader(from)
	if _, err := io.CopyN(to, in, 64); err != nil {
		return err
	}
	var message []byte
	for {
		flags, err := in.ReadByte()
		if err != nil {
			return err
		}
		head := make([]byte, 1)
		if flags&2 != 0 {
			head = make([]byte, 8)
		}
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		size := binary.BigEndian.Uint64(append(make([]byte, 8-len(head)), head...))
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		message = append(append(append(message, flags), head...), body...)
		if flags&1 != 0 {
			continue
		}
		if flags&4 != 0 || !n.loses() {
			if _, err := to.Write(message); err != nil {
				return err
			}
		}
		message = message[:0]
	}
}

func (n *line) loses() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.skip == 0 {
		return false
	}
	n.skip--
	n.lost++
	return true
}

// lose drops the next messages.
func (n *line) lose(messages int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.skip = messages
}

// cut closes every connection.
func (n *line) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.open {
		c.Close()
	}
	n.cuts++
}

func (n *line) counts() (lost, cuts int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost, n.cuts
}

func (n *line) close() {
	n.listener.Close()
	n.cut()
}
