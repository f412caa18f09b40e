package weight

import "math"

// count parses a size or an offset. ok is false for a sign, a fraction, an exponent, or a value beyond the range of
// int64.
func count(number []byte) (n int64, ok bool) {
	if len(number) == 0 {
		return 0, false
	}
	for _, c := range number {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
