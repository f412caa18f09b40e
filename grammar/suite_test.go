package grammar

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var suiteDir = flag.String("suite", "",
	"folder of the JSON Schema test suite that holds draft4, draft7 and draft2020-12")

// suiteGroup is a schema of the JSON Schema test suite with its instances.
type suiteGroup struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Description string          `json:"description"`
		Data        json.RawMessage `json:"data"`
		Valid       bool            `json:"valid"`
	} `json:"tests"`
}

// tally counts the results of the instances of one keyword.
type tally struct {
	written, blocked     int // valid instances that can and cannot be written
	unreachable, escaped int // invalid instances that cannot and can be written
	unenforced           int // invalid instances that can be written because a keyword is ignored
	refused              int // instances of schemas that do not compile
}

// suiteExceptions lists groups whose valid instances are intentionally not produced; docs/schemas.md states why.
var suiteExceptions = map[string]bool{
	// Formats are enforced here; draft 2020-12 treats them as annotations.
	"draft2020-12/format: email format":     true,
	"draft2020-12/format: ipv4 format":      true,
	"draft2020-12/format: ipv6 format":      true,
	"draft2020-12/format: hostname format":  true,
	"draft2020-12/format: date format":      true,
	"draft2020-12/format: date-time format": true,
	"draft2020-12/format: time format":      true,
	"draft2020-12/format: uri format":       true,
	"draft2020-12/format: uuid format":      true,
	"draft2020-12/format: duration format":  true,
	// This schema names another metaschema, which declares that validation keywords have no meaning.
	"draft2020-12/vocabulary: schema that uses custom metaschema with with no validation vocabulary": true,
}

// TestSuite writes every instance of the JSON Schema test suite byte by byte under the mask. Valid instances must be
// writable with their members in some order; invalid instances must not be.
func TestSuite(t *testing.T) {
	if *suiteDir == "" {
		t.Skip("give the folder of the JSON Schema test suite: make schemas DIR=...")
	}
	tokens := tokensOf(t, pieces...)
	for _, draft := range []string{"draft4", "draft7", "draft2020-12"} {
		files, err := filepath.Glob(filepath.Join(*suiteDir, draft, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests of %s in %s: %v", draft, *suiteDir, err)
		}
		var total tally
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			sum := runSuiteFile(t, tokens, draft, name, file)
			t.Logf("%s", sum.row(draft+" "+name))
			total.add(sum)
		}
		t.Logf("%s", total.row(draft+" total"))
	}
}

// suiteSchemas returns the schemas of the test suite, or none if the folder of the suite is not given.
func suiteSchemas(b *testing.B) (list []string) {
	if *suiteDir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(*suiteDir, "draft*", "*.json"))
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		var groups []suiteGroup
		if err := json.Unmarshal(data, &groups); err != nil {
			b.Fatal(err)
		}
		for _, g := range groups {
			list = append(list, string(g.Schema))
		}
	}
	return list
}

func (a *tally) add(b tally) {
	a.written += b.written
	a.blocked += b.blocked
	a.unreachable += b.unreachable
	a.escaped += b.escaped
	a.unenforced += b.unenforced
	a.refused += b.refused
}

func (a *tally) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d |", name, a.written, a.blocked, a.unreachable, a.escaped,
		a.unenforced, a.refused)
}

func runSuiteFile(t *testing.T, tokens *Tokens, draft, name, file string) (sum tally) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []suiteGroup
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, group := range groups {
		place := draft + "/" + name + ": " + group.Description
		g, err := Compile(withDraft(group.Schema, draft), tokens)
		if err != nil && !errors.Is(err, ErrUnsatisfiable) {
			t.Logf("%s: refused: %v", place, err)
			sum.refused += len(group.Tests)
			continue
		}
		unenforced := g != nil && slices.ContainsFunc(g.Ignored(), func(i Ignored) bool { return i.Asserts })
		for _, test := range group.Tests {
			v, err := parseValue(test.Data)
			if err != nil {
				t.Fatalf("%s: %s: %v", place, test.Description, err)
			}
			can := g != nil && writable(t, g, &v)
			wrong := func(what string) {
				if !suiteExceptions[place] {
					t.Errorf("%s: %s: %s: %s under %s", place, test.Description, v.append(nil), what, group.Schema)
				}
			}
			switch {
			case test.Valid && can:
				sum.written++
			case test.Valid:
				sum.blocked++
				wrong("valid but not writable")
			case !can:
				sum.unreachable++
			case unenforced:
				sum.unenforced++
			default:
				sum.escaped++
				wrong("invalid but writable")
			}
		}
	}
	return sum
}

// withDraft returns the schema with "$schema" set to the draft of the suite's folder, unless the schema already has it.
func withDraft(schema json.RawMessage, draft string) []byte {
	uri := map[string]string{"draft4": "http://json-schema.org/draft-04/schema#",
		"draft7": "http://json-schema.org/draft-07/schema#"}[draft]
	text := strings.TrimSpace(string(schema))
	if uri == "" || !strings.HasPrefix(text, "{") || strings.Contains(text, `"$schema"`) {
		return schema
	}
	rest := strings.TrimSpace(text[1:])
	if rest != "}" {
		rest = "," + rest
	}
	return []byte(fmt.Sprintf(`{"$schema":%q%s`, uri, rest))
}

// writable reports whether a value can be written under the mask with its members in any order.
func writable(t *testing.T, g *Grammar, v *value) bool {
	w := &suiteWriter{t: t, mask: make([]uint64, g.tokens.MaskWords())}
	return w.put(g.Start(), v, func(s *State) bool { return s.Done() })
}

type suiteWriter struct {
	t    *testing.T
	mask []uint64
}

// text writes a text as tokens of single bytes and calls then. It reports false if the mask forbids a byte.
func (w *suiteWriter) text(s *State, text string, then func(*State) bool) bool {
	s = s.Clone()
	for _, b := range []byte(text) {
		if err := s.Mask(w.mask); err != nil {
			w.t.Fatal(err)
		}
		allowed := w.mask[b/64]>>(b%64)&1 == 1
		if err := s.Accept(int32(b)); allowed != (err == nil) {
			w.t.Fatalf("%q: the mask says %v, Accept %v", b, allowed, err)
		}
		if !allowed {
			return false
		}
	}
	return then(s)
}

func (w *suiteWriter) put(s *State, v *value, then func(*State) bool) bool {
	switch v.kind {
	case numberValue:
		return slices.ContainsFunc(spellings(v.text), func(text string) bool { return w.text(s, text, then) })
	case arrayValue:
		return w.text(s, "[", func(s *State) bool { return w.elements(s, v.list, 0, then) })
	case objectValue:
		return w.text(s, "{", func(s *State) bool { return w.members(s, v.members, 0, then) })
	}
	return w.text(s, string(v.append(nil)), then)
}

func (w *suiteWriter) elements(s *State, list []value, i int, then func(*State) bool) bool {
	if i == len(list) {
		return w.text(s, "]", then)
	}
	sep := ","
	if i == 0 {
		sep = ""
	}
	return w.text(s, sep, func(s *State) bool {
		return w.put(s, &list[i], func(s *State) bool { return w.elements(s, list, i+1, then) })
	})
}

// members reports whether some order of the members from index i on can be written.
func (w *suiteWriter) members(s *State, list []member, i int, then func(*State) bool) bool {
	if i == len(list) {
		return w.text(s, "}", then)
	}
	sep := ","
	if i == 0 {
		sep = ""
	}
	for j := i; j < len(list); j++ {
		order := slices.Clone(list)
		order[i], order[j] = order[j], order[i]
		name := sep + string(appendString(nil, order[i].name)) + ":"
		if w.text(s, name, func(s *State) bool {
			return w.put(s, &order[i].value, func(s *State) bool { return w.members(s, order, i+1, then) })
		}) {
			return true
		}
	}
	return false
}

// spellings returns the shortest ways to write a number: as plain digits, and as in the test suite.
func spellings(text string) []string {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return []string{text}
	}
	return []string{r.FloatString(fractionDigits(r)), text}
}
