// Package resp implements the parts of RESP2, the protocol of Redis and Valkey, that a store of pages needs, for both
// ends of a connection.
//
// A command is an array of byte strings. Replies come in the order of the commands. The caller reads the bytes of a
// bulk string into its own memory, so that a wrong length does not allocate memory.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Maximum sizes of received data.
const (
	maxLine = 4096 // bytes of a line: a length, a status or an error
	// MaxBulk is the maximum length of a bulk string, in bytes.
	MaxBulk = 1 << 32
	maxArgs = 64 // arguments of a command
	maxArg  = 4096
)

// ErrProtocol is wrapped by errors about bytes that are not RESP.
var ErrProtocol = errors.New("resp: the bytes are not RESP")

// Kind is the type of a reply.
type Kind uint8

// Kinds of replies.
const (
	Status  Kind = iota // a word such as OK
	Failure             // error reported by the other end
	Integer
	Bulk // a string of Len bytes, which the caller reads
	Nil  // no value
)

// Reply is a reply; of a bulk string it has only the length.
type Reply struct {
	Kind Kind
	Text string // text of a status or a failure
	Int  int64
	Len  int64 // bytes of a bulk string, which follow the reply
}

// Err returns the error of an error reply, otherwise nil.
func (r Reply) Err() error {
	if r.Kind != Failure {
		return fmt.Errorf("%w: the reply is of kind %d with text %q, want an error reply", ErrProtocol, r.Kind, r.Text)
	}
	return &ServerError{Text: r.Text}
}

// ServerError is an error that the other end reported; the connection can still be used.
type ServerError struct{ Text string }

func (e *ServerError) Error() string { return "the store returned an error: " + e.Text }

// Reader reads data from the other end.
type Reader struct {
	r    *bufio.Reader
	left int64 // unread bytes of the current bulk string
	open bool  // whether the line end of the current bulk string is unread
}

// NewReader returns a Reader that reads RESP from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Reply reads the next reply. Unread bytes of a previous bulk string are skipped.
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

// Read reads from the current bulk string; it returns io.EOF at its end.
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

// end skips the unread bytes of a bulk string and its line end.
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

// line reads a line of at least one byte, without its line end. It is valid until the next read.
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

// length parses a length of at most most; -1 means no value.
func length(text []byte, most int64) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%w: %q is not a valid length", ErrProtocol, text)
	}
	return n, nil
}

// Command reads the next command of a client: an array of short strings. It is for servers whose commands have keys but
// no values.
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

// Array reads the number of arguments of the next command, at least one.
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

// Argument reads a string of at most most bytes.
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

// cut converts io.EOF, in the middle of a message, to io.ErrUnexpectedEOF.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendCommand appends a command. If size is not negative, the command has a further argument of size bytes. Only its
// length is appended; the caller sends the bytes and the line end.
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

// AppendBulk appends the length of a bulk string of n bytes; a negative n means a null value.
func AppendBulk(to []byte, n int64) []byte {
	return append(strconv.AppendInt(append(to, '$'), n, 10), "\r\n"...)
}
