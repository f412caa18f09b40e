package jinja

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// golden is the content of testdata/golden.json: outputs of Jinja2 itself, written by testdata/generate.py.
type golden struct {
	Origin string
	Vars   json.RawMessage
	Cases  []struct {
		Name, Template, Error string
		Want                  *string
	}
}

func readGolden(t testing.TB) (golden, map[string]Value) {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	v, err := ParseJSON(g.Vars)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]Value{}
	dict := v.(*Dict)
	for i, key := range dict.keys {
		vars[key.(string)] = dict.vals[i]
	}
	return g, vars
}

func clock() time.Time { return time.Date(2026, 7, 4, 5, 6, 7, 0, time.UTC) }

func TestRendersAsJinja2Does(t *testing.T) {
	g, vars := readGolden(t)
	if len(g.Cases) < 150 {
		t.Fatalf("golden.json has %d cases, expected at least 150", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			got, err := renderText(c.Template, vars)
			if c.Want == nil {
				if err == nil {
					t.Errorf("template %q\nrendered %q\nbut Jinja2 fails with %s", c.Template, got, c.Error)
				}
				return
			}
			if err != nil || got != *c.Want {
				t.Errorf("template %q\ngot  %q (%v)\nwant %q", c.Template, got, err, *c.Want)
			}
		})
	}
}

func renderText(src string, vars map[string]Value) (string, error) {
	tmpl, err := Compile(src, Limits{})
	if err != nil {
		return "", err
	}
	out, err := tmpl.Render(Options{Vars: vars, Now: clock})
	return out.String(), err
}

// Expressions with operators between values, and with tests, filters and methods of values, have the results of Jinja2,
// or fail where Jinja2 fails.
func TestExpressionsAreThoseOfJinja2(t *testing.T) {
	var products struct {
		Lists map[string][]string
		Rows  []struct {
			Expression, With string
			Want             []*string
		}
	}
	data, err := os.ReadFile("testdata/products.json")
	if err == nil {
		err = json.Unmarshal(data, &products)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, vars := readGolden(t)
	for _, row := range products.Rows {
		for i, value := range products.Lists[row.With] {
			expression := "{{ " + strings.ReplaceAll(row.Expression, "@", value) + " }}"
			got, err := renderText(expression, vars)
			switch want := row.Want[i]; {
			case want != nil && *want == "?": // left out by generate.py
			case want == nil && err == nil:
				t.Errorf("%s is %q, but fails in Jinja2", expression, got)
			case want != nil && (err != nil || got != *want):
				t.Errorf("%s is %q (%v), want %q", expression, got, err, *want)
			}
		}
	}
}
