package main

import (
	"context"
	"os"
	"path/filepath"

	"sparrow/internal/pinned"
)

// installNode installs the packages and returns the command that runs the script with node.
func installNode(ctx context.Context, home string) ([]string, error) {
	var texts [3][]byte
	for i, name := range []string{"package.json", "package-lock.json", "clients.mjs"} {
		var err error
		if texts[i], err = files.ReadFile(name); err != nil {
			return nil, err
		}
	}
	dir, err := pinned.Node(ctx, home, "node", texts[0], texts[1])
	if err != nil {
		return nil, err
	}
	// The script may have changed since the packages were installed.
	script := filepath.Join(dir, "clients.mjs")
	return []string{"node", script}, os.WriteFile(script, texts[2], 0o644)
}
