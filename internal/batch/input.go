package batch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Line is one request of a batch.
type Line struct {
	Number    int    // number of the line, from 0
	Text      []byte // text without its line end; empty if the line is too long
	CustomID  string // empty if the line has no custom_id or cannot be parsed
	Duplicate bool   // whether an earlier line of the batch has the same custom id
	TooLong   bool
}

// input reads the lines of a batch by number. Lines of only white space are skipped.
type input struct {
	file    *os.File
	starts  []int64 // offset of each line, in bytes
	lengths []int64
	repeats map[int]bool // numbers of the lines whose custom id equals that of an earlier line
	most    int64        // maximum length of a line, in bytes
}

// openInput opens a file that has at most lines lines. A line of more than bytes bytes is reported as too long.
func openInput(path string, lines int, bytes int64) (*input, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in := &input{file: f, repeats: map[int]bool{}, most: bytes}
	if err := in.index(lines); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return in, nil
}

// index stores the offsets and lengths of all lines and finds repeated custom ids.
func (in *input) index(most int) error {
	r := bufio.NewReaderSize(in.file, 1<<16)
	seen := map[string]bool{}
	for at := int64(0); ; {
		head, length, whole, err := readLine(r, int(in.most)+1)
		if err != nil {
			return err
		}
		if !blank(head) {
			if len(in.starts) == most {
				return fmt.Errorf("%w: the file has more than %d lines; divide it", ErrInput, most)
			}
			if id := customID(head); id != "" {
				if seen[id] {
					in.repeats[len(in.starts)] = true
				}
				seen[id] = true
			}
			text := length
			if whole {
				text--
			}
			in.starts, in.lengths = append(in.starts, at), append(in.lengths, text)
		}
		if at += length; !whole {
			break
		}
	}
	if len(in.starts) == 0 {
		return fmt.Errorf("%w: the file has no lines; want one JSON object per line", ErrInput)
	}
	return nil
}

func blank(line []byte) bool {
	for _, b := range line {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return false
		}
	}
	return true
}

// customID returns the custom id of a line, or "" if the line cannot be parsed.
func customID(line []byte) string {
	var l struct {
		ID string `json:"custom_id"`
	}
	if json.Unmarshal(line, &l) != nil {
		return ""
	}
	return l.ID
}

// line reads line n.
func (in *input) line(n int) (Line, error) {
	l := Line{Number: n, Duplicate: in.repeats[n], TooLong: in.lengths[n] > in.most}
	if l.TooLong {
		return l, nil
	}
	l.Text = make([]byte, in.lengths[n])
	if _, err := io.ReadFull(io.NewSectionReader(in.file, in.starts[n], in.lengths[n]), l.Text); err != nil {
		return Line{}, err
	}
	l.CustomID = customID(l.Text)
	return l, nil
}
