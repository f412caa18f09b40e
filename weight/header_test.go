package weight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fileBytes builds a file from the text of its header and the size of its data; data byte i is i modulo 251.
func fileBytes(header string, dataLen int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range dataLen {
		b = append(b, byte(i%251))
	}
	return b
}

func TestHeaderAccepts(t *testing.T) {
	tests := []struct {
		name    string
		header  string
		dataLen int
		want    []Tensor // expected tensors without File, Offset and Data, which follow from ranges
		ranges  [][2]int // start and end in the data section, for each tensor
		meta    map[string]string
	}{
		{name: "no tensors at all", header: `{}`},
		{name: "metadata only", header: `{"__metadata__":{"format":"pt"}}`, meta: map[string]string{"format": "pt"}},
		{name: "empty metadata", header: `{"__metadata__":{}}`},
		{
			name:    "a matrix and a scalar",
			header:  `{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"s":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}`,
			dataLen: 16, want: []Tensor{{Name: "w", DType: BF16, Shape: []int{2, 3}},
				{Name: "s", DType: F32, Shape: []int{}}}, ranges: [][2]int{{0, 12}, {12, 16}},
		},
		{
			name:    "fields in another order, white space and padding",
			header:  "{ \"w\" :\t{\"data_offsets\": [ 0 , 2 ],\r\n\"shape\":[ 2 ],\"dtype\":\"U8\" } }      ",
			dataLen: 2, want: []Tensor{{Name: "w", DType: U8, Shape: []int{2}}}, ranges: [][2]int{{0, 2}},
		},
		{
			name:    "unknown fields are passed over",
			header:  `{"w":{"x":{"y":[1,-2.5e3,true,null,"z"]},"dtype":"I64","shape":[1],"data_offsets":[0,8]}}`,
			dataLen: 8, want: []Tensor{{Name: "w", DType: I64, Shape: []int{1}}}, ranges: [][2]int{{0, 8}},
		},
		{
			name:    "entries out of data order",
			header:  `{"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`,
			dataLen: 7, want: []Tensor{{Name: "b", DType: U8, Shape: []int{3}},
				{Name: "a", DType: U8, Shape: []int{4}}}, ranges: [][2]int{{4, 7}, {0, 4}},
		},
		{
			name:    "an empty tensor between two others",
			header:  `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
			dataLen: 2, want: []Tensor{{Name: "a", DType: U8, Shape: []int{1}},
				{Name: "e", DType: F32, Shape: []int{0, 7}}, {Name: "b", DType: U8, Shape: []int{1}}},
			ranges: [][2]int{{0, 1}, {1, 1}, {1, 2}},
		},
		{
			name:   "an empty tensor with other dimensions too large to multiply",
			header: `{"e":{"dtype":"F32","shape":[9000000000000000000,9000000000000000000,0],"data_offsets":[0,0]}}`,
			want:   []Tensor{{Name: "e", DType: F32, Shape: []int{9000000000000000000, 9000000000000000000, 0}}},
			ranges: [][2]int{{0, 0}},
		},
		{
			name: "packed FP4 counts values", header: `{"w":{"dtype":"F4","shape":[3,6],"data_offsets":[0,9]}}`,
			dataLen: 9, want: []Tensor{{Name: "w", DType: F4E2M1x2, Shape: []int{3, 6}}}, ranges: [][2]int{{0, 9}},
		},
		{
			name:    "names with escapes",
			header:  `{"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
			dataLen: 1, want: []Tensor{{Name: "a\"\\/\b\f\n\r\té😀", DType: U8, Shape: []int{1}}},
			ranges: [][2]int{{0, 1}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := fileBytes(tt.header, tt.dataLen)
			c, err := FromBytes("embedded", data)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(c.Names()); got != len(tt.want) {
				t.Fatalf("%d tensors, want %d", got, len(tt.want))
			}
			start := len(data) - tt.dataLen
			for i, want := range tt.want {
				begin, end := start+tt.ranges[i][0], start+tt.ranges[i][1]
				want.File, want.Offset, want.Data = "embedded", int64(begin), data[begin:end]
				got, ok := c.Tensor(want.Name)
				if !ok {
					t.Fatalf("tensor %q is not there", want.Name)
				}
				if diff := cmp.Diff(&want, got); diff != "" {
					t.Errorf("tensor %q (-want +got):\n%s", want.Name, diff)
				}
			}
			if len(tt.meta) != len(c.Metadata()) || tt.meta["format"] != c.Metadata()["format"] {
				t.Errorf("metadata %v, want %v", c.Metadata(), tt.meta)
			}
			if c.Bytes() != int64(tt.dataLen) {
				t.Errorf("%d bytes of tensors, want %d", c.Bytes(), tt.dataLen)
			}
		})
	}
}

func TestHeaderRefuses(t *testing.T) {
	one := func(fields string) string { return `{"w":{` + fields + `}}` }
	good := `"dtype":"U8","shape":[4],"data_offsets":[0,4]`
	tests := []struct {
		name   string
		data   []byte
		offset int64    // offset of the first problem, not checked if 0
		tensor string   // tensor of the first problem, not checked if empty
		want   []string // parts of the error message
	}{
		{"an empty file", nil, 0, "", []string{"0 bytes", "truncated"}},
		{"seven bytes", make([]byte, 7), 0, "", []string{"7 bytes"}},
		{"a header longer than the file", binary.LittleEndian.AppendUint64(nil, 1), 0, "",
			[]string{"length 1", "8 bytes"}},
		{"a header over the limit", binary.LittleEndian.AppendUint64(nil, maxHeaderBytes+1), 0, "",
			[]string{"100000001", "100000000"}},
		{"a header length that is negative as int64", binary.LittleEndian.AppendUint64(nil, math.MaxUint64), 0, "",
			[]string{"18446744073709551615"}},
		{"a header of no bytes", fileBytes("", 0), 8, "", []string{"must begin with '{'"}},
		{"space before the header", fileBytes(" {}", 0), 8, "", []string{"must begin with '{'"}},
		{"an array as header", fileBytes("[]", 0), 8, "", []string{"must begin with '{'"}},
		{"text behind the header", fileBytes("{} x", 0), 11, "", []string{"'x'", "padding"}},
		{"a zero byte as padding", fileBytes("{}\x00", 0), 10, "", []string{`'\x00'`, "padding"}},
		{"no end of the header", fileBytes(`{"w":{`+good, 4), 8 + 6 + int64(len(good)), "w",
			[]string{"the end of the header"}},
		{"bytes that are not UTF-8", fileBytes("{\"\xff\":{}}", 0), 10, "", []string{"UTF-8", "0xff"}},
		{"a control character in a name", fileBytes("{\"a\nb\":{}}", 0), 11, "", []string{"control character"}},
		{"a broken escape", fileBytes(`{"a\x":{}}`, 0), 12, "", []string{"escape"}},
		{"half a surrogate pair", fileBytes(`{"a\ud83dx":{}}`, 0), 11, "", []string{"escape"}},
		{"a name without quotes", fileBytes(`{w:{}}`, 0), 9, "", []string{"a name in double quotes"}},
		{"a comma too many", fileBytes(`{"w":{`+good+`},}`, 4), 8 + 6 + int64(len(good)) + 2, "",
			[]string{"no value follows the comma"}},
		{"the same tensor twice", fileBytes(`{"w":{`+good+`},"w":{`+good+`}}`, 4), 8 + 6 + int64(len(good)) + 2, "w",
			[]string{"twice"}},
		{"the same tensor twice, once escaped", fileBytes(`{"w":{`+good+`},"\u0077":{`+good+`}}`, 4),
			8 + 6 + int64(len(good)) + 2, "w", []string{"twice"}},
		{"metadata twice", fileBytes(`{"__metadata__":{},"__metadata__":{}}`, 0), 27, "__metadata__",
			[]string{"twice"}},
		{"a metadata key twice", fileBytes(`{"__metadata__":{"a":"1","a":"2"}}`, 0), 33, "__metadata__",
			[]string{`"a"`, "twice"}},
		{"metadata that is not a string", fileBytes(`{"__metadata__":{"a":1}}`, 0), 29, "__metadata__",
			[]string{"a string"}},
		{"a tensor that is not an object", fileBytes(`{"w":[]}`, 0), 13, "w", []string{"an object"}},
		{"a field twice", fileBytes(one(good+`,"shape":[4]`), 4), 14 + int64(len(good)) + 1, "w",
			[]string{`"shape"`, "twice"}},
		{"no dtype", fileBytes(one(`"shape":[4],"data_offsets":[0,4]`), 4), 9, "w", []string{`"dtype" is missing`}},
		{"no shape", fileBytes(one(`"dtype":"U8","data_offsets":[0,4]`), 4), 9, "w", []string{`"shape" is missing`}},
		{"no offsets", fileBytes(one(`"dtype":"U8","shape":[4]`), 4), 9, "w", []string{`"data_offsets" is missing`}},
		{"an unknown dtype", fileBytes(one(`"dtype":"F7","shape":[4],"data_offsets":[0,4]`), 4), 9, "w",
			[]string{`"F7"`, "want one of", "BF16"}},
		{"the name of no dtype", fileBytes(one(`"dtype":"invalid","shape":[4],"data_offsets":[0,4]`), 4), 9, "w",
			[]string{"unknown dtype"}},
		{"a negative dimension", fileBytes(one(`"dtype":"U8","shape":[-4],"data_offsets":[0,4]`), 4), 9, "w",
			[]string{"dimension -4"}},
		{"a fractional dimension", fileBytes(one(`"dtype":"U8","shape":[4.0],"data_offsets":[0,4]`), 4), 9, "w",
			[]string{"dimension 4.0"}},
		{"a dimension with exponent", fileBytes(one(`"dtype":"U8","shape":[4e0],"data_offsets":[0,4]`), 4), 9, "w",
			[]string{"dimension 4e0"}},
		{"a dimension beyond int64",
			fileBytes(one(`"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]`), 4), 9, "w",
			[]string{"9223372036854775808"}},
		{"a dimension with leading zero", fileBytes(one(`"dtype":"U8","shape":[04],"data_offsets":[0,4]`), 4), 37, "w",
			[]string{"'4'"}},
		{"elements that overflow", fileBytes(one(`"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]`),
			4), 9, "w", []string{"[4294967296 4294967296]"}},
		{"bits that overflow", fileBytes(one(`"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]`), 0), 9,
			"w", []string{"F64", "2305843009213693952"}},
		{"half a byte of FP4", fileBytes(one(`"dtype":"F4","shape":[3],"data_offsets":[0,2]`), 2), 9, "w",
			[]string{"F4", "[3]"}},
		{"fewer bytes than the shape needs", fileBytes(one(`"dtype":"F32","shape":[2,2],"data_offsets":[0,4]`), 4), 9,
			"w", []string{"takes 16 bytes", "hold 4"}},
		{"an end before the begin", fileBytes(one(`"dtype":"U8","shape":[4],"data_offsets":[4,0]`), 4), 9, "w",
			[]string{"[4, 0)"}},
		{"a negative offset", fileBytes(one(`"dtype":"U8","shape":[4],"data_offsets":[-4,0]`), 4), 9, "w",
			[]string{"-4"}},
		{"one offset", fileBytes(one(`"dtype":"U8","shape":[4],"data_offsets":[4]`), 4), 9, "w", []string{"1 numbers"}},
		{"three offsets", fileBytes(one(`"dtype":"U8","shape":[4],"data_offsets":[0,4,4]`), 4), 9, "w",
			[]string{"3 numbers"}},
		{"data shorter than declared", fileBytes(one(good), 3), 9, "w", []string{"[0, 4)", "3 bytes", "truncated"}},
		{"data longer than declared", fileBytes(one(good), 5), 0, "", []string{"last 1 bytes", "offset 4"}},
		{"a gap at the front", fileBytes(one(`"dtype":"U8","shape":[4],"data_offsets":[1,5]`), 5), 9, "w",
			[]string{"gap", "[0, 1)"}},
		{
			"a gap between tensors", fileBytes(`{"w":{`+good+`},"v":{"dtype":"U8","shape":[1],"data_offsets":[6,7]}}`,
				7),
			8 + 6 + int64(len(good)) + 2, "v", []string{"gap", "[4, 6)"},
		},
		{
			"overlapping tensors", fileBytes(`{"w":{`+good+`},"v":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}`, 7),
			8 + 6 + int64(len(good)) + 2, "v", []string{"overlap", "[3, 7)", "[0, 4)", `"w"`},
		},
		{
			"two names for the same bytes", fileBytes(`{"w":{`+good+`},"v":{`+good+`}}`, 4),
			0, "", []string{"overlap"},
		},
		{"nesting without end", fileBytes(`{"w":{"x":`+strings.Repeat("[", 1000)+`}}`, 0), 8 + 10 + 126, "w",
			[]string{"nested deeper"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := FromBytes("bad.safetensors", tt.data)
			if err == nil {
				t.Fatalf("accepted, with tensors %v", c.Names())
			}
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%v is not ErrMalformed", err)
			}
			var fe *FileError
			if !errors.As(err, &fe) {
				t.Fatalf("%v holds no FileError", err)
			}
			if fe.File != "bad.safetensors" {
				t.Errorf("file %q", fe.File)
			}
			if tt.tensor != "" && fe.Tensor != tt.tensor {
				t.Errorf("tensor %q, want %q", fe.Tensor, tt.tensor)
			}
			if tt.offset != 0 && fe.Offset != tt.offset {
				t.Errorf("byte %d, want %d", fe.Offset, tt.offset)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestHeaderReportsAllProblemsOfAFile(t *testing.T) {
	_, err := FromBytes("bad",
		fileBytes(
			`{"a":{"dtype":"F7","shape":[-1],"data_offsets":[0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`,
			1))
	for _, part := range []string{`"F7"`, "-1", "1 numbers", "takes 2 bytes"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
	if !errors.Is(err, ErrDType) {
		t.Error("an unknown dtype is not ErrDType")
	}

	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `,"t%d":{}`, i)
	}
	_, err = FromBytes("bad", fileBytes("{"+many.String()[1:]+"}", 0))
	if err == nil || strings.Count(err.Error(), "\n") != maxProblems ||
		!strings.Contains(err.Error(), fmt.Sprintf("and %d more problems", 3000-maxProblems)) {
		t.Errorf("1000 broken tensors are reported as %v", err)
	}
}

func TestHeaderThatLiesAboutSizesCostsNoMemory(t *testing.T) {
	data := fileBytes(`{"w":{"dtype":"F64","shape":[1152921504606846975],"data_offsets":[0,9223372036854775800]}}`, 8)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := FromBytes("bad", data)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("accepted")
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("refusing the file allocated %d bytes", grown)
	}
}
