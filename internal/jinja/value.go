package jinja

import (
	"iter"
	"math"
	"strconv"
	"strings"

	"sparrow/internal/mark"
)

// Value is a template value. Its dynamic type is one of
//
//	nil         none
//	bool, int64, float64, string
//	BigInt      an integer beyond 64 bits, from JSON; it can be printed but arithmetic fails
//	*mark.Text  text of the request, made by Mark; to templates a string like any other
//	*List       list or tuple
//	*Dict       mapping in insertion order
//	Undefined   a name or key that does not exist
//	*namespace  object whose attributes a template may assign
//	callable    macro, method or global function
//
// Strings are text: lengths and indexes count characters, not bytes.
type Value any

// BigInt is an integer too large for int64, as decimal digits.
type BigInt string

// List is a list or, if Tuple is true, a tuple.
type List struct {
	Items []Value
	Tuple bool
}

// Dict is a mapping that keeps the order of insertion. Keys are none, booleans, numbers, strings and tuples of those,
// as in Python.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[Value]int // [dictKey] index in keys
}

// Undefined is the value of a missing name. Its text is empty and its truth value is false; using its attributes is an
// error.
type Undefined struct {
	what string // description for error messages, such as "'tools'"
}

// namespace is the object that namespace() returns. Set statements in inner scopes can change its attributes.
type namespace struct{ attrs *Dict }

// NewList makes a list of the given items.
func NewList(items ...Value) *List { return &List{Items: items} }

func newTuple(items ...Value) *List { return &List{Items: items, Tuple: true} }

// NewDict makes an empty mapping.
func NewDict() *Dict { return &Dict{index: map[Value]int{}} }

// dictKey returns the normalised key of a value: as in Python, 1, 1.0 and true are the same key. ok is false for values
// that cannot be keys.
func dictKey(v Value) (key Value, ok bool) {
	switch v := v.(type) {
	case nil, string, int64, BigInt:
		return v, true
	case *mark.Text:
		return v.String(), true
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), true
		}
		return v, true
	case *List:
		if !v.Tuple {
			return nil, false
		}
		// Equal tuples get equal keys. The type below distinguishes them from strings.
		var text strings.Builder
		for _, item := range v.Items {
			if inner, isList := item.(*List); isList && inner.Tuple {
				return nil, false
			}
			k, ok := dictKey(item)
			if !ok {
				return nil, false
			}
			s := repr(k).String()
			text.WriteString(strconv.Itoa(len(s)) + ":" + s)
		}
		return tupleKey(text.String()), true
	}
	return nil, false
}

type tupleKey string

// Set stores a value by a string key.
func (d *Dict) Set(key string, value Value) { d.put(key, key, value) }

// Get returns the value of a string key; ok is false if there is none.
func (d *Dict) Get(key string) (Value, bool) { return d.lookup(key) }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// set stores a value by any key; it returns false if the key is not hashable in Python.
func (d *Dict) set(key, value Value) bool {
	k, ok := dictKey(key)
	if ok {
		d.put(k, key, value)
	}
	return ok
}

func (d *Dict) put(k, key, value Value) {
	if i, found := d.index[k]; found {
		d.vals[i] = value
		return
	}
	if d.index == nil {
		d.index = map[Value]int{}
	}
	d.index[k] = len(d.keys)
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, value)
}

func (d *Dict) lookup(key Value) (Value, bool) {
	k, ok := dictKey(key)
	if !ok {
		return nil, false
	}
	i, found := d.index[k]
	if !found {
		return nil, false
	}
	return d.vals[i], true
}

func (d *Dict) items() *List {
	out := &List{Items: make([]Value, len(d.keys))}
	for i := range d.keys {
		out.Items[i] = newTuple(d.keys[i], d.vals[i])
	}
	return out
}

// truth returns Python's bool(v).
func truth(v Value) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *mark.Text:
		return v.String() != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// typeName returns the Python name of a value's type, for error messages.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, BigInt:
		return "int"
	case float64:
		return "float"
	case string, *mark.Text:
		return "str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case Undefined:
		return "undefined " + v.what
	case *namespace:
		return "namespace"
	}
	return "function"
}

// number returns a value as an integer and a float; booleans are 0 and 1. ok is false if it is not a number.
func number(v Value) (i int64, f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int64:
		return v, float64(v), true, true
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// All yields the entries in order, with keys converted to text.
func (d *Dict) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, key := range d.keys {
			if !yield(str(key), d.vals[i]) {
				return
			}
		}
	}
}
