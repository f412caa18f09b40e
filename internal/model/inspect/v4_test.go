package inspect_test

import (
	"bytes"
	"strings"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
)

// The cache sizes equal sums by hand. Each token has two ratio-4 entries of 37440/256 bytes with keys of 8448/256
// bytes, and two ratio-128 entries of 1728/256 bytes: 2*(146.25 + 33) + 2*6.75 = 372 bytes. Each sequence has two
// window pages of 6*149760 bytes with 4 raw rows of 10240 bytes in two layers, and rings of 16 such rows in two layers
// and of 256 rows of 4096 bytes in two more: 2*(898560 + 81920) + 2*163840 + 2*1048576 = 4385792 bytes.
func TestV4Cache(t *testing.T) {
	src, err := family.Open("../../../testdata/oracle/deepseek_v4-1")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	s := inspect.Of(src, []float64{1})
	if s.Layers != 6 || s.IndexLayers != 2 || s.Heads != 4 || s.Experts != 8 || s.ExpertsUsed != 2 {
		t.Errorf("summary %+v", s)
	}
	if len(s.Cache) != 3 || s.Cache[0].Layout != "v4-584" || s.Cache[0].TokenBytes != 372 ||
		s.Cache[0].SequenceBytes != 4385792 || s.Cache[1].TokenBytes != 340 || s.Cache[0].Fits[0].Tokens == 0 {
		t.Errorf("cache %+v", s.Cache)
	}
	var out bytes.Buffer
	if err := s.Print(&out); err != nil || !strings.Contains(out.String(), "deepseek_v4") ||
		!strings.Contains(out.String(), "4.2 MiB") {
		t.Errorf("printed %q, %v", &out, err)
	}
}
