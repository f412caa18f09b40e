package verify_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"sparrow/layout"
	"sparrow/weight"
)

// Rows of the cache of DeepSeek-V4.1 have the same bytes as in the independent implementation, for groups with ties,
// small, large, near-zero and zero values.
func TestV41Bytes(t *testing.T) {
	file, err := weight.OpenFile(filepath.Join(unpacked(t, "deepseek_v41-1"), "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read := func(name string) []float32 {
		x, ok := file.Tensor(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		v, err := weight.ReadF32(x)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	check := func(name string, row int, got []byte) {
		x, _ := file.Tensor(name)
		if want := x.Data[row*len(got):][:len(got)]; !bytes.Equal(got, want) {
			t.Errorf("%s: row %d is\n%x, want\n%x", name, row, got, want)
		}
	}
	kv, keys := read("quant.kv_in"), read("quant.index_in")
	for r := range 6 {
		in := kv[r*layout.V4Dim:][:layout.V4Dim]
		page := make([]byte, layout.V41Window{}.PageBytes(1))
		layout.V41Window{}.Encode(page, 1, 0, in)
		check("quant.window_bytes", r, page)
		back := make([]float32, layout.V4Dim)
		layout.V41Window{}.Decode(back, page, 1, 0)
		again := make([]byte, len(page))
		layout.V41Window{}.Encode(again, 1, 0, back)
		if !bytes.Equal(again[:layout.V4Dim], page[:layout.V4Dim]) && r == 0 {
			t.Errorf("row %d of the window changes when it is stored again", r)
		}
		page = make([]byte, layout.V41Entry{}.PageBytes(1))
		layout.V41Entry{}.Encode(page, 1, 0, in)
		check("quant.kv_fp4_bytes", r, page)
		page = make([]byte, layout.IndexV41{}.PageBytes(1))
		layout.IndexV41{}.Encode(page, 1, 0, keys[r*layout.IndexDim:][:layout.IndexDim])
		check("quant.index_fp4_bytes", r, page)
	}
}
