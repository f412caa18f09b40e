//go:build remote

package soak

import "testing"

// ownServer is not part of test binaries for another machine: without the model they have a tenth of the size.
func ownServer(t *testing.T) string {
	t.Skip("built with -tags remote: SPARROW_SOAK_URL names the server")
	return ""
}
