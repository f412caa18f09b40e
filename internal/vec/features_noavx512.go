//go:build noavx512

package vec

const (
	allowAMX    = false
	allowAVX512 = false
)
