package image

import "bytes"

// code returns a source without comments, blank lines and spaces at the ends of lines. Hashes use this text, so that
// images need not be compiled again when a comment changes. Literals are copied unchanged; raw strings are not
// supported.
func code(source []byte) []byte {
	var out []byte
	for i := 0; i < len(source); {
		rest := source[i:]
		n := 1
		switch {
		case bytes.HasPrefix(rest, []byte("//")):
			if n = bytes.IndexByte(rest, '\n'); n < 0 {
				n = len(rest)
			}
			i += n
			continue
		case bytes.HasPrefix(rest, []byte("/*")):
			if n = bytes.Index(rest[2:], []byte("*/")) + 4; n < 4 {
				n = len(rest)
			}
			i += n
			out = append(out, ' ') // a comment separates two tokens
			continue
		case rest[0] == '"' || rest[0] == '\'':
			n = literal(rest)
		}
		out, i = append(out, rest[:n]...), i+n
	}
	var lines []byte
	for line := range bytes.SplitSeq(out, []byte("\n")) {
		if line = bytes.TrimRight(line, " \t\r"); len(line) > 0 {
			lines = append(append(lines, line...), '\n')
		}
	}
	return lines
}

// literal returns the length of the string or character literal at the start of text.
func literal(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return len(text)
}
