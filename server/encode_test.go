package server

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow"
)

// Arrays are encoded as little-endian int32, and as NumPy files whose data begins at a multiple of 64 bytes.
func TestEncodingsOfArrays(t *testing.T) {
	decoded := func(text string) string {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const numbers = "\x01\x00\x00\x00\xff\xff\xff\xff\x04\x03\x02\x01"
	if got := decoded(encodeArray([]int32{1, -1, 0x01020304})); got != numbers {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		most       int
		kind, data string
	}{{256, "|u1", "\x01\xff"}, {257, "<u2", "\x01\x00\xff\x00"}} {
		got := decoded(encodeNPY([]int32{1, 255}, []int{1, 2, 1}, c.most))
		head := "\x93NUMPY\x01\x00\x76\x00{'descr': '" + c.kind + "', 'fortran_order': False, 'shape': (1, 2, 1), }"
		if want := head + strings.Repeat(" ", 127-len(head)) + "\n" + c.data; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The keywords of schemas that are ignored are listed once each, at most 32 of them.
func TestListsOfIgnoredKeywords(t *testing.T) {
	d := &dialect{format: "response_format", parameters: "tools"}
	of := func(tool int, pointer, keyword string) sparrow.Ignored {
		return sparrow.Ignored{Tool: tool, Pointer: pointer, Keyword: keyword}
	}
	list := []sparrow.Ignored{of(-1, "/a", "not"), of(0, "/a", "not"), of(1, "/a", "not"), of(2, "", ""),
		of(-1, "/é", "if")}
	want := []string{"response_format/a/not", "tools/a/not", "tools", `response_format"/\u00e9/if"`}
	if got := d.keywords(list); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for n, want := range map[int]int{31: 31, 32: 32, 33: 33, 40: 33} {
		list = list[:0]
		for i := range n {
			list = append(list, of(-1, fmt.Sprint("/", i), "not"), of(-1, "/0", "not"))
		}
		got := d.keywords(list)
		if len(got) != want || (got[len(got)-1] == "...") != (n > 32) {
			t.Errorf("%d keywords: %d are listed, the last is %s", n, len(got), got[len(got)-1])
		}
	}
}

// Unset options have the values that the documentation states, and given values are kept.
func TestDefaultOptions(t *testing.T) {
	o := Options{}.withDefaults()
	for name, same := range map[string]bool{
		"RequestMemory": o.RequestMemory == 1<<30, "MaxBodyBytes": o.MaxBodyBytes == 8<<20,
		"MaxHeaderBytes": o.MaxHeaderBytes == 32<<10, "HeaderTimeout": o.HeaderTimeout == 10*time.Second,
		"BodyTimeout": o.BodyTimeout == time.Minute, "IdleTimeout": o.IdleTimeout == 2*time.Minute,
		"WriteTimeout": o.WriteTimeout == 30*time.Second, "KeepAlive": o.KeepAlive == 15*time.Second,
		"Grace": o.Grace == 30*time.Second, "RetryAfter": o.RetryAfter == time.Second,
		"StoreBytes": o.StoreBytes == 64<<20, "RequestTimeout": o.RequestTimeout == 0, "DrainDelay": o.DrainDelay == 0,
	} {
		if !same {
			t.Errorf("the default of %s is not the documented one", name)
		}
	}
	given := Options{RequestMemory: 1, MaxBodyBytes: 2, MaxHeaderBytes: 3, HeaderTimeout: 4, BodyTimeout: 5,
		IdleTimeout: 6, WriteTimeout: 7, KeepAlive: 8, Grace: NoGrace, RetryAfter: 9, StoreBytes: NoStore}
	if o := given.withDefaults(); o.RequestMemory != 1 || o.MaxBodyBytes != 2 || o.MaxHeaderBytes != 3 ||
		o.HeaderTimeout != 4 || o.BodyTimeout != 5 || o.IdleTimeout != 6 || o.WriteTimeout != 7 || o.KeepAlive != 8 ||
		o.Grace != NoGrace || o.RetryAfter != 9 || o.StoreBytes != NoStore {
		t.Errorf("%+v", o)
	}
}
