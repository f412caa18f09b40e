package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// ErrProtocol is wrapped by errors about data that violates the protocol.
var ErrProtocol = errors.New("zmtp")

// Maximum sizes of received data.
const (
	maxFrames     = 16  // frames of a message
	maxProperties = 512 // bytes of a READY command
)

// Flags in the first byte of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// Socket is ZeroMQ's type of socket at one end of a connection.
type Socket string

// Supported types of sockets.
const (
	PUB    Socket = "PUB"
	SUB    Socket = "SUB"
	XSUB   Socket = "XSUB"
	ROUTER Socket = "ROUTER"
	DEALER Socket = "DEALER"
	REQ    Socket = "REQ"
)

// Config holds the type of this end's socket, and limits for peers.
type Config struct {
	Socket Socket
	Peers  []Socket // types of sockets that a peer may have
	// MaxFrame is the maximum size of a received frame, in bytes.
	MaxFrame int
}

// Conn is a connection after its handshake. Only one goroutine may read; Write is safe for concurrent use.
type Conn struct {
	cfg  Config
	in   *bufio.Reader
	peer Socket

	mu  sync.Mutex
	out *bufio.Writer
}

// Peer returns the type of the peer's socket.
func (c *Conn) Peer() Socket { return c.peer }

// Open performs the handshake, which is symmetric, and returns the connection.
func Open(rw io.ReadWriter, cfg Config) (*Conn, error) {
	c := &Conn{cfg: cfg, in: bufio.NewReaderSize(rw, 4096), out: bufio.NewWriterSize(rw, 1<<16)}
	if err := c.greet(); err != nil {
		return nil, err
	}
	if err := c.ready(); err != nil {
		return nil, err
	}
	return c, nil
}

// greetingBytes is the length of a greeting:
//
//	[0]     0xff        [1:9]  padding      [9]  0x7f
//	[10:12] version     [12:32] mechanism   [32] as-server   [33:64] filler
const greetingBytes = 64

func (c *Conn) greet() error {
	var g [greetingBytes]byte
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	c.out.Write(g[:])
	if err := c.out.Flush(); err != nil {
		return err
	}
	var p [greetingBytes]byte
	if _, err := io.ReadFull(c.in, p[:]); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if p[0] != 0xff || p[9]&1 != 1 || p[10] < 3 {
		return fmt.Errorf("%w: the peer's greeting begins with % x, want version 3 of the protocol", ErrProtocol,
			p[:12])
	}
	if string(p[12:17]) != "NULL\x00" {
		return fmt.Errorf("%w: the peer's mechanism is %q, want NULL", ErrProtocol, p[12:32])
	}
	return nil
}

// ready exchanges READY commands, which contain the types of sockets.
func (c *Conn) ready() error {
	body := append([]byte{5}, "READY"...)
	body = appendProperty(body, "Socket-Type", string(c.cfg.Socket))
	body = appendProperty(body, "Identity", "")
	c.frame(flagCommand, body)
	if err := c.out.Flush(); err != nil {
		return err
	}
	flags, got, err := c.readFrame(maxProperties)
	if err != nil {
		return fmt.Errorf("READY: %w", err)
	}
	name, rest, ok := command(got)
	if flags != flagCommand || !ok || name != "READY" {
		return fmt.Errorf("%w: the peer sent %q, want a command READY", ErrProtocol, got)
	}
	for len(rest) > 0 {
		var key, value string
		if key, value, rest, ok = property(rest); !ok {
			return fmt.Errorf("%w: the READY command ends inside a property", ErrProtocol)
		}
		if key == "Socket-Type" {
			c.peer = Socket(value)
		}
	}
	if !slices.Contains(c.cfg.Peers, c.peer) {
		return fmt.Errorf("%w: the peer is a %q socket; this socket is %s, want %v", ErrProtocol, c.peer, c.cfg.Socket,
			c.cfg.Peers)
	}
	return nil
}

func appendProperty(b []byte, name, value string) []byte {
	b = append(append(b, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

func property(b []byte) (name, value string, rest []byte, ok bool) {
	n := int(b[0])
	if b = b[1:]; len(b) < n+4 {
		return "", "", nil, false
	}
	name, b = string(b[:n]), b[n:]
	size := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(len(b)) < uint64(size) {
		return "", "", nil, false
	}
	return name, string(b[:size]), b[size:], true
}

// command splits the body of a command into its name and the rest; ok is false if it is too short.
func command(body []byte) (name string, rest []byte, ok bool) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, false
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], true
}

// Read returns the next message. A subscription is always returned as in version 3.0: one frame of a byte 1 or 0 and
// the topic.
func (c *Conn) Read() ([][]byte, error) {
	var message [][]byte
	for {
		flags, body, err := c.readFrame(c.cfg.MaxFrame)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand == 0 {
			message = append(message, body)
			if flags&flagMore == 0 {
				return message, nil
			}
			if len(message) == maxFrames {
				return nil, fmt.Errorf("%w: the message has more than %d frames", ErrProtocol, maxFrames)
			}
			continue
		}
		name, rest, ok := command(body)
		switch {
		case !ok || flags&flagMore != 0 || len(message) > 0:
			return nil, fmt.Errorf("%w: the command is malformed or inside a message", ErrProtocol)
		case name == "SUBSCRIBE":
			return [][]byte{append([]byte{1}, rest...)}, nil
		case name == "CANCEL":
			return [][]byte{append([]byte{0}, rest...)}, nil
		case name == "PING":
			if err := c.pong(rest); err != nil {
				return nil, err
			}
		case name == "ERROR":
			return nil, fmt.Errorf("%w: the peer sent an error: %.100q", ErrProtocol, rest)
		}
		// Unknown commands of later versions are ignored.
	}
}

// pong answers a PING: 2 bytes of time to live, then at most 16 bytes of context, which PONG returns.
func (c *Conn) pong(ping []byte) error {
	if len(ping) < 2 || len(ping) > 2+16 {
		return fmt.Errorf("%w: the PING has %d bytes, want 2 to 18", ErrProtocol, len(ping))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame(flagCommand, append(append([]byte{4}, "PONG"...), ping[2:]...))
	return c.out.Flush()
}

// Write sends a message of at least one frame.
func (c *Conn) Write(frames ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		c.frame(flags, f)
	}
	return c.out.Flush()
}

// frame writes a frame to the buffer, whose Flush returns the first error.
func (c *Conn) frame(flags byte, body []byte) {
	if len(body) > 255 {
		c.out.Write(binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body))))
	} else {
		c.out.Write([]byte{flags, byte(len(body))})
	}
	c.out.Write(body)
}

func (c *Conn) readFrame(limit int) (flags byte, body []byte, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, nil, fmt.Errorf("%w: the frame has unknown flags: %#x", ErrProtocol, flags)
	}
	var head [8]byte
	size := head[7:]
	if flags&flagLong != 0 {
		size = head[:]
	}
	if _, err := io.ReadFull(c.in, size); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(head[:])
	if n > uint64(limit) {
		return 0, nil, fmt.Errorf("%w: the frame has %d bytes, want at most %d", ErrProtocol, n, limit)
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return 0, nil, err
	}
	return flags &^ flagLong, body, nil
}
