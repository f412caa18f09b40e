// Command width exits with status 1 if a hand-written line of the tree is longer than 120 columns. A tab counts as four
// columns. It does not check generated files, testdata, tables and code blocks of Markdown, and long lines inside a raw
// string of Go, because a line break would change them.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	limit    = 120
	tabWidth = 4
)

func main() {
	files, err := listFiles()
	if err != nil {
		fmt.Fprintln(os.Stderr, "width:", err)
		os.Exit(1)
	}
	failed := false
	for _, name := range files {
		if !checked(name) {
			continue
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was deleted, but is still in the index
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "width:", err)
			os.Exit(1)
		}
		for _, l := range longLines(name, text) {
			failed = true
			fmt.Printf("%s:%d: %d columns, at most %d are allowed\n", name, l.number, l.columns, limit)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// listFiles returns the files that git tracks or would track.
func listFiles() ([]string, error) {
	out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// checked reports whether the width of the lines of a file is checked, by its path.
func checked(name string) bool {
	if strings.Contains("/"+filepath.ToSlash(name), "/testdata/") {
		return false
	}
	switch filepath.Ext(name) {
	case ".go", ".s", ".cu", ".cuh", ".h", ".md", ".sh", ".py", ".js", ".mjs", ".html", ".css":
		return true
	}
	return filepath.Base(name) == "Makefile"
}

// A longLine is one line over the limit.
type longLine struct {
	number  int // line number, from 1
	columns int
}

// longLines returns the lines of a file over the limit, except exempt lines.
func longLines(name string, text []byte) []longLine {
	if generated(text) {
		return nil
	}
	exempt := func(int) bool { return false }
	switch filepath.Ext(name) {
	case ".go":
		exempt = rawStrings(text)
	case ".md":
		exempt = tablesAndCode(text)
	}
	var list []longLine
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if c := columns(bytes.TrimRight(line, "\r\n")); c > limit && !exempt(n) {
			list = append(list, longLine{n, c})
		}
	}
	return list
}

func columns(line []byte) int {
	n := 0
	for _, r := range string(line) {
		if r == '\t' {
			n += tabWidth - n%tabWidth
		} else {
			n++
		}
	}
	return n
}

// generated reports whether a file has the line that marks generated Go and assembly.
func generated(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if bytes.HasPrefix(line, []byte("// Code generated ")) && bytes.HasSuffix(line, []byte(" DO NOT EDIT.")) {
			return true
		}
		if !bytes.HasPrefix(line, []byte("//")) && len(line) > 0 {
			return false
		}
	}
	return false
}

// tablesAndCode finds the lines of Markdown that cannot be broken: rows of tables, and code between fences.
func tablesAndCode(text []byte) func(line int) bool {
	found := map[int]bool{}
	fenced, n := false, 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		fence := bytes.HasPrefix(line, []byte("```"))
		found[n] = fenced || fence || bytes.HasPrefix(line, []byte("|"))
		if fence {
			fenced = !fenced
		}
	}
	return func(line int) bool { return found[line] }
}

// rawStrings finds the lines of Go where the part of a raw string crosses the limit.
func rawStrings(text []byte) func(line int) bool {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	found := map[int]bool{}
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return func(line int) bool { return found[line] }
		}
		if kind != token.STRING || literal[0] != '`' {
			continue
		}
		number := file.Line(pos)
		before := text[file.Offset(file.LineStart(number)):file.Offset(pos)]
		for part := range strings.Lines(literal) {
			part = strings.TrimRight(part, "\r\n")
			if columns(before) <= limit && columns(append(bytes.Clone(before), part...)) > limit {
				found[number] = true
			}
			before = nil
			number++
		}
	}
}
