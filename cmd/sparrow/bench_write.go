package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"sparrow/internal/textfile"
)

// writeSection replaces a part of a document by the output of print. The part is between two comments, <!-- name -->
// and <!-- end -->, which are kept; a document without them is not changed, which is an error.
func writeSection(file, name string, print func(io.Writer) error) error {
	head, tail, err := aroundSection(file, name)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Write(head)
	if err := print(&b); err != nil {
		return err
	}
	b.Write(tail)
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// aroundSection returns the text of the document before and after the part, including the two comments. Commands also
// call it before a long measurement, to report a missing part early.
func aroundSection(file, name string) (head, tail []byte, err error) {
	text, err := textfile.Read(file, textfile.Document)
	if err != nil {
		return nil, nil, fmt.Errorf("--write: %w", err)
	}
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- end -->")
	_, rest, found := bytes.Cut(text, begin)
	at := bytes.Index(rest, end)
	if !found || at < 0 {
		return nil, nil, fmt.Errorf("--write: %s has no part between %q and %q; add both comments where the figures "+
			"belong", file, bytes.TrimSpace(begin), end)
	}
	return text[:len(text)-len(rest)], rest[at:], nil
}
