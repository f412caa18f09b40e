//go:build !noavx512 && !noamx

package vec

// The build tags noamx and noavx512 leave out the better tiers, so that every test can run as on a machine without
// these instructions.
const (
	allowAMX    = true
	allowAVX512 = true
)
