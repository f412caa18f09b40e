//go:build !purego

package vec

import "testing"

// Sixteen streams of any number of weight rows cover each row once, and no row outside.
func TestStreamsCoverEveryRowOnce(t *testing.T) {
	for _, ldw := range []int{1, 18, 144, 256, 2304, 4096, 7168} {
		for n := range 700 {
			count := make([]int, n)
			eachLanes(n, ldw, func(j, skip, run int) {
				for r := skip; r < min(tileSide, n); r++ {
					if at := j + r*run; at < 0 || at >= n {
						t.Fatalf("%d rows of %d bytes: row %d is multiplied", n, ldw, at)
					} else {
						count[at]++
					}
				}
			})
			for at, c := range count {
				if c != 1 {
					t.Fatalf("%d rows of %d bytes: row %d is multiplied %d times", n, ldw, at, c)
				}
			}
		}
	}
}
