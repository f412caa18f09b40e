package jinja

import (
	"errors"
	"testing"
	"unicode/utf8"
)

// FuzzRender checks that rendering any template neither panics nor hangs, and that errors have a position.
func FuzzRender(f *testing.F) {
	g, vars := readGolden(f)
	for _, c := range g.Cases {
		f.Add(c.Template)
	}
	limits := Limits{Steps: 20_000, Depth: 200, Output: 1 << 16, Memory: 1 << 20, Source: 1 << 12}
	f.Fuzz(func(t *testing.T, src string) {
		tmpl, err := Compile(src, limits)
		if err == nil {
			_, err = tmpl.Render(Options{Vars: vars, Now: clock})
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Line < 1 || e.Column < 1) {
			t.Errorf("error without a place: %v", err)
		}
	})
}

// FuzzJSON checks that a parsed JSON value is written as text that parses to the same value.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, null, true, "x\u00e9\n"]}`, `[]`, `1e400`, `-0`,
		`123456789012345678901234567890`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, `[`, `{"a"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseJSON([]byte(s))
		if err != nil {
			if !errors.Is(err, ErrJSON) {
				t.Errorf("error %v does not wrap ErrJSON", err)
			}
			return
		}
		first, err := JSON(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJSON([]byte(first))
		if err != nil {
			if utf8.ValidString(first) && first != "Infinity" && first != "-Infinity" && !containsInf(v) {
				t.Fatalf("%q was written as %q, which does not parse: %v", s, first, err)
			}
			return
		}
		if second, err := JSON(again); err != nil || second != first {
			t.Errorf("%q was written as %q and then as %q, error %v", s, first, second, err)
		}
	})
}

func containsInf(v Value) bool {
	switch v := v.(type) {
	case float64:
		return v > 1e308 || v < -1e308
	case *List:
		for _, item := range v.Items {
			if containsInf(item) {
				return true
			}
		}
	case *Dict:
		for _, item := range v.vals {
			if containsInf(item) {
				return true
			}
		}
	}
	return false
}
