package jinja

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Templates come with checkpoints: none may hang the server or eat its memory.
func TestHostileTemplatesStop(t *testing.T) {
	limits := Limits{Steps: 200_000, Depth: 300, Output: 1 << 20, Memory: 4 << 20}
	for _, c := range []struct{ name, src string }{
		{"endless loops", "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor " +
			"%}{% endfor %}{% endfor %}"},
		{"huge range", "{{ range(9999999999999) | length }}"},
		{"macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
		{"two macros that call each other",
			"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"},
		{"long output", "{% for a in range(9999) %}{{ 'x' * 1000 }}{% endfor %}"},
		{"string multiplied", "{{ 'x' * 99999999999 }}"},
		{"list multiplied", "{{ [1] * 99999999999 }}"},
		{"doubling string",
			"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"},
		{"doubling by concatenation",
			"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}"},
		{"doubling by replace", "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s | " +
			"replace('x', 'xx') %}{% endfor %}"},
		{"doubling by join",
			"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = [n.s, n.s] | join %}{% endfor %}"},
		{"doubling by format",
			"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = '%s%s' % (n.s, n.s) %}{% endfor %}"},
		{"doubling list",
			"{% set n = namespace(l=[1]) %}{% for a in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}"},
		{"doubling by extend", "{% set l = [1] %}{% for a in range(99) %}{% set x = l.extend(l) %}{% endfor %}"},
		{"capture that grows", "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s %}{{ n.s }}{{ n.s " +
			"}}{% endset %}{% endfor %}"},
		{"shared lists printed",
			"{% set n = namespace(l=[1]) %}{% for a in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}"},
		{"shared lists as JSON", "{% set n = namespace(l=[1]) %}{% for a in range(99) %}{% set n.l = [n.l, n.l] " +
			"%}{% endfor %}{{ n.l | tojson }}"},
		{"shared lists compared", "{% set n = namespace(l=[1], m=[1]) %}{% for a in range(99) %}{% set n.l = [n.l, " +
			"n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}{{ n.l == n.m }}"},
		{"searching a long text again and again", "{% set s = 'a' * 900000 %}{% for a in range(9999) %}{% if 'b' " +
			"in s or s.find('b') > 0 or s | length == 1 or s[899999] == 'b' %}{% endif %}{% endfor %}"},
		{"comparing long lists again and again", "{% set l = [range(9999) | list] %}{% set m = [range(9999) | " +
			"list] %}{% for a in range(999) %}{% if l == m and l in [m] * 99 %}{% endif %}{% endfor %}"},
		{"list in itself as JSON", "{% set l = [] %}{% set x = l.append(l) %}{{ l | tojson }}"},
		{"wide indent", "{{ ('a\n' * 1000) | indent(999999) }}"},
		{"wide format", "{{ '%999999999d' % 1 }}"},
		{"huge power", "{{ 9 ** 999999 }}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl, err := Compile(c.src, limits)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			out, err := tmpl.Render(Options{})
			if err == nil {
				t.Errorf("rendered %d bytes without an error", len(out.String()))
			} else if !errors.Is(err, ErrLimit) && !errors.Is(err, ErrRuntime) {
				t.Errorf("error %v, want a limit", err)
			}
			if d := time.Since(start); d > 30*time.Second {
				t.Errorf("took %v to stop", d)
			}
		})
	}
}

func TestDeeplyNestedSourceIsRefused(t *testing.T) {
	for _, c := range []struct{ name, src string }{
		{"parentheses", "{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}"},
		{"lists", "{{ " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + " }}"},
		{"signs", "{{ " + strings.Repeat("-", 100_000) + "1 }}"},
		{"not", "{{ " + strings.Repeat("not ", 100_000) + "1 }}"},
		{"inline if", "{{ " + strings.Repeat("1 if 1 else ", 50_000) + "1 }}"},
		{"blocks", strings.Repeat("{% if 1 %}", 50_000) + strings.Repeat("{% endif %}", 50_000)},
		{"length", strings.Repeat("x", 2<<20)},
	} {
		if _, err := Compile(c.src, Limits{}); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: error %.80v, want ErrLimit", c.name, err)
		}
	}
	// Long chains are flat for the reader, and must not be deep for the machine.
	for _, c := range []struct{ name, src, want string }{
		{"sum", "{{ 0" + strings.Repeat(" + 1", 50_000) + " }}", "50000"},
		{"or", "{{ 0" + strings.Repeat(" or 0", 50_000) + " or 7 }}", "7"},
	} {
		if got, err := renderText(c.src, nil); err != nil || got != c.want {
			t.Errorf("%s: %q, error %v, want %s", c.name, got, err, c.want)
		}
	}
	if _, err := renderText("{{ x"+strings.Repeat("|upper", 50_000)+" }}", nil); !errors.Is(err, ErrLimit) {
		t.Errorf("filter chain: error %v, want ErrLimit", err)
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for _, c := range []struct {
		src          string
		line, column int
		is           error
		has          string
	}{
		{"a\n{{ 1 + }}", 2, 8, ErrSyntax, "expected an expression"},
		{"é{% if %}", 1, 8, ErrSyntax, "expected an expression"},
		{"x\n  {% nope %}", 2, 6, ErrSyntax, "unknown tag 'nope'"},
		{"{% include 'x' %}", 1, 4, ErrUnsupported, "include"},
		{"{{ x | nope }}", 1, 8, ErrUnsupported, "filter 'nope'"},
		{"{{ x is nope }}", 1, 9, ErrUnsupported, "test 'nope'"},
		{"{% for a in b recursive %}{% endfor %}", 1, 15, ErrUnsupported, "recursive"},
		{"\n\n{{ 'a' + 1 }}", 3, 8, ErrRuntime, "'+' does not work between str and int"},
		{"{{ a.b.c }}", 1, 5, ErrRuntime, "'a' is undefined"},
		{"\n {{ raise_exception('stop: ' ~ 1) }}", 2, 20, ErrRaised, "stop: 1"},
		{"{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}", 2, 6, ErrRuntime, "division by zero"},
	} {
		_, err := renderText(c.src, nil)
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line || e.Column != c.column || !errors.Is(err, c.is) ||
			!strings.Contains(err.Error(), c.has) {
			t.Errorf("%q: error %v, want line %d, column %d, %q", c.src, err, c.line, c.column, c.has)
		}
	}
}

func TestClockMustBeGiven(t *testing.T) {
	tmpl, err := Compile("{{ strftime_now('%Y') }}", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(Options{}); !errors.Is(err, ErrRuntime) {
		t.Errorf("error %v, want ErrRuntime", err)
	}
}

func TestNamesAreThoseTheTemplateReads(t *testing.T) {
	tmpl, err := Compile("{% if tools %}{{ messages[0].tools2 | upper }}{% endif %} documents {# hidden #}", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	names := tmpl.Names()
	if !names["tools"] || !names["messages"] || names["tools2"] || names["documents"] || names["upper"] ||
		names["hidden"] {
		t.Errorf("names %v", names)
	}
}

// A template is shared by all requests.
func TestTemplatesAreSafeForConcurrentUse(t *testing.T) {
	tmpl, err := Compile(
		"{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]Value{"xs": NewList(int64(1), int64(2), int64(3))}
	done := make(chan string)
	for range 8 {
		go func() {
			out := ""
			for range 50 {
				text, err := tmpl.Render(Options{Vars: vars})
				if out = text.String(); err != nil {
					out = err.Error()
				}
			}
			done <- out
		}()
	}
	for range 8 {
		if out := <-done; out != "6" {
			t.Errorf("rendered %q, want 6", out)
		}
	}
	if _, changed := vars["ns"]; changed {
		t.Error("rendering wrote to the caller's variables")
	}
}

// A template that loops or collects values for its own sake ends within a second and within its memory, whatever it
// does; one that reads a long conversation has what it needs.
func TestTemplatesEndSoon(t *testing.T) {
	for name, src := range map[string]string{
		"long loop":      "{% for i in range(100000000) %}{% endfor %}",
		"nested loops":   "{% for a in range(30000) %}{% for b in range(30000) %}{% endfor %}{% endfor %}",
		"long text":      "{% set x = 'a' * 1000000000 %}{{ x }}",
		"doubled text":   "{% set n = namespace(s='aa') %}{% for i in range(64) %}{% set n.s = n.s+n.s %}{% endfor %}",
		"doubled list":   "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}",
		"much output":    "{% for i in range(1000000) %}{{ 'abcdefgh' * 100 }}{% endfor %}",
		"texts again":    "{% for i in range(100000) %}{% set x = ('a' * 100000) | upper | length %}{% endfor %}",
		"split and join": "{% for i in range(100000) %}{% set x = ('ab' * 5000).split('a') | join('c') %}{% endfor %}",
	} {
		template, err := Compile(src, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		_, err = template.Render(Options{Input: 1000})
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrLimit) || took > slowdown*3*time.Second || after.TotalAlloc-before.TotalAlloc > 1<<30 {
			t.Errorf("%s: error %v after %v and %d MB", name, err, took, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
		t.Logf("%s: %v, %d MB", name, took, (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}
