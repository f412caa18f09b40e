package jinja

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"sparrow/internal/testkit/testflag"
)

// No template can hang the server or exhaust its memory; templates come with checkpoints, which may be hostile.
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
			out, err := tmpl.Render(Options{})
			if err == nil {
				t.Errorf("rendered %d bytes without an error", len(out.String()))
			} else if !errors.Is(err, ErrLimit) && !errors.Is(err, ErrRuntime) {
				t.Errorf("error %v, want a limit", err)
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
	// The parser reads long chains of operators in a loop, not by recursion.
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

// Several goroutines can render one template at the same time, because all requests share it.
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

// A template that loops or collects values endlessly is stopped within its memory limit and after a limited number of
// steps. A step reads or makes at most bytesPerStep bytes. The template's clock counts steps instead of time.
func TestTemplatesEndSoon(t *testing.T) {
	const input = 1000
	limits, most := DefaultLimits, 300_000
	if !*testflag.Long {
		limits.Steps, most = 500_000, 75_000
	}
	const long = "{% set s = 'A' * 1000000 %}{% set d = {'k': 1} %}"
	for _, c := range []struct {
		name, before, round string
		bytes               int // bytes that a round of the loop reads or makes
	}{
		{"long loop", "", "", 1},
		{"nested loops", "", "{% for b in range(30000) %}{% endfor %}", 30_000},
		{"long text", "", "{% set x = 'a' * 1000000000 %}{{ x }}", 1_000_000_000},
		{"doubled text", "{% set n = namespace(s='aa') %}", "{% set n.s = n.s+n.s %}", 1},
		{"doubled list", "{% set n = namespace(l=[1]) %}", "{% set n.l = n.l + n.l %}", 1},
		{"much output", "", "{{ 'abcdefgh' * 100 }}", 800},
		{"texts again", "", "{% set x = ('a' * 100000) | upper | length %}", 100_000},
		{"split and join", "", "{% set x = ('ab' * 5000).split('a') | join('c') %}", 10_000},
		{"searches", long, "{% set x = 'b' in s %}", 1_000_000},
		{"searches by a method", long, "{% set x = s.find('b') %}", 1_000_000},
		{"comparisons", long + "{% set t = s + 'A' %}{% set u = s + 'A' %}", "{% set x = t == u %}", 1_000_000},
		{"long keys", long, "{% set x = d[s] %}", 1_000_000},
		{"long keys of a method", long, "{% set x = d.get(s) %}", 1_000_000},
		{"long keys of a mapping", long, "{% set x = {s: 1} %}", 1_000_000},
		{"long keys of dict()", long, "{% set x = dict([[s, 1]]) %}", 1_000_000},
		{"long tuples as keys", "{% set l = (1,) * 100000 %}", "{% set x = {l: 1} %}", 300_000},
		{"a long list printed", "{% set l = range(100000) | list %}", "{% set x = l | trim | length %}", 500_000},
		{"a long list printed as a separator", "{% set l = range(100000) | list %}",
			"{% set x = [1] | join(l) %}", 500_000},
		{"a long list as a key", "{% set l = range(100000) | list %}{% set d = {} %}", "{% set x = d[l] %}", 1},
		{"one text often sorted", long + "{% set l = [s] * 100000 %}", "{% set x = l | sort %}", 1_000_000},
		{"one text often told apart", long + "{% set l = [s] * 100000 %}",
			"{% set x = l | unique(case_sensitive=true) %}", 1_000_000},
		{"a long list often formatted", "{% set l = (range(100000) | list,) * 1000 %}",
			"{% set x = ('%s' * 1000) % l %}", 500_000},
	} {
		src := c.before + fmt.Sprintf("{%% for i in range(%d) %%}", most) + c.round +
			"{{ strftime_now('') }}{% endfor %}"
		template, err := Compile(src, limits)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		rounds := 0
		count := func() time.Time {
			rounds++
			return time.Time{}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = template.Render(Options{Input: input, Now: count})
		runtime.ReadMemStats(&after)
		made := after.TotalAlloc - before.TotalAlloc
		if !errors.Is(err, ErrLimit) || made > 1<<30 {
			t.Errorf("%s: error %v after %d rounds and %d MB", c.name, err, rounds, made>>20)
		}
		if most := limits.For(input).Steps * bytesPerStep; rounds*c.bytes > most {
			t.Errorf("%s: %d rounds of %d bytes, more than the %d bytes that its steps allow",
				c.name, rounds, c.bytes, most)
		}
		t.Logf("%s: %d rounds, %d MB", c.name, rounds, made>>20)
	}
}
