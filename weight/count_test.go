package weight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "9223372036854775807": 1<<63 - 1} {
		if got, ok := count([]byte(text)); !ok || got != want {
			t.Errorf("%s counts as %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-1", "-0", "1.0", "1e3", "9223372036854775808", "92233720368547758070",
		"99999999999999999999999"} {
		if got, ok := count([]byte(text)); ok {
			t.Errorf("%q counts as %d", text, got)
		}
	}
}

func TestHostileTextIsCutShortInErrors(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, header := range map[string]string{
		"a name":          `{"` + long + `":{}}`,
		"a dtype":         `{"w":{"dtype":"` + long + `","shape":[],"data_offsets":[0,1]}}`,
		"a dimension":     `{"w":{"dtype":"U8","shape":[` + strings.Repeat("9", 5000) + `],"data_offsets":[0,1]}}`,
		"many dimensions": `{"w":{"dtype":"U8","shape":[1` + strings.Repeat(",1", 2500) + `],"data_offsets":[0,2]}}`,
		"a metadata key":  `{"__metadata__":{"` + long + `":"","` + long + `":""}}`,
		"an overlapped one": `{"` + long +
			`":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
	} {
		_, err := FromBytes("bad", fileBytes(header, 2))
		if err == nil || len(err.Error()) > 1500 {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestIndexOverTheLimitIsNotRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, IndexName)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxHeaderBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "index of 100000001 bytes is over the limit") {
		t.Errorf("an index of 100 MB: %v", err)
	}
}

func TestElements(t *testing.T) {
	for _, tt := range []struct {
		shape []int
		want  int
	}{{nil, 1}, {[]int{5}, 5}, {[]int{2, 3, 4}, 24}, {[]int{2, 0, 4}, 0}} {
		if got := (&Tensor{Shape: tt.shape}).Elements(); got != tt.want {
			t.Errorf("%v has %d elements, want %d", tt.shape, got, tt.want)
		}
	}
}
