package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", "format", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryLayoutHasAPageWithItsSize(t *testing.T) {
	index := readDoc(t, "README.md")
	for k := BF16Row1152; k < kindCount; k++ {
		size := 0
		if l, err := MainOf(k); err == nil {
			size = l.RowBytes()
		} else if l, err := IndexOf(k); err == nil {
			size = l.TokenBytes()
		} else if l, err := V4Of(k); err == nil {
			size = l.EntryBytes()
		}
		if doc := readDoc(t, k.String()+".md"); !strings.Contains(doc, fmt.Sprintf("= %d bytes", size)) {
			t.Errorf("%v.md does not add up to %d bytes", k, size)
		}
		if !strings.Contains(index, fmt.Sprintf("| [%v](%v.md) | %d |", k, k, size)) {
			t.Errorf("README.md has no row for %v with %d bytes", k, size)
		}
	}
}
