package batch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// headBytes is the length of the head of an entry. An entry of a journal is the line's number from 0 in 8 hexadecimal
// digits, the letter of its class, a space, and the result as one line of JSON:
//
// 0000002as {"id": "batch_req_...", ...}
const headBytes = 8 + 1 + 1

// appendEntry appends the entry of a line with its result to dst.
func appendEntry(dst []byte, line int, r Result) []byte {
	dst = fmt.Appendf(dst, "%08x%c ", line, r.Class)
	return append(append(dst, r.Text...), '\n')
}

// readEntry parses the first headBytes bytes of an entry: the line's number and class.
func readEntry(entry []byte) (line int, class Class, err error) {
	if len(entry) < headBytes+1 || entry[headBytes-1] != ' ' || !bytes.ContainsRune(classLetters, rune(entry[8])) {
		return 0, 0, fmt.Errorf("%w: %.40q is not an entry of a journal", ErrFolder, entry)
	}
	n, err := strconv.ParseUint(string(entry[:8]), 16, 31)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %.40q is not an entry of a journal", ErrFolder, entry)
	}
	return int(n), Class(entry[8]), nil
}

var classLetters = func() (all []byte) {
	for _, c := range classes {
		all = append(all, byte(c))
	}
	return all
}()

// recoverJournal opens a journal for appending. It calls seen with every entry, and removes an incomplete last entry,
// which a killed process may leave.
func recoverJournal(path string, seen func(line int, class Class) error) (f *os.File, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	r, size := bufio.NewReaderSize(f, 1<<16), int64(0)
	for {
		head, length, whole, err := readLine(r, headBytes+1)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if !whole {
			break
		}
		line, class, err := readEntry(head)
		if err == nil {
			err = seen(line, class)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
		}
		size += length
	}
	if err = f.Truncate(size); err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readLine reads a line and returns its first keep bytes and its length. whole is false if the line has no newline.
func readLine(r *bufio.Reader, keep int) (head []byte, length int64, whole bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		length += int64(len(part))
		if room := keep - len(head); room > 0 {
			head = append(head, part[:min(room, len(part))]...)
		}
		switch {
		case err == nil:
			return head, length, true, nil
		case errors.Is(err, io.EOF):
			return head, length, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, false, err
		}
	}
}

// results reads a journal as a file of results: it removes the head of every entry.
type results struct {
	file *os.File
	from *bufio.Reader
	skip int // bytes of the current head that remain to be skipped
}

func newResults(f *os.File) *results {
	return &results{file: f, from: bufio.NewReaderSize(f, 1<<16), skip: headBytes}
}

func (r *results) Read(p []byte) (int, error) {
	if r.skip > 0 {
		n, err := r.from.Discard(r.skip)
		if r.skip -= n; err != nil {
			return 0, err
		}
	}
	part, err := r.from.Peek(min(max(len(p), 1), r.from.Size()))
	if len(part) == 0 {
		return 0, err
	}
	if i := bytes.IndexByte(part, '\n'); i >= 0 {
		part, r.skip = part[:i+1], headBytes
	}
	n := copy(p, part)
	_, err = r.from.Discard(n)
	return n, err
}

// Close closes the journal.
func (r *results) Close() error { return r.file.Close() }
