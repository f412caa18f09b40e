package next_test

import (
	"path/filepath"
	"testing"

	"sparrow/internal/testkit/archive"
)

const archived = "../../../testdata/oracle/glm5_next-1.tar.gz"

// oracle returns the folder of the unpacked checkpoint.
func oracle(t *testing.T) string {
	t.Helper()
	return filepath.Join(archive.Unpack(t, archived), "glm5_next-1")
}
