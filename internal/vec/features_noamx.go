//go:build noamx && !noavx512

package vec

const (
	allowAMX    = false
	allowAVX512 = true
)
