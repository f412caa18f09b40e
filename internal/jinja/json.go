package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// ParseJSON parses one JSON value. Objects keep the order of their keys; a repeated key keeps its first position and
// its last value, as in Python.
func ParseJSON(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := readJSON(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: text follows the value at byte %d", ErrJSON, d.InputOffset())
	}
	return v, nil
}

func readJSON(d *json.Decoder, depth int) (Value, error) {
	if depth > maxDataDepth {
		return nil, limitf("values are nested deeper than %d levels", maxDataDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return jsonNumber(string(t))
	case json.Delim:
		if t == '[' {
			list := NewList()
			for d.More() {
				v, err := readJSON(d, depth+1)
				if err != nil {
					return nil, err
				}
				list.Items = append(list.Items, v)
			}
			_, err := d.Token()
			return list, err
		}
		dict := NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := readJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			dict.Set(name, v)
		}
		_, err := d.Token()
		return dict, err
	default: // None, booleans and strings
		return t, nil
	}
}

func jsonNumber(s string) (Value, error) {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, nil
		}
		return BigInt(s), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, err
	}
	return f, nil
}

// jsonStyle holds the options of json.dumps that templates use.
type jsonStyle struct {
	ascii     bool
	sortKeys  bool
	indent    string // indentation of one level, if pretty
	pretty    bool
	itemSep   string
	keySep    string
	maxLength int // maximum number of bytes; 0 means no maximum
}

// JSON returns a value as Python's json.dumps(value, ensure_ascii=False) writes it: with ", " and ": ", keys in their
// order, non-ASCII text unchanged.
func JSON(v Value) (s string, err error) {
	defer rescue(&err)
	return dumps(v, jsonStyle{itemSep: ", ", keySep: ": "}).String(), nil
}

func dumps(v Value, style jsonStyle) mark.Text {
	w := &jsonWriter{style: style}
	w.value(v, 0)
	return w.b.Text()
}

type jsonWriter struct {
	b     mark.Builder
	style jsonStyle
}

func (w *jsonWriter) value(v Value, depth int) {
	if depth > maxDataDepth {
		panic(failure{limitf("value nested deeper than %d levels", maxDataDepth)})
	}
	if w.style.maxLength > 0 && w.b.Len() > w.style.maxLength {
		panic(failure{limitf("JSON text longer than %d bytes", w.style.maxLength)})
	}
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case BigInt:
		w.b.WriteString(string(v))
	case float64:
		w.b.WriteString(jsonFloat(v))
	case string:
		w.text(mark.Plain(v))
	case *mark.Text:
		w.text(*v)
	case *List:
		w.group("[", "]", len(v.Items), depth, func(i int) { w.value(v.Items[i], depth+1) })
	case *Dict:
		w.dict(v, depth)
	default:
		panic(runtimef("%s cannot be written as JSON", typeName(v)))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

func (w *jsonWriter) dict(d *Dict, depth int) {
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if w.style.sortKeys {
		slices.SortStableFunc(order, func(a, b int) int {
			return strings.Compare(textArg(d.keys[a]), textArg(d.keys[b]))
		})
	}
	w.group("{", "}", d.Len(), depth, func(i int) {
		key, ok := asText(d.keys[order[i]])
		if !ok {
			if _, tuple := d.keys[order[i]].(*List); tuple {
				panic(runtimef("a tuple cannot be a JSON key"))
			}
			key = dumps(d.keys[order[i]], w.style)
		}
		w.text(key)
		w.b.WriteString(w.style.keySep)
		w.value(d.vals[order[i]], depth+1)
	})
}

func (w *jsonWriter) group(open, end string, n, depth int, item func(int)) {
	w.b.WriteString(open)
	for i := range n {
		if i > 0 {
			w.b.WriteString(w.style.itemSep)
		}
		w.newline(depth + 1)
		item(i)
	}
	if n > 0 {
		w.newline(depth)
	}
	w.b.WriteString(end)
}

func (w *jsonWriter) newline(depth int) {
	if w.style.pretty {
		w.b.WriteString("\n")
		for range depth {
			w.b.WriteString(w.style.indent)
		}
	}
}

func (w *jsonWriter) text(t mark.Text) {
	w.b.WriteString(`"`)
	w.b.Write(t.Map(func(s string) string { return escapeJSON(s, w.style.ascii) }))
	w.b.WriteString(`"`)
}

// EscapeJSON returns a text as the inside of a JSON string: quotes, backslashes and control characters are escaped. A
// text may be escaped piece by piece.
func EscapeJSON(s string) string { return escapeJSON(s, false) }

func escapeJSON(s string, ascii bool) string {
	clean := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || ascii && c >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf && ascii {
			r, size := utf8.DecodeRuneInString(s[i:])
			i += size
			if r > 0xffff {
				r -= 0x10000
				b.WriteString(`\u` + hex(0xd800+r>>10, 4) + `\u` + hex(0xdc00+r&0x3ff, 4))
			} else {
				b.WriteString(`\u` + hex(r, 4))
			}
			continue
		}
		i++
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if c < ' ' || ascii && c == 0x7f {
				b.WriteString(`\u` + hex(rune(c), 4))
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}
