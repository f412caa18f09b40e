package grammar

import (
	"encoding/json"
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// sketch is a schema together with a way to write documents that satisfy it, in the spelling that the grammar produces.
type sketch struct {
	schema string
	doc    func(t *rapid.T, w *style) string
}

// style is the layout of a document.
type style struct {
	indent string // indentation of each level, or "" for a document on one line
	space  string // written after commas and colons in a document on one line
	level  int
	budget int // values left to write before recursion stops
}

func (w *style) brackets(open, shut string, members []string) string {
	if len(members) == 0 {
		return open + shut
	}
	if w.indent == "" {
		return open + strings.Join(members, ","+w.space) + shut
	}
	pad := "\n" + strings.Repeat(w.indent, min(w.level+1, 10))
	return open + pad + strings.Join(members, ","+pad) + "\n" + strings.Repeat(w.indent, min(w.level, 10)) + shut
}

func (w *style) inside(f func()) {
	w.level++
	f()
	w.level--
}

func fixed(schema string, docs ...string) sketch {
	return sketch{schema, func(t *rapid.T, _ *style) string { return rapid.SampledFrom(docs).Draw(t, "doc") }}
}

var textRunes = []rune("aB \"\\/\n\t\u0001\u007fé日😀")

func quoted(t *rapid.T, least, most int) string {
	return string(appendString(nil, rapid.StringOfN(rapid.SampledFrom(textRunes), least, most, -1).Draw(t, "text")))
}

// leafSketch returns a random schema of values without members, such as strings, numbers, booleans and null.
func leafSketch(t *rapid.T) sketch {
	switch rapid.IntRange(0, 11).Draw(t, "leaf") {
	case 0:
		return fixed(`{"type":"null"}`, "null")
	case 1:
		return fixed(`{"type":"boolean"}`, "true", "false")
	case 2:
		return sketch{`{"type":"string"}`, func(t *rapid.T, _ *style) string { return quoted(t, 0, 8) }}
	case 3:
		least := rapid.IntRange(0, 4).Draw(t, "least")
		most := least + rapid.IntRange(0, 6).Draw(t, "more")
		return sketch{fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, least, most),
			func(t *rapid.T, _ *style) string { return quoted(t, least, most) }}
	case 4:
		return rapid.SampledFrom([]sketch{
			fixed(`{"type":"string","pattern":"^[a-f]+(-[0-9]{2,4})?$"}`, `"abc"`, `"f-12"`, `"a-2024"`),
			fixed(`{"type":"string","pattern":"b.b"}`, `"bab"`, `"xb日by"`, `"b\"b"`, `"bbb"`),
			fixed(`{"type":"string","pattern":"^(ab|c)*$","minLength":2,"maxLength":6}`, `"ab"`, `"cc"`, `"abcab"`),
			fixed(`{"type":"string","pattern":"^[^a]é?$"}`, `"\n"`, `"bé"`, `"\\"`, `"é"`),
			fixed(`{"type":"string","format":"date"}`, `"2024-02-29"`, `"2023-12-31"`),
			fixed(`{"type":"string","format":"date-time"}`, `"2024-02-29T00:00:00Z"`, `"2023-12-31T23:59:59.5-08:00"`),
			fixed(`{"type":"string","format":"ipv4"}`, `"10.0.0.255"`),
			fixed(`{"type":"string","format":"ipv6"}`, `"::1"`, `"1:2:3:4:5:6:7:8"`),
		}).Draw(t, "pattern")
	case 5:
		return sketch{`{"type":"integer"}`, func(t *rapid.T, _ *style) string {
			return fmt.Sprint(rapid.Int64Range(-999999999999999999, 999999999999999999).Draw(t, "integer"))
		}}
	case 6:
		lo := rapid.IntRange(-3000, 3000).Draw(t, "lo")
		step := rapid.SampledFrom([]int{1, 1, 2, 7, 60}).Draw(t, "step")
		// Rounds lo down to a multiple of step; the next lines raise it to lo or above.
		least := (lo + 3000*step) / step * step
		least = least - 3000*step
		if least < lo {
			least += step
		}
		n := rapid.IntRange(0, 50).Draw(t, "n")
		return sketch{fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d,"multipleOf":%d}`, lo, least+n*step,
			step), func(t *rapid.T, _ *style) string {
			return fmt.Sprint(least + step*rapid.IntRange(0, n).Draw(t, "at"))
		}}
	case 7:
		return fixed(`{"type":"number"}`, "0", "-0", "1.5", "-12.25e-7", "3E+9", "100", "0.001")
	case 8:
		lo := rapid.IntRange(-500, 500).Draw(t, "lo")
		n := rapid.IntRange(1, 300).Draw(t, "n")
		return sketch{fmt.Sprintf(`{"type":"number","exclusiveMinimum":%d.%02d,"maximum":%d}`, lo, 50, lo+n),
			func(t *rapid.T, _ *style) string {
				return fmt.Sprint(lo + rapid.IntRange(1, n).Draw(t, "at"))
			}}
	case 9:
		return fixed(`{"enum":["a","ab","b\n",1,-2.50,null,{"x":[]},[1,2]]}`, `"a"`, `"ab"`, `"b\n"`, "1", "-2.50",
			"null", `{"x":[]}`, `[1,2]`)
	case 10:
		return fixed(`{"type":["integer","null","string"],"maximum":9,"maxLength":1}`, "null", "9", "-5", `"x"`, `""`)
	}
	return sketch{`true`, func(t *rapid.T, w *style) string { return anyValue(t, w, 2) }}
}

func anyValue(t *rapid.T, w *style, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		return rapid.SampledFrom([]string{"0", "-1.5e3", "77"}).Draw(t, "number")
	case 2, 3:
		return quoted(t, 0, 4)
	}
	var members []string
	w.inside(func() {
		for i := range rapid.IntRange(0, 3).Draw(t, "members") {
			v := anyValue(t, w, depth-1)
			if kind == 4 {
				v = fmt.Sprintf(`"k%d":%s%s`, i, w.space, v)
			}
			members = append(members, v)
		}
	})
	if kind == 4 {
		return w.brackets("{", "}", members)
	}
	return w.brackets("[", "]", members)
}

// schemaSketch returns a random schema of the supported kinds, nested up to depth.
func schemaSketch(t *rapid.T, depth int) sketch {
	if depth == 0 {
		return leafSketch(t)
	}
	switch rapid.IntRange(0, 7).Draw(t, "shape") {
	case 0:
		return leafSketch(t)
	case 1:
		return arraySketch(t, depth)
	case 2, 3, 4:
		return objectSketch(t, depth)
	case 5:
		a, b := schemaSketch(t, depth-1), schemaSketch(t, depth-1)
		return sketch{fmt.Sprintf(`{"anyOf":[%s,%s]}`, a.schema, b.schema), func(t *rapid.T, w *style) string {
			if rapid.Bool().Draw(t, "first") {
				return a.doc(t, w)
			}
			return b.doc(t, w)
		}}
	case 6:
		return sketch{`{"$ref":"#/$defs/tree"}`, tree}
	}
	o := objectSketch(t, depth)
	// Every object satisfies the second schema of allOf, so it must not change the result.
	return sketch{fmt.Sprintf(`{"allOf":[%s,{"type":"object","properties":{"p0":true}}]}`, o.schema), o.doc}
}

// treeSchema is the recursive definition that random schemas refer to.
const treeSchema = `{"type":"object","properties":{"v":{"type":"integer","minimum":0,"maximum":99},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":3}},"required":["v"],"additionalProperties":false}`

func tree(t *rapid.T, w *style) string {
	members := []string{fmt.Sprintf(`"v":%s%d`, w.space, rapid.IntRange(0, 99).Draw(t, "v"))}
	w.budget--
	if w.budget > 0 && rapid.Bool().Draw(t, "kids") {
		w.inside(func() {
			var kids []string
			w.inside(func() {
				for range rapid.IntRange(0, 3).Draw(t, "n") {
					kids = append(kids, tree(t, w))
				}
			})
			members = append(members, `"kids":`+w.space+w.brackets("[", "]", kids))
		})
	}
	return w.brackets("{", "}", members)
}

func arraySketch(t *rapid.T, depth int) sketch {
	var prefix []sketch
	for range rapid.IntRange(0, 2).Draw(t, "prefix") {
		prefix = append(prefix, schemaSketch(t, depth-1))
	}
	rest := schemaSketch(t, depth-1)
	least := rapid.IntRange(0, 3).Draw(t, "least")
	most := least + rapid.IntRange(0, 3).Draw(t, "more")
	parts := []string{`"type":"array"`, `"items":` + rest.schema,
		fmt.Sprintf(`"minItems":%d,"maxItems":%d`, least, most)}
	if len(prefix) > 0 {
		var list []string
		for _, p := range prefix {
			list = append(list, p.schema)
		}
		parts = append(parts, `"prefixItems":[`+strings.Join(list, ",")+`]`)
	}
	return sketch{"{" + strings.Join(parts, ",") + "}", func(t *rapid.T, w *style) string {
		var members []string
		w.inside(func() {
			for i := range rapid.IntRange(least, most).Draw(t, "n") {
				s := rest
				if i < len(prefix) {
					s = prefix[i]
				}
				members = append(members, s.doc(t, w))
			}
		})
		return w.brackets("[", "]", members)
	}}
}

func objectSketch(t *rapid.T, depth int) sketch {
	names := []string{"p0", "p", "p01", `q"\`, "é日", ""}
	n := rapid.IntRange(0, 4).Draw(t, "properties")
	start := rapid.IntRange(0, len(names)-1).Draw(t, "start")
	var values []sketch
	var props, required []string
	must := map[int]bool{}
	for i := range n {
		v := schemaSketch(t, depth-1)
		values = append(values, v)
		name, _ := json.Marshal(names[(start+i)%len(names)])
		props = append(props, string(name)+":"+v.schema)
		if rapid.Bool().Draw(t, "required") {
			must[i] = true
			required = append(required, string(name))
		}
	}
	free := leafSketch(t)
	extra := rapid.SampledFrom([]string{"", "false", free.schema}).Draw(t, "additional")
	parts := []string{`"type":"object"`, `"properties":{` + strings.Join(props, ",") + `}`,
		`"required":[` + strings.Join(required, ",") + `]`}
	if extra != "" {
		parts = append(parts, `"additionalProperties":`+extra)
	}
	return sketch{"{" + strings.Join(parts, ",") + "}", func(t *rapid.T, w *style) string {
		var members []string
		add := func(name, v string) {
			members = append(members, string(append(appendString(nil, name), ':'))+w.space+v)
		}
		w.inside(func() {
			for i, v := range values {
				if must[i] || rapid.Bool().Draw(t, "present") {
					add(names[(start+i)%len(names)], v.doc(t, w))
				}
			}
			if extra != "false" {
				for _, name := range rapid.SampledFrom([][]string{nil, {"x"}, {"pp", "é"}, {"\n", "q\""}}).Draw(t,
					"extra") {
					add(name, free.doc(t, w))
				}
			}
		})
		return w.brackets("{", "}", members)
	}}
}
