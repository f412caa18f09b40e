package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sparrow/internal/pinned"
)

// installNode gives node and the script beside the packages that it pins.
func installNode(ctx context.Context, home string) ([]string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is not to be had: %w", program, err)
		}
	}
	var texts [][]byte
	names := []string{"package.json", "package-lock.json", "clients.mjs"}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	dir := pinned.Folder(home, "node", texts[:2]...)
	err := pinned.Once(dir, func() error {
		for i, name := range names[:2] {
			if err := os.WriteFile(filepath.Join(dir, name), texts[i], 0o644); err != nil {
				return err
			}
		}
		if _, err := pinned.Output(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund",
			"--prefer-offline", "--loglevel=error"); err != nil {
			return fmt.Errorf("npm could not install the pinned clients: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The script may have changed since the packages were installed.
	script := filepath.Join(dir, names[2])
	return []string{"node", script}, os.WriteFile(script, texts[2], 0o644)
}
