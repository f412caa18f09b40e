package wire

// Nearest returns the known name with the smallest edit distance from the given one, or "" if none is close. Of
// several, it returns the first.
func Nearest(name string, known []string) string {
	if len(name) > MaxNameBytes {
		return ""
	}
	// At most a quarter of the letters may differ: two for maxTokens, none for a single letter.
	best, limit := "", (len(name)+2)/4
	for _, k := range known {
		if d := editDistance(name, k, limit); d <= limit {
			best, limit = k, d-1
		}
	}
	return best
}

// editDistance returns the number of bytes to insert, delete, replace, or swap with their neighbour to change a into b,
// or limit+1 if it exceeds limit.
func editDistance(a, b string, limit int) int {
	if diff := len(a) - len(b); diff > limit || -diff > limit {
		return limit + 1
	}
	// Three rows of the usual table of edit distances; the row before the last is needed for swaps.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit+1)
}
