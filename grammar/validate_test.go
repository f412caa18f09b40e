package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// validate checks a parsed document against a schema. It is a second, independent implementation of JSON Schema, for
// tests.
func validate(root, schema, doc any) error {
	if b, ok := schema.(bool); ok {
		if !b {
			return fmt.Errorf("the schema is false")
		}
		return nil
	}
	s := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		at := root
		for _, part := range strings.Split(strings.TrimPrefix(ref, "#"), "/")[1:] {
			at = at.(map[string]any)[part]
		}
		if err := validate(root, at, doc); err != nil {
			return err
		}
	}
	for _, sub := range list(s["allOf"]) {
		if err := validate(root, sub, doc); err != nil {
			return err
		}
	}
	if _, ok := s["anyOf"]; ok && holding(root, list(s["anyOf"]), doc) == 0 {
		return fmt.Errorf("no alternative holds for %v", doc)
	}
	if _, ok := s["oneOf"]; ok && holding(root, list(s["oneOf"]), doc) != 1 {
		return fmt.Errorf("not exactly one alternative holds for %v", doc)
	}
	if sub, ok := s["not"]; ok && validate(root, sub, doc) == nil {
		return fmt.Errorf("%v is what it must not be", doc)
	}
	if sub, ok := s["if"]; ok {
		branch := "else"
		if validate(root, sub, doc) == nil {
			branch = "then"
		}
		if sub, ok := s[branch]; ok {
			if err := validate(root, sub, doc); err != nil {
				return fmt.Errorf("%s: %w", branch, err)
			}
		}
	}
	if t, ok := s["type"]; ok && !typeHolds(t, doc) {
		return fmt.Errorf("%v is not of type %v", doc, t)
	}
	if e, ok := s["enum"]; ok && !contains(list(e), doc) {
		return fmt.Errorf("%v is not in %v", doc, e)
	}
	if c, ok := s["const"]; ok && !contains([]any{c}, doc) {
		return fmt.Errorf("%v is not %v", doc, c)
	}
	switch d := doc.(type) {
	case string:
		return validateString(s, d)
	case json.Number:
		return validateNumber(s, d)
	case []any:
		return validateArray(root, s, d)
	case map[string]any:
		return validateObject(root, s, d)
	}
	return nil
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// holding returns the number of schemas that a document satisfies.
func holding(root any, subs []any, doc any) (n int) {
	for _, sub := range subs {
		if validate(root, sub, doc) == nil {
			n++
		}
	}
	return n
}

func typeHolds(t, doc any) bool {
	if names, ok := t.([]any); ok {
		for _, n := range names {
			if typeHolds(n, doc) {
				return true
			}
		}
		return false
	}
	switch d := doc.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	case json.Number:
		return t == "number" || t == "integer" && rat(d).IsInt()
	}
	return false
}

func rat(n any) *big.Rat {
	r, ok := new(big.Rat).SetString(n.(json.Number).String())
	if !ok {
		panic("not a number: " + n.(json.Number).String())
	}
	return r
}

func contains(values []any, doc any) bool {
	for _, v := range values {
		a, ok := v.(json.Number)
		b, also := doc.(json.Number)
		if ok && also && rat(a).Cmp(rat(b)) == 0 || reflect.DeepEqual(v, doc) {
			return true
		}
	}
	return false
}

func validateString(s map[string]any, d string) error {
	n := big.NewRat(int64(utf8.RuneCountInString(d)), 1)
	if m, ok := s["minLength"]; ok && n.Cmp(rat(m)) < 0 {
		return fmt.Errorf("%q is shorter than %v", d, m)
	}
	if m, ok := s["maxLength"]; ok && n.Cmp(rat(m)) > 0 {
		return fmt.Errorf("%q is longer than %v", d, m)
	}
	if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(d) {
		return fmt.Errorf("%q does not match %q", d, p)
	}
	var err error
	switch s["format"] {
	case "date":
		_, err = time.Parse("2006-01-02", d)
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, d)
	case "ipv4", "ipv6":
		_, err = netip.ParseAddr(d)
	}
	return err
}

func validateNumber(s map[string]any, d json.Number) error {
	n := rat(d)
	for k, bad := range map[string]func(c int) bool{
		"minimum":          func(c int) bool { return c < 0 },
		"maximum":          func(c int) bool { return c > 0 },
		"exclusiveMinimum": func(c int) bool { return c <= 0 },
		"exclusiveMaximum": func(c int) bool { return c >= 0 },
	} {
		if m, ok := s[k]; ok && bad(n.Cmp(rat(m))) {
			return fmt.Errorf("%v violates %s %v", d, k, m)
		}
	}
	if m, ok := s["multipleOf"]; ok && !new(big.Rat).Quo(n, rat(m)).IsInt() {
		return fmt.Errorf("%v is not a multiple of %v", d, m)
	}
	return nil
}

func validateArray(root any, s map[string]any, d []any) error {
	n := big.NewRat(int64(len(d)), 1)
	if m, ok := s["minItems"]; ok && n.Cmp(rat(m)) < 0 {
		return fmt.Errorf("%d items are fewer than %v", len(d), m)
	}
	if m, ok := s["maxItems"]; ok && n.Cmp(rat(m)) > 0 {
		return fmt.Errorf("%d items are more than %v", len(d), m)
	}
	if sub, ok := s["contains"]; ok {
		count := 0
		for _, e := range d {
			if validate(root, sub, e) == nil {
				count++
			}
		}
		found, least := big.NewRat(int64(count), 1), big.NewRat(1, 1)
		if m, ok := s["minContains"]; ok {
			least = rat(m)
		}
		if m, ok := s["maxContains"]; found.Cmp(least) < 0 || ok && found.Cmp(rat(m)) > 0 {
			return fmt.Errorf("%d elements are contained", count)
		}
	}
	for i := range d {
		if s["uniqueItems"] == true && contains(d[:i], d[i]) {
			return fmt.Errorf("item %d occurs twice", i)
		}
	}
	prefix := list(s["prefixItems"])
	for i, e := range d {
		sub, ok := s["items"]
		if i < len(prefix) {
			sub, ok = prefix[i], true
		}
		if !ok {
			continue
		}
		if err := validate(root, sub, e); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

func validateObject(root any, s map[string]any, d map[string]any) error {
	for _, name := range list(s["required"]) {
		if _, ok := d[name.(string)]; !ok {
			return fmt.Errorf("%v is missing", name)
		}
	}
	n := big.NewRat(int64(len(d)), 1)
	if m, ok := s["minProperties"]; ok && n.Cmp(rat(m)) < 0 {
		return fmt.Errorf("%d members are fewer than %v", len(d), m)
	}
	if m, ok := s["maxProperties"]; ok && n.Cmp(rat(m)) > 0 {
		return fmt.Errorf("%d members are more than %v", len(d), m)
	}
	required, _ := s["dependentRequired"].(map[string]any)
	for name, others := range required {
		for _, other := range list(others) {
			_, ok := d[name]
			if _, also := d[other.(string)]; ok && !also {
				return fmt.Errorf("%v is missing beside %v", other, name)
			}
		}
	}
	props, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	for name, v := range d {
		if sub, ok := s["propertyNames"]; ok {
			if err := validate(root, sub, name); err != nil {
				return fmt.Errorf("name %q: %w", name, err)
			}
		}
		matched := false
		for pattern, sub := range patterns {
			if regexp.MustCompile(pattern).MatchString(name) {
				matched = true
				if err := validate(root, sub, v); err != nil {
					return fmt.Errorf("member %q: %w", name, err)
				}
			}
		}
		sub, ok := props[name]
		if !ok && matched {
			continue
		}
		if !ok {
			sub, ok = s["additionalProperties"]
		}
		if !ok {
			continue
		}
		if err := validate(root, sub, v); err != nil {
			return fmt.Errorf("member %q: %w", name, err)
		}
	}
	return nil
}

// check parses a schema and a document, and returns the error of validating the document.
func check(schema, doc string) error {
	var plain any
	if err := json.Unmarshal([]byte(doc), &plain); err != nil { // numbers must fit a float64
		return fmt.Errorf("does not parse: %w", err)
	}
	s, err := decode(schema)
	if err != nil {
		return err
	}
	d, err := decode(doc)
	if err != nil {
		return err
	}
	return validate(s, s, d)
}

func decode(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
