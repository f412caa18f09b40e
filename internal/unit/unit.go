// Package unit formats numbers of bytes with units.
package unit

import "fmt"

// Bytes returns a number of bytes as text, in the largest binary unit of which there is at least one.
func Bytes(n int64) string {
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	switch {
	case i == 0:
		return fmt.Sprintf("%d B", n)
	case i < 3:
		return fmt.Sprintf("%.1f %s", v, units[i])
	}
	return fmt.Sprintf("%.2f %s", v, units[i])
}

var units = [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
