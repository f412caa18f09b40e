package inspect_test

import (
	"bytes"
	"strings"
	"testing"

	"sparrow/model/family"
	"sparrow/model/inspect"
)

// Per token: 6 window entries of 149760/256 bytes, two ratio-4 entries of 37440/256 with keys of 8448/256, two ratio-128 entries of 1728/256:
// 6*585 + 2*(146.25 + 33) + 2*6.75 = 3882 bytes.
func TestV4Cache(t *testing.T) {
	src, err := family.Open("../../testdata/oracle/deepseek_v4-1")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	s := inspect.Of(src, []float64{1})
	if s.Layers != 6 || s.IndexLayers != 2 || s.Heads != 4 || s.Experts != 8 || s.ExpertsUsed != 2 {
		t.Errorf("summary %+v", s)
	}
	if len(s.Cache) != 2 || s.Cache[0].Layout != "v4-584" || s.Cache[0].TokenBytes != 3882 || s.Cache[0].Fits[0].Tokens == 0 {
		t.Errorf("cache %+v", s.Cache)
	}
	var out bytes.Buffer
	if err := s.Print(&out); err != nil || !strings.Contains(out.String(), "deepseek_v4") {
		t.Errorf("printed %q, %v", &out, err)
	}
}
