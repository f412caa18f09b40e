package chat

import (
	"strings"

	"sparrow/internal/jinja"
)

// valueKind determines how the text of an argument is converted to JSON, for formats that write strings without quotes.
type valueKind int

const (
	valueUnknown valueKind = iota // the schema states no type: JSON if the text parses, otherwise a string
	valueString                   // always a string
	valueJSON                     // JSON if the text parses, otherwise a string
	// valueMixed may be a string or another type. Null, booleans, arrays and objects are parsed as JSON; everything
	// else is a string.
	valueMixed
)

// admits reports whether a parsed value of kind valueMixed is used as JSON. A number is used as a string, because a
// text such as "007" or "1.0" is more often an identifier.
func (k valueKind) admits(v jinja.Value) bool {
	switch v.(type) {
	case int64, float64, jinja.BigInt:
		return false
	}
	return true
}

// toolTypes is used to find the declared type of an argument.
type toolTypes map[string]*jinja.Dict // parameter schemas by tool name

func newToolTypes(tools []Tool, memo *Memo) toolTypes {
	t := toolTypes{}
	for i := range tools {
		if shown := memo.tool(&tools[i]); shown.schema != nil {
			t[tools[i].Name] = shown.schema
		}
	}
	return t
}

// kind returns how to parse the value of a tool's argument.
func (t toolTypes) kind(tool, argument string) valueKind {
	root, ok := t[tool]
	if !ok {
		return valueUnknown
	}
	properties, _ := root.Get("properties")
	dict, ok := properties.(*jinja.Dict)
	if !ok {
		return valueUnknown
	}
	schema, ok := dict.Get(argument)
	if !ok {
		return valueUnknown
	}
	types := map[string]bool{}
	collectTypes(root, schema, types, 0)
	switch {
	case len(types) == 0:
		return valueUnknown
	case !types["string"]:
		return valueJSON
	case len(types) == 1:
		return valueString
	}
	if types["number"] || types["integer"] {
		return valueUnknown
	}
	return valueMixed
}

// maxSchemaDepth is the maximum depth of nested references and unions that is followed.
const maxSchemaDepth = 16

// collectTypes adds the JSON types that a schema allows.
func collectTypes(root *jinja.Dict, schema jinja.Value, types map[string]bool, depth int) {
	d, ok := schema.(*jinja.Dict)
	if !ok || depth > maxSchemaDepth {
		return
	}
	if ref, ok := d.Get("$ref"); ok {
		if path, ok := ref.(string); ok {
			collectTypes(root, resolve(root, path), types, depth+1)
		}
	}
	switch t, _ := d.Get("type"); t := t.(type) {
	case string:
		types[t] = true
	case *jinja.List:
		for _, item := range t.Items {
			if s, ok := item.(string); ok {
				types[s] = true
			}
		}
	}
	for _, union := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := get[*jinja.List](d, union); ok {
			for _, item := range list.Items {
				collectTypes(root, item, types, depth+1)
			}
		}
	}
	if len(types) > 0 {
		return
	}
	if list, ok := get[*jinja.List](d, "enum"); ok {
		for _, item := range list.Items {
			types[jsonType(item)] = true
		}
	}
	if v, ok := d.Get("const"); ok {
		types[jsonType(v)] = true
	}
}

func get[T any](d *jinja.Dict, key string) (T, bool) {
	v, _ := d.Get(key)
	t, ok := v.(T)
	return t, ok
}

// resolve follows a reference such as "#/$defs/city" inside the schema.
func resolve(root *jinja.Dict, path string) jinja.Value {
	path, ok := strings.CutPrefix(path, "#/")
	if !ok {
		return nil
	}
	var v jinja.Value = root
	for part := range strings.SplitSeq(path, "/") {
		d, ok := v.(*jinja.Dict)
		if !ok {
			return nil
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if v, ok = d.Get(part); !ok {
			return nil
		}
	}
	return v
}

func jsonType(v jinja.Value) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case *jinja.List:
		return "array"
	case *jinja.Dict:
		return "object"
	}
	return "number"
}
