package unit_test

import (
	"testing"

	"sparrow/internal/unit"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 144 << 20: "144.0 MiB", 5 << 28: "1.25 GiB",
		3 << 40: "3.00 TiB",
	} {
		if got := unit.Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
