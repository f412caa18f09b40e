package weight

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
)

// An accepted file has a header that is JSON to the standard decoder too; its tensors lie inside the file and cover it,
// and writing them again gives the same tensors. Any other file gives an error, never a panic.
func FuzzHeader(f *testing.F) {
	for _, header := range []string{
		`{}`,
		`{"__metadata__":{"format":"pt"},"w":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]},"w_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[6,10]}}   `,
		`{"x.weight":{"dtype":"I8","shape":[1,2],"data_offsets":[0,2]},"x.scale":{"dtype":"F8_E8M0","shape":[1,1],"data_offsets":[2,3]}}`,
		`{"w":{"dtype":"F4","shape":[0,9000000000000000000],"data_offsets":[0,0]}}`,
		`{"w":{"dtype":"U8","shape":[-1,1.5,1e9,99999999999999999999],"data_offsets":[0,1,2],"z":[{"a":null}]}}`,
		`{"a\u0041\ud83d\ude00":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}`,
		`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`,
	} {
		f.Add([]byte(header), 0, 3)
		f.Add([]byte(header), 7, 10)
	}
	f.Fuzz(func(t *testing.T, header []byte, lie, dataLen int) {
		data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)+lie))
		data = append(data, header...)
		data = append(data, make([]byte, min(max(dataLen, 0), 1<<12))...)
		c, err := FromBytes("fuzz", data)
		if err != nil {
			return
		}
		text := data[8 : 8+binary.LittleEndian.Uint64(data)]
		var plain map[string]map[string]json.RawMessage // exact keys, because a struct would also accept "DType"
		if err := json.Unmarshal(text, &plain); err != nil {
			t.Fatalf("accepted, but the standard decoder says: %v", err)
		}
		delete(plain, metadataKey)
		if len(plain) != len(c.Names()) {
			t.Fatalf("%d tensors, the standard decoder finds %d", len(c.Names()), len(plain))
		}
		start := int64(8 + len(text))
		covered := make([]bool, len(data))
		var sources []Source
		for name, fields := range plain {
			var dtype string
			var shape []int
			var offsets [2]int64
			if err := errors.Join(json.Unmarshal(fields["dtype"], &dtype), json.Unmarshal(fields["shape"], &shape),
				json.Unmarshal(fields["data_offsets"], &offsets)); err != nil {
				t.Fatalf("tensor %q accepted, but the standard decoder says: %v", name, err)
			}
			got, ok := c.Tensor(name)
			if !ok {
				t.Fatalf("tensor %q is lost", name)
			}
			begin, end := start+offsets[0], start+offsets[1]
			if got.DType.String() != dtype || !slices.Equal(got.Shape, shape) || got.Offset != begin ||
				got.Offset+int64(len(got.Data)) != end {
				t.Fatalf("tensor %q is %+v, the standard decoder reads %s %v at [%d, %d)", name, got, dtype, shape,
					begin, end)
			}
			for i := range got.Data {
				if at := got.Offset + int64(i); covered[at] {
					t.Fatalf("byte %d belongs to two tensors", at)
				} else {
					covered[at] = true
				}
			}
			if len(got.Shape) == 2 {
				if m, err := c.Matrix(name); err == nil {
					if _, err := m.ReadF32(); err != nil {
						t.Fatalf("matrix %q: %v", name, err)
					}
				}
			}
			sources = append(sources, SourceBytes(name, got.DType, got.Shape, got.Data))
		}
		if slices.Contains(covered[start:], false) {
			t.Fatal("a byte of data belongs to no tensor")
		}
		var again bytes.Buffer
		if err := Write(&again, sources, c.Metadata()); err != nil {
			t.Fatalf("cannot be written again: %v", err)
		}
		if _, err := FromBytes("again", again.Bytes()); err != nil {
			t.Fatalf("cannot be read again: %v", err)
		}
	})
}

// An accepted index has the same contents for the standard decoder and names only files without a folder.
func FuzzIndex(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"total_size":1},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`,
		`{"weight_map":{"a":"../x.safetensors"}}`,
		`{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`,
		`{"weight_map":{"\u0061":"\/etc\/x.safetensors"},"weight_map":[]}`,
		` {"z":[[[]]],"weight_map":{"":"..safetensors"}} `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		byFile, err := parseIndex("fuzz", text)
		if err != nil {
			return
		}
		var plain map[string]json.RawMessage // exact keys, because a struct would also accept "Weight_Map"
		if err := json.Unmarshal(text, &plain); err != nil {
			t.Fatalf("accepted, but the standard decoder says: %v", err)
		}
		var want map[string]string
		if err := json.Unmarshal(plain["weight_map"], &want); err != nil {
			t.Fatalf("accepted, but the standard decoder says: %v", err)
		}
		placed := 0
		for name, tensors := range byFile {
			if dir, base := filepath.Split(filepath.Join("dir", name)); dir != "dir"+string(filepath.Separator) ||
				base != name {
				t.Fatalf("file %q leads to %q", name, filepath.Join("dir", name))
			}
			for _, p := range tensors {
				if want[p.tensor] != name {
					t.Fatalf("tensor %q placed in %q, the standard decoder reads %q", p.tensor, name, want[p.tensor])
				}
				placed++
			}
		}
		if placed != len(want) {
			t.Fatalf("%d tensors placed, the standard decoder reads %d", placed, len(want))
		}
	})
}
