package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// suggestion returns a clause for an error with the known word that is most similar to word; it is empty if none is
// similar.
func suggestion(word string, known []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := edits(word, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		for _, k := range known {
			if len(word) > 1 && strings.HasPrefix(k, word) {
				best = k
				break
			}
		}
	}
	if best == "" { // compare with the last part of a name, such as --schema with --json-schema
		end := "-" + strings.TrimLeft(word, "-")
		for _, k := range known {
			if len(end) > 3 && strings.HasSuffix(k, end) {
				best = k
				break
			}
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// edits returns the edit distance of a and b: the number of letters to insert, delete, replace, or swap with their
// neighbour.
func edits(a, b string) int {
	x, y := []rune(a), []rune(b)
	// row[i][j] is the number of edits from the first i letters of a to the first j letters of b.
	row := make([][]int, len(x)+1)
	for i := range row {
		row[i] = make([]int, len(y)+1)
		for j := range row[i] {
			switch {
			case i == 0:
				row[i][j] = j
			case j == 0:
				row[i][j] = i
			case x[i-1] == y[j-1]:
				row[i][j] = row[i-1][j-1]
			default:
				row[i][j] = 1 + min(row[i-1][j-1], row[i-1][j], row[i][j-1])
			}
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[i][j] = min(row[i][j], row[i-2][j-2]+1)
			}
		}
	}
	return row[len(x)][len(y)]
}

// flagNames returns the flags of a command as they are typed.
func flagNames(s *pflag.FlagSet) []string {
	var names []string
	s.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}
