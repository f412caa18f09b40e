package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// pair returns both ends of a connection.
func pair(t *testing.T, server, client Config) (*Conn, *Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	// A pipe has no buffer, and both ends write first, so they are opened concurrently.
	opened := make(chan *Conn, 1)
	go func() {
		c, err := Open(buffered(b), client)
		if err != nil {
			t.Error(err)
		}
		opened <- c
	}()
	c, err := Open(buffered(a), server)
	if err != nil {
		t.Fatal(err)
	}
	return c, <-opened
}

// buffered returns a connection that writes while the other end is not reading, like a socket with a buffer.
func buffered(c net.Conn) io.ReadWriter {
	queue := make(chan []byte, 64)
	go func() {
		for b := range queue {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	return struct {
		io.Reader
		io.Writer
	}{c, writer(func(b []byte) (int, error) {
		queue <- slices.Clone(b)
		return len(b), nil
	})}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

var (
	pub = Config{Socket: PUB, Peers: []Socket{SUB, XSUB}, MaxFrame: 1 << 12}
	sub = Config{Socket: SUB, Peers: []Socket{PUB}, MaxFrame: 1 << 20}
)

func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	server, client := pair(t, pub, sub)
	if server.Peer() != SUB || client.Peer() != PUB {
		t.Errorf("the peers are %q and %q", server.Peer(), client.Peer())
	}
	for _, message := range [][][]byte{
		{{}}, {[]byte("a")}, {{}, []byte("b"), {}},
		{bytes.Repeat([]byte{1}, 255), bytes.Repeat([]byte{2}, 256), bytes.Repeat([]byte{3}, 100_000)},
	} {
		go server.Write(message...)
		got, err := client.Read()
		if err != nil || !slices.EqualFunc(got, message, bytes.Equal) {
			t.Fatalf("got %d frames, error %v; want %d frames", len(got), err, len(message))
		}
	}
}

// raw returns a stream in which a peer sends its greeting, READY and then the given bytes.
func raw(more ...byte) io.ReadWriter {
	var b bytes.Buffer
	g := [greetingBytes]byte{0: 0xff, 9: 0x7f, 10: 3, 11: 1, 12: 'N', 13: 'U', 14: 'L', 15: 'L'}
	b.Write(g[:])
	ready := appendProperty(append([]byte{5}, "READY"...), "Socket-Type", "SUB")
	b.Write(append([]byte{flagCommand, byte(len(ready))}, ready...))
	b.Write(more)
	return struct {
		io.Reader
		io.Writer
	}{&b, io.Discard}
}

func commandFrame(name, rest string) []byte {
	body := string(rune(len(name))) + name + rest
	return append([]byte{flagCommand, byte(len(body))}, body...)
}

func TestCommandsOfLaterVersions(t *testing.T) {
	var sent []byte
	for _, c := range [][]byte{commandFrame("PING", "\x00\x100123456789abcdef"), commandFrame("JOIN", "x"),
		commandFrame("SUBSCRIBE", "kv@"), commandFrame("CANCEL", "kv@")} {
		sent = append(sent, c...)
	}
	rw := raw(sent...)
	var answer bytes.Buffer
	c, err := Open(struct {
		io.Reader
		io.Writer
	}{rw, &answer}, pub)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x01kv@", "\x00kv@"} {
		if got, err := c.Read(); err != nil || len(got) != 1 || string(got[0]) != want {
			t.Fatalf("got %q, error %v; want %q", got, err, want)
		}
	}
	if !strings.HasSuffix(answer.String(), string(commandFrame("PONG", "0123456789abcdef"))) {
		t.Errorf("no PONG at the end of %q", answer.Bytes()[greetingBytes:])
	}
}

func TestBadPeersAreRefused(t *testing.T) {
	long := binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<40)
	for name, sent := range map[string][]byte{
		"a frame of 2^40 bytes":                   long,
		"unknown flags":                           {0x80, 0},
		"a command inside a message":              append([]byte{flagMore, 0}, commandFrame("PING", "\x00\x00")...),
		"a command without a name":                {flagCommand, 0},
		"a command that is cut off":               {flagCommand, 2, 9, 'a'},
		"a PING without its time":                 commandFrame("PING", ""),
		"an error":                                commandFrame("ERROR", "no"),
		"a message without an end":                bytes.Repeat([]byte{flagMore, 0}, maxFrames+1),
		"a command with the flag for more frames": append([]byte{flagCommand | flagMore, 5}, "\x04PING"...),
		"a PING with a context above 16 bytes":    commandFrame("PING", strings.Repeat("x", 19)),
	} {
		c, err := Open(raw(sent...), pub)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := c.Read(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := pub
	other.Peers = []Socket{REQ}
	if _, err := Open(raw(), other); !errors.Is(err, ErrProtocol) {
		t.Errorf("a socket of another pattern: %v", err)
	}
	_, err := Open(struct {
		io.Reader
		io.Writer
	}{strings.NewReader("GET / HTTP/1.1\r\n" + strings.Repeat("x", 60)), io.Discard}, pub)
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("HTTP: %v", err)
	}
}

// The bytes of the handshake are those of version 3.0 of the protocol.
func TestBytesOfTheHandshake(t *testing.T) {
	var sent bytes.Buffer
	if _, err := Open(struct {
		io.Reader
		io.Writer
	}{raw(), &sent}, pub); err != nil {
		t.Fatal(err)
	}
	want := "\xff" + strings.Repeat("\x00", 8) + "\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) +
		"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB\x08Identity\x00\x00\x00\x00"
	if sent.String() != want {
		t.Errorf("sent %q, want %q", sent.String(), want)
	}
}

// A peer whose handshake is wrong in one place is refused.
func TestBadHandshakesAreRefused(t *testing.T) {
	whole, err := io.ReadAll(raw())
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(whole)
		b[at] = to
		return b
	}
	open := func(sent []byte) error {
		_, err := Open(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(sent), io.Discard}, pub)
		return err
	}
	value := len(whole) - len("\x00\x00\x00\x03SUB") // position of the length of the socket's type
	for name, sent := range map[string][]byte{
		"no signature":              changed(0, 0xfe),
		"no end of the signature":   changed(9, 0x7e),
		"version 2":                 changed(10, 2),
		"another mechanism":         changed(12, 'P'),
		"a longer mechanism":        changed(16, 'X'),
		"a message instead":         changed(greetingBytes, 0),
		"another command":           changed(greetingBytes+3, 'X'),
		"a name beyond the end":     changed(greetingBytes+8, 16),
		"a value beyond the end":    changed(value+3, 4),
		"a large value":             changed(value, 1),
		"a value without a length":  append(changed(greetingBytes+1, 18)[:greetingBytes+2+18], 0),
		"an unknown type of socket": changed(len(whole)-1, 'X'),
		"another property":          changed(greetingBytes+9, 'X'),
	} {
		if err := open(sent); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range len(whole) {
		if err := open(whole[:n]); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	for at, to := range map[int]byte{9: 0x01, 10: 4, 11: 9, 32: 1, 63: 7} {
		if err := open(changed(at, to)); err != nil {
			t.Errorf("byte %d is %d: %v", at, to, err)
		}
	}
}

// The largest frame and the longest message that a peer may send arrive, and larger ones are refused.
func TestLimitsOfMessagesAreExact(t *testing.T) {
	small := pub
	small.MaxFrame = 300
	frame := func(n int) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{flagLong}, uint64(n)), make([]byte, n)...)
	}
	more := func(n int) []byte { return append(bytes.Repeat([]byte{flagMore, 0}, n), 0, 0) }
	for _, c := range []struct {
		name   string
		sent   []byte
		frames int
	}{
		{"a frame of 300 bytes", frame(300), 1}, {"a frame of 301 bytes", frame(301), 0},
		{"16 frames", more(15), 16}, {"17 frames", more(16), 0},
	} {
		conn, err := Open(raw(c.sent...), small)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := conn.Read(); len(m) != c.frames || (err == nil) != (c.frames > 0) {
			t.Errorf("%s: %d frames, error %v", c.name, len(m), err)
		}
	}
}

// Any bytes that a peer sends give a message or an error.
func FuzzRead(f *testing.F) {
	whole, _ := io.ReadAll(raw(append(commandFrame("SUBSCRIBE", "kv@"), 0, 1, 1)...))
	f.Add(whole)
	f.Add(whole[:70])
	f.Add(append(bytes.Clone(whole), commandFrame("PING", "\x00\x00a")...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, err := Open(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(sent), io.Discard}, pub)
		for err == nil {
			var m [][]byte
			if m, err = c.Read(); err == nil && (len(m) == 0 || len(m) > maxFrames) {
				t.Fatalf("a message has %d frames", len(m))
			}
		}
	})
}
