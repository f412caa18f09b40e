package jinja

import (
	"strings"
	"testing"

	"sparrow/internal/mark"
)

// With marked values a template renders the same text, or fails with the same error, as without marks.
func TestMarkedValuesRenderTheSameText(t *testing.T) {
	g, vars := readGolden(t)
	for _, c := range g.Cases {
		marked := markedVars(vars)
		got, err := renderText(c.Template, marked)
		if c.Want == nil && err == nil {
			t.Errorf("%s: template %q rendered %q, want an error", c.Name, c.Template, got)
		}
		if c.Want != nil && (err != nil || got != *c.Want) {
			t.Errorf("%s: template %q\ngot  %q (%v)\nwant %q", c.Name, c.Template, got, err, *c.Want)
		}
	}
}

func markedVars(vars map[string]Value) map[string]Value {
	out := map[string]Value{}
	for name, v := range vars {
		out[name] = Mark(v)
	}
	return out
}

// shown returns the text with « and » around its marked spans.
func shown(t mark.Text) string {
	var b strings.Builder
	at := 0
	for _, m := range t.Spans() {
		b.WriteString(t.String()[at:m.Start] + "«" + t.String()[m.Start:m.End] + "»")
		at = m.End
	}
	return b.String() + t.String()[at:]
}

func TestEveryOperationKeepsTheMarks(t *testing.T) {
	vars := map[string]Value{
		"c":    Mark("  a</think>b, é  "),
		"word": Mark("word"),
		"data": Mark(func() Value {
			d := NewDict()
			d.Set("k\"", NewList("v'", int64(1)))
			return d
		}()),
		"eos": "<eos>",
	}
	for _, c := range []struct{ name, src, want string }{
		{"output", "<u>{{ word }}</u>", "<u>«word»</u>"},
		{"plus", "{{ '<u>' + word + eos }}", "<u>«word»<eos>"},
		{"tilde", "{{ '<u>' ~ word ~ 1 }}", "<u>«word»1"},
		{"times", "{{ word * 2 }}{{ ('-' + word) * 2 }}", "«wordword»-«word»-«word»"},
		{"strip", "{{ c.strip() }}|{{ c.lstrip() }}|{{ c.rstrip() }}|{{ c | trim }}",
			"«a</think>b, é»|«a</think>b, é  »|«  a</think>b, é»|«a</think>b, é»"},
		{"strip of a mixed text", "{{ ('  <u>' + word + ' ') | trim }}", "<u>«word»"},
		{"strip of characters", "{{ ('xx' + word + 'xx').rstrip('x') }}", "xx«word»"},
		{"split", "{{ c.split('</think>')[-1].strip() }}|{{ c.split('</think>')[0] }}", "«b, é»|«  a»"},
		{"split at spaces", "{{ c.split() | join('-') }}", "«a</think>b,»-«é»"},
		{"rsplit", "{{ c.rsplit(',', 1)[0] }}", "«  a</think>b»"},
		{"partition", "{{ (eos + word).partition('>')[2] }}", "«word»"},
		{"splitlines", "{{ (word + '\\n' + eos).splitlines() | join('|') }}", "«word»|<eos>"},
		{"replace in a marked text", "{{ word.replace('o', '<o>') }}", "«w»<o>«rd»"},
		{"replace by a marked text", "{{ '<u>@</u>' | replace('@', word) }}", "<u>«word»</u>"},
		{"removeprefix and removesuffix", "{{ word.removeprefix('w') }}{{ (word + eos).removesuffix('s>') }}",
			"«ordword»<eo"},
		{"slice and index", "{{ word[1:] }}|{{ word[::-1] }}|{{ word[-1] }}|{{ ('<' + word + '>')[:3] }}",
			"«ord»|«drow»|«d»|<«wo»"},
		{"characters", "{% for x in '<' + 'ab' + word %}{{ x }}.{% endfor %}", "<.a.b.«w».«o».«r».«d»."},
		{"first, last and reverse", "{{ word | first }}{{ word | last }}{{ ('<' + word) | reverse }}", "«wddrow»<"},
		{"case", "{{ word | upper }}{{ word.title() }}{{ word | capitalize }}", "«WORDWordWord»"},
		{"case of a mixed text is marked whole", "{{ ('<u>' + word) | upper }}", "«<U>WORD»"},
		{"tojson", "{{ data | tojson }}", `{"«k\"»": ["«v'»", 1]}`},
		{"print", "{{ data }}", `{'«k"»': ["«v'»", 1]}`},
		{"percent", "{{ '<u>%s</u>%5s' % (word, 'x') }}", "<u>«word»</u>    x"},
		{"format", "{{ '<u>{}{n}'.format(word, n=eos) }}|{{ '<u>%s' | format(word) }}", "<u>«word»<eos>|<u>«word»"},
		{"join", "{{ [word, eos] | join(',') }}|{{ ','.join([word, eos]) }}", "«word»,<eos>|«word»,<eos>"},
		{"indent", "{{ (word + '\\n' + word) | indent(2) }}", "«word»\n  «word»"},
		{"string and safe", "{{ word | string }}{{ word | safe }}", "«wordword»"},
		{"escape", "{{ c | trim | e }}", "«a&lt;/think&gt;b, é»"},
		{"set block", "{% set x %}<u>{{ word }}{% endset %}{{ x }}", "<u>«word»"},
		{"macro", "{% macro m(x) %}<u>{{ x }}{% endmacro %}{{ m(word) | trim }}", "<u>«word»"},
		{"filter block", "{% filter trim %} <u>{{ word }} {% endfilter %}", "<u>«word»"},
		{"namespace", "{% set ns = namespace(t='') %}{% set ns.t = ns.t + word %}{{ ns.t }}", "«word»"},
		{"default", "{{ none | default(word, true) }}{{ nowhere | default(word) }}", "«wordword»"},
		{"keys", "{% for k, v in data.items() %}<{{ k }}>{% endfor %}", "<«k\"»>"},
		{"mapping made of it", "{{ {word: 1}['word'] }}{{ {'word': word}.word }}", "1«word»"},
		{"map and sort", "{{ [word, 'a'] | sort | map('upper') | join }}", "A«WORD»"},
		{"tests see characters", "{{ '</think>' in c }}{{ word == 'word' }}{{ word | length }}{{ word in ['word'] }}" +
			"{{ word is string }}{{ word.startswith('wo') }}{{ word.find('r') }}{{ word < 'x' }}{{ word is eq word }}",
			"TrueTrue4TrueTrueTrue2TrueTrue"},
	} {
		tmpl, err := Compile(c.src, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := tmpl.Render(Options{Vars: vars})
		if err != nil || shown(got) != c.want {
			t.Errorf("%s: %s\ngot  %s (%v)\nwant %s", c.name, c.src, shown(got), err, c.want)
		}
	}
}

// Whatever a template does with text of the request, every character of that text keeps its mark. The test uses
// characters that occur neither in the template nor in other values.
func FuzzNoTextLosesItsMark(f *testing.F) {
	g, vars := readGolden(f)
	for _, c := range g.Cases {
		f.Add(c.Template)
	}
	f.Add("{{ x.split('ꙮ') | join | replace('ꙮ', '') }}{{ [x] | tojson }}{{ x[1:] ~ '%s' % x }}")
	limits := Limits{Steps: 20_000, Depth: 200, Output: 1 << 16, Memory: 1 << 20, Source: 1 << 12}
	f.Fuzz(func(t *testing.T, src string) {
		tmpl, err := Compile(src, limits)
		if err != nil || strings.ContainsAny(src, "ꙮ\\") {
			return
		}
		named := map[string]Value{"x": Mark("aꙮbꙮ")}
		for name, v := range vars {
			named[name] = v
			if s, ok := v.(string); ok {
				named[name] = Mark(s + "ꙮ")
			}
		}
		out, err := tmpl.Render(Options{Vars: named, Now: clock})
		if err != nil {
			return
		}
		at := 0
		for _, m := range append(out.Spans(), mark.Span{Start: len(out.String()), End: len(out.String())}) {
			if strings.Contains(out.String()[at:m.Start], "ꙮ") {
				t.Fatalf("%q rendered %s", src, shown(out))
			}
			at = m.End
		}
	})
}
