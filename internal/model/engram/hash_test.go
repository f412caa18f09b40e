package engram

import (
	"slices"
	"strings"
	"testing"
)

// released is the shape of DeepSeek-V4.1-Flash.
var released = Shape{Layers: []int{1, 14}, Rows: []int{384006168, 384016682}, Orders: 4, Heads: 8, Dim: 256,
	Base: 16000000, Compressed: 99092, Pad: 2}

// The hash has the factors and primes of the release (v41 spec, 3.2).
func TestReleasedHash(t *testing.T) {
	if err := released.Check(); err != nil {
		t.Fatal(err)
	}
	for layer, want := range map[int][]int64{
		1:  {76632096046245, 4839876093313, 35959672319349, 73987337458391},
		14: {67716810739261, 51510806800915, 30921347202721, 82619226485591},
	} {
		if got := released.Multipliers(layer); !slices.Equal(got, want) {
			t.Errorf("factors of layer %d are %v, want %v", layer, got, want)
		}
	}
	for i, want := range [][]int64{
		{57, 79, 81, 97, 121, 129, 133, 183, 189, 207, 211, 253, 277, 289, 307, 321, 339, 381, 393, 399, 403, 409,
			447, 463},
		{477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697, 711, 729, 759, 769, 781, 799, 813, 819, 841,
			877, 879,
			889},
	} {
		got := released.Moduli()[i]
		for j := range got {
			got[j] -= 16000000
		}
		if !slices.Equal(got, want) {
			t.Errorf("primes of table %d are 16000000 + %v, want %v", i, got, want)
		}
	}
}

// A shape whose lists have different lengths, or whose tables do not have the rows of their primes, is refused.
func TestShapesAreChecked(t *testing.T) {
	for says, change := range map[string]func(*Shape){
		"2 engram layers and 1 table sizes": func(s *Shape) { s.Rows = s.Rows[:1] },
		"1 engram layers and 2 table sizes": func(s *Shape) { s.Layers = s.Layers[:1] },
		"the table of layer 14 add up to":   func(s *Shape) { s.Rows = []int{s.Rows[0], s.Rows[1] + 1} },
		"the table of layer 1 add up to":    func(s *Shape) { s.Rows = []int{s.Rows[0] - 1, s.Rows[1]} },
	} {
		s := released
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// n-grams with given compressed ids have the rows of the v41 spec, 3.2.
func TestReleasedRows(t *testing.T) {
	tokens := make([]int32, released.Compressed)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	h, err := New(released, tokens)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int32, released.Words())
	h.Rows(rows, []int32{13, 11, 7}, 5)
	if want := []int32{6961830, 31143904, 34796895, 48021142, 75858929, 90471933, 97778503, 125113896, 128920094,
		146640906, 168356892, 188372380, 206667341, 223815044, 225536255, 253542237, 267226692, 284872852, 289916976,
		308439827, 331455479, 349978782, 360629759, 372696692}; !slices.Equal(rows[:24], want) {
		t.Errorf("rows of layer 1 are %v, want %v", rows[:24], want)
	}
	if got := slices.Concat(rows[24:27], rows[46:]); !slices.Equal(got,
		[]int32{937800, 17223952, 33567381, 364591066, 376768797}) {
		t.Errorf("first and last rows of layer 14 are %v", got)
	}
	h.Rows(rows, nil, 13)
	if got := slices.Concat(rows[:3], rows[24:26]); !slices.Equal(got,
		[]int32{762556, 18016262, 38494153, 8059294, 18367987}) {
		t.Errorf("first rows of the first token are %v", got)
	}
}

func TestOtherTokenMapsAreRefused(t *testing.T) {
	if _, err := New(released, make([]int32, 10)); err == nil {
		t.Error("a map with one key was taken")
	}
	s := released
	s.Rows = []int{384006168, 384016680}
	if _, err := New(s, make([]int32, 10)); err == nil {
		t.Error("tables of another size were taken")
	}
}
