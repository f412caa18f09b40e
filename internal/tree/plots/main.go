// Command plots draws diagrams of tables in documents. A comment above a table requests a diagram:
//
//	<!-- plot FILE: TITLE: X AXIS: Y AXIS -->
//
// The first column of the table is x; every other column in which the first row is a number is a line, named by its
// heading. Cells that are not numbers have no point. FILE is written to the folder of the document.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sparrow/internal/bench/plot"
)

func main() {
	for _, document := range os.Args[1:] {
		pictures, err := draw(document)
		for _, p := range pictures {
			if err == nil {
				err = os.WriteFile(p.file, p.svg, 0o644)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "plots:", err)
			os.Exit(1)
		}
	}
}

// picture is the diagram of a table.
type picture struct {
	file string
	svg  []byte
}

// draw draws the tables of a document that have a plot comment.
func draw(document string) (list []picture, err error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		rest, ok := strings.CutPrefix(line, "<!-- plot ")
		if !ok {
			continue
		}
		at := fmt.Sprintf("%s:%d", document, i+1)
		words := strings.SplitN(strings.TrimSuffix(rest, " -->"), ": ", 4)
		if len(words) != 4 {
			return nil, fmt.Errorf("%s: want <!-- plot FILE: TITLE: X AXIS: Y AXIS -->", at)
		}
		c := plot.Chart{Title: words[1], X: words[2], Y: words[3]}
		if c.Series, err = series(lines[i+1:]); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		var svg bytes.Buffer
		if err := c.Write(&svg); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		list = append(list, picture{filepath.Join(filepath.Dir(document), words[0]), svg.Bytes()})
	}
	return list, nil
}

// series reads the lines of a table: its heading, the separator line, and rows.
func series(lines []string) ([]plot.Series, error) {
	var rows [][]string
	for _, line := range lines {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, strings.Split(strings.Trim(line, "|"), "|"))
	}
	if len(rows) < 3 {
		return nil, fmt.Errorf("the table has %d lines; want a heading, a line of dashes and rows", len(rows))
	}
	var list []plot.Series
	for c := 1; c < len(rows[0]); c++ {
		s := plot.Series{Name: strings.TrimSpace(rows[0][c])}
		if _, ok := number(rows[2], c); !ok {
			continue
		}
		for i, row := range rows[2:] {
			x, ok := number(row, 0)
			if !ok {
				return nil, fmt.Errorf("row %d: %q is not a number", i+1, row[0])
			}
			if y, ok := number(row, c); ok {
				s.Points = append(s.Points, plot.Point{X: x, Y: y})
			}
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the table %q has no column of numbers", rows[0])
	}
	return list, nil
}

// number reads a cell; commas group digits.
func number(row []string, column int) (float64, bool) {
	if column >= len(row) {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(row[column]), ",", ""), 64)
	return v, err == nil
}
