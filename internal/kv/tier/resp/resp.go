// Package resp implements RESP, version 2, the protocol of Redis and Valkey: both ends of a connection, as much of it
// as a
// store of pages needs.
//
// Commands flow in as byte strings and out as arrays of them; replies return one after the other, in the order of the
// commands. The bytes of a bulk string are read by the caller, into its own memory: a length that the other end made up
// allocates nothing.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Limits of what is read.
const (
	maxLine = 4096 // bytes of a line: a length, a status or an error
	// MaxBulk is the maximum number of bytes of a bulk string that are announced without an error.
	MaxBulk = 1 << 32
	maxArgs = 64 // of a command
	maxArg  = 4096
)

// ErrProtocol is wrapped by every error about bytes that are not RESP.
var ErrProtocol = errors.New("resp: the bytes are not RESP")

// Kind is what a reply is.
type Kind uint8

// The kinds of replies.
const (
	Status  Kind = iota // a word, such as OK
	Failure             // an error of the other end
	Integer
	Bulk // a string of Len bytes, which the caller reads
	Nil  // no value
)

// Reply is a reply, or the beginning of a bulk string.
type Reply struct {
	Kind Kind
	Text string // of a status or a failure
	Int  int64
	Len  int64 // bytes of a bulk string that follow
}

// Err is the error that a failure reports.
func (r Reply) Err() error {
	if r.Kind != Failure {
		return fmt.Errorf("%w: the reply is of kind %d with text %q, want an error reply", ErrProtocol, r.Kind, r.Text)
	}
	return &ServerError{Text: r.Text}
}

// ServerError is an error that the other end reported; the connection continues.
type ServerError struct{ Text string }

func (e *ServerError) Error() string { return "the store returned an error: " + e.Text }

// Reader reads what the other end sends.
type Reader struct {
	r    *bufio.Reader
	left int64 // bytes of a bulk string that were not read yet
	open bool  // a bulk string is not ended yet
}

// NewReader reads RESP from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Reply reads the next reply. The rest of a bulk string before it is skipped.
func (r *Reader) Reply() (Reply, error) {
	if err := r.end(); err != nil {
		return Reply{}, err
	}
	line, err := r.line()
	if err != nil {
		return Reply{}, err
	}
	switch rest := line[1:]; line[0] {
	case '+':
		return Reply{Kind: Status, Text: string(rest)}, nil
	case '-':
		return Reply{Kind: Failure, Text: string(rest)}, nil
	case ':':
		n, err := strconv.ParseInt(string(rest), 10, 64)
		if err != nil {
			return Reply{}, fmt.Errorf("%w: %q is not an integer", ErrProtocol, rest)
		}
		return Reply{Kind: Integer, Int: n}, nil
	case '$':
		n, err := length(rest, MaxBulk)
		if err != nil {
			return Reply{}, err
		}
		if n < 0 {
			return Reply{Kind: Nil}, nil
		}
		r.left, r.open = n, true
		return Reply{Kind: Bulk, Len: n}, nil
	}
	return Reply{}, fmt.Errorf("%w: the reply begins with %q, want one of + - : $", ErrProtocol, line[0])
}

// Read reads from the bulk string that was announced; io.EOF at its end.
func (r *Reader) Read(to []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.r.Read(to[:min(int64(len(to)), r.left)])
	r.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// end skips the rest of a bulk string, and the end of its line.
func (r *Reader) end() error {
	if !r.open {
		return nil
	}
	for r.left > 0 {
		n, err := r.r.Discard(int(min(r.left, 1<<20)))
		r.left -= int64(n)
		if err != nil {
			return cut(err)
		}
	}
	r.open = false
	var tail [2]byte
	if _, err := io.ReadFull(r.r, tail[:]); err != nil {
		return cut(err)
	}
	if tail != [2]byte{'\r', '\n'} {
		return fmt.Errorf("%w: a bulk string does not end with CR LF", ErrProtocol)
	}
	return nil
}

// line reads a line of at least one byte, without its end. It is valid until the next read.
func (r *Reader) line() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%w: a line does not end within the read buffer", ErrProtocol)
		}
		return nil, err
	}
	if len(line) < 3 || len(line) > maxLine || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("%w: a line of %d bytes is too short, too long or does not end with CR LF", ErrProtocol,
			len(line))
	}
	return line[:len(line)-2], nil
}

// length reads a length; -1 is no value.
func length(text []byte, most int64) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%w: %q is not a valid length", ErrProtocol, text)
	}
	return n, nil
}

// Command reads the next command of a client: an array of short strings. It is for servers that take keys and no
// values.
func (r *Reader) Command() ([]string, error) {
	n, err := r.Array()
	if err != nil {
		return nil, err
	}
	args := make([]string, 0, n)
	for range n {
		b, err := r.Argument(maxArg)
		if err != nil {
			return nil, err
		}
		args = append(args, string(b))
	}
	return args, nil
}

// Array reads how many arguments the next command has, at least one.
func (r *Reader) Array() (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	if line[0] != '*' {
		return 0, fmt.Errorf("%w: the command begins with %q, want *", ErrProtocol, line[0])
	}
	n, err := length(line[1:], maxArgs)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q is not a valid number of arguments", ErrProtocol, line[1:])
	}
	return int(n), nil
}

// Argument reads a string of at most the given number of bytes.
func (r *Reader) Argument(most int64) ([]byte, error) {
	reply, err := r.Reply()
	if err != nil {
		return nil, cut(err)
	}
	if reply.Kind != Bulk || reply.Len > most {
		return nil, fmt.Errorf("%w: the argument is of kind %d with %d bytes, want a bulk string of at most %d bytes",
			ErrProtocol, reply.Kind,
			reply.Len, most)
	}
	b := make([]byte, reply.Len)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, cut(err)
	}
	return b, r.end()
}

// cut reports that the other end stopped in the middle.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendCommand appends a command, of whose last argument only the length may be included: its size bytes and the end
// of their line follow.
func AppendCommand(to []byte, size int64, args ...string) []byte {
	n := len(args)
	if size >= 0 {
		n++
	}
	to = append(strconv.AppendInt(append(to, '*'), int64(n), 10), "\r\n"...)
	for _, a := range args {
		to = append(append(AppendBulk(to, int64(len(a))), a...), "\r\n"...)
	}
	if size >= 0 {
		to = AppendBulk(to, size)
	}
	return to
}

// AppendBulk announces a string of n bytes; below 0 it is a null value.
func AppendBulk(to []byte, n int64) []byte {
	return append(strconv.AppendInt(append(to, '$'), n, 10), "\r\n"...)
}
