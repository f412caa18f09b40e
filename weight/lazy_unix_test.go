//go:build unix

package weight

import (
	"syscall"
	"testing"
)

// pageFaults returns the number of page faults of the process so far.
func pageFaults(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return int64(u.Minflt) + int64(u.Majflt)
}

// Opening a file does not read its data: reading 1 GiB would cause at least 16,384 page faults, one for every sixteen
// pages.
func TestOpenIsLazy(t *testing.T) {
	if !mapsFiles {
		t.Skip("this build reads files instead of mapping them")
	}
	path := sparseGiB(t)
	before := pageFaults(t)
	c, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := pageFaults(t) - before; n > 4096 {
		t.Errorf("opening 1 GiB touched %d pages", n)
	}
	w, ok := c.Tensor("w")
	if !ok || len(w.Data) != 1<<30 || w.Data[1<<30-1] != 0 {
		t.Error("the last byte is not there")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
