package weight

import (
	"bytes"
	"testing"
)

// The fingerprint depends on the names, shapes, types and sampled bytes of tensors, but not on which files contain
// them.
func TestFingerprint(t *testing.T) {
	data := func(n int, at int) []byte {
		b := make([]byte, n)
		if at >= 0 {
			b[at] = 1
		}
		return b
	}
	of := func(list ...Source) [32]byte {
		var file bytes.Buffer
		if err := Write(&file, list, nil); err != nil {
			t.Fatal(err)
		}
		c, err := FromBytes("memory", file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return c.Fingerprint()
	}
	base := of(SourceBytes("a", U8, []int{6000}, data(6000, -1)), SourceBytes("b", U8, []int{2}, data(2, 1)))
	same := of(SourceBytes("b", U8, []int{2}, data(2, 1)), SourceBytes("a", U8, []int{6000}, data(6000, -1)))
	if base != same {
		t.Error("the order of tensors changes the fingerprint")
	}
	for name, other := range map[string][32]byte{
		"a name": of(SourceBytes("A", U8, []int{6000}, data(6000, -1)), SourceBytes("b", U8, []int{2}, data(2, 1))),
		"a shape": of(SourceBytes("a", U8, []int{2, 3000}, data(6000, -1)),
			SourceBytes("b", U8, []int{2}, data(2, 1))),
		"a type": of(SourceBytes("a", F8E4M3, []int{6000}, data(6000, -1)),
			SourceBytes("b", U8, []int{2}, data(2, 1))),
		"a start":  of(SourceBytes("a", U8, []int{6000}, data(6000, 0)), SourceBytes("b", U8, []int{2}, data(2, 1))),
		"a middle": of(SourceBytes("a", U8, []int{6000}, data(6000, 3100)), SourceBytes("b", U8, []int{2}, data(2, 1))),
		"an end":   of(SourceBytes("a", U8, []int{6000}, data(6000, 5999)), SourceBytes("b", U8, []int{2}, data(2, 1))),
		"a short":  of(SourceBytes("a", U8, []int{6000}, data(6000, -1)), SourceBytes("b", U8, []int{2}, data(2, 0))),
		"fewer":    of(SourceBytes("a", U8, []int{6000}, data(6000, -1))),
	} {
		if other == base {
			t.Errorf("%s that differs leaves the fingerprint", name)
		}
	}
}
