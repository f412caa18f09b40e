package grammar

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// corpus returns the schemas of the tests of this package and all their documents that are JSON.
func corpus(t *testing.T) (schemas, docs []string) {
	t.Helper()
	for _, c := range schemaCases() {
		schemas = append(schemas, c.schema)
		docs = append(append(docs, c.accept...), c.reject...)
	}
	schemas = append(schemas, walkSchemas...)
	docs = slices.DeleteFunc(docs, func(d string) bool {
		var v any // numbers must fit a float64
		return json.Unmarshal([]byte(d), &v) != nil
	})
	slices.Sort(docs)
	return schemas, slices.Compact(docs)
}

// judged returns the validator's result for a document. able is false for a schema with references or patterns that the
// validator cannot read.
func judged(schema, doc string) (bad error, able bool) {
	defer func() {
		if recover() != nil {
			able = false
		}
	}()
	return check(schema, doc), true
}

// holds decides whether a given value satisfies a schema as the independent validator does, for every schema and every
// document of the tests of this package.
func TestGivenValuesAreJudgedAsByTheValidator(t *testing.T) {
	tokens := tokensOf(t)
	schemas, docs := corpus(t)
	agreed := 0
	for _, text := range schemas {
		if strings.Contains(text, `"format"`) {
			continue // the validator does not check every format
		}
		root, err := parseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c := newCompiler(root, tokens, Options{}, &skipped{strict: true})
		s, err := c.logic.parser.parse(&c.logic.parser.root, "", "")
		if err != nil {
			continue // the schema has a keyword that is not enforced
		}
		for _, doc := range docs {
			v, err := parseValue([]byte(doc))
			if err != nil {
				continue
			}
			got, err := c.logic.holds(s, &v, maxHolds)
			if err != nil {
				t.Errorf("%s: %s: %v", text, doc, err)
				continue
			}
			bad, able := judged(text, doc)
			if able && got != (bad == nil) {
				t.Errorf("%s holds for %s: %v, but the validator says %v", text, doc, got, bad)
			}
			if able {
				agreed++
			}
		}
	}
	if agreed < 10_000 {
		t.Errorf("only %d values were judged", agreed)
	}
}

// Each schema accepts exactly the documents that the golden table lists, out of all documents of the tests of this
// package.
func TestTableOfAcceptedDocuments(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	schemas, docs := corpus(t)
	var lines []string
	for _, text := range schemas {
		g, err := Compile([]byte(text), tokens)
		if err != nil {
			t.Fatal(err)
		}
		h := fnv.New32a()
		n := 0
		for _, doc := range docs {
			s := g.Start()
			if s.AcceptString(doc) == nil && s.Done() {
				n++
				fmt.Fprintln(h, doc)
			}
		}
		name := strings.Join(strings.Fields(text), " ")
		lines = append(lines, fmt.Sprintf("%.150s => %d of %d, %08x", name, n, len(docs), h.Sum32()))
	}
	table.Check(t, "accepted.txt", lines)
}
