package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"sparrow/internal/textfile"
)

// writeSection replaces a part of a document by what print writes. The part lies between two comments, <!-- name -->
// and <!-- end -->, which stay; a document without them is refused and left as it is.
func writeSection(file, name string, print func(io.Writer) error) error {
	text, err := textfile.Read(file, textfile.Document)
	if err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- end -->")
	head, rest, found := bytes.Cut(text, begin)
	at := bytes.Index(rest, end)
	if !found || at < 0 {
		return fmt.Errorf("--write: %s has no part between %q and %q; add both comments where the figures belong", file,
			bytes.TrimSpace(begin), end)
	}
	var b bytes.Buffer
	b.Write(head)
	b.Write(begin)
	if err := print(&b); err != nil {
		return err
	}
	b.Write(rest[at:])
	return os.WriteFile(file, b.Bytes(), 0o644)
}
