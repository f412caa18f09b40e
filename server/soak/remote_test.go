//go:build remote

package soak

import "testing"

// ownServer skips the test. Test binaries for another machine do not contain the model, which makes them ten times
// smaller.
func ownServer(t *testing.T) string {
	t.Skip("built with -tags remote: SPARROW_SOAK_URL names the server")
	return ""
}
