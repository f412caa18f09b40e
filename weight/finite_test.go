package weight

import (
	"testing"
	"time"

	"sparrow/internal/block"
)

// NotFinite finds and names a tensor with a NaN or an infinity, for every floating-point type. It accepts all finite
// values, including the largest.
func TestNotFiniteIsFound(t *testing.T) {
	q8 := make([]byte, 2*34)
	infinite := make([]byte, 2*34)
	infinite[35] = 0x7c // makes the scale of the second block infinite
	infinite[36] = 1
	for name, c := range map[string]struct {
		dtype     DType
		good, bad []byte
		element   int
	}{
		"F64":    {F64, []byte{0, 0, 0, 0, 0, 0, 0xef, 0x7f}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, 0},
		"F32":    {F32, []byte{0xff, 0xff, 0x7f, 0xff}, []byte{0, 0, 0, 0, 0, 0, 0xc0, 0xff}, 1},
		"BF16":   {BF16, []byte{0x7f, 0x7f}, []byte{0, 0, 0x80, 0x7f}, 1},
		"F16":    {F16, []byte{0xff, 0x7b}, []byte{0, 0xfc}, 0},
		"E4M3":   {F8E4M3, []byte{0x7e, 0xfe}, []byte{1, 2, 0xff}, 2},
		"E5M2":   {F8E5M2, []byte{0x7b}, []byte{0x7c}, 0},
		"E8M0":   {F8E8M0, []byte{0xfe}, []byte{0xff}, 0},
		"Q8_0":   {Blocks(block.Q8_0), q8, infinite, 32},
		"nested": {BF16, nil, append(make([]byte, 1<<23), 0xc0, 0x7f), 1 << 22},
	} {
		list := []Tensor{{Name: "ids", DType: I32, Shape: []int{1}, Data: []byte{0xff, 0xff, 0xff, 0xff}},
			{Name: "good", DType: c.dtype, Shape: []int{1}, Data: c.good}}
		w, err := FromTensors(nil, list, nil)
		if err != nil {
			t.Fatal(err)
		}
		if found, all := w.FindNotFinite(time.Minute); found != nil || !all {
			t.Errorf("%s: found %v among finite values", name, found)
		}
		list = append(list, Tensor{Name: "bad", DType: c.dtype, Shape: []int{1}, Data: c.bad})
		if w, err = FromTensors(nil, list, nil); err != nil {
			t.Fatal(err)
		}
		found, _ := w.FindNotFinite(time.Minute)
		if found == nil || found.Tensor != "bad" || found.Element != c.element {
			t.Errorf("%s: found %v, want element %d", name, found, c.element)
		}
	}
}
