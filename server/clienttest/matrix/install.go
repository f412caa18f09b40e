package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// complete is the file that ends an installation.
const complete = "complete"

// installPython gives the interpreter of a virtual environment with the packages that a suite pins.
func installPython(ctx context.Context, home, name string) (python string, err error) {
	version, err := output(ctx, "", "python3", "-c", "import sys; print(*sys.version_info[:2], sep='.')")
	if err != nil {
		return "", fmt.Errorf("python3 is not to be had: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major != 3 || minor < 11 {
		return "", fmt.Errorf("python3 is %s, and the pinned clients need 3.11 or later", version)
	}
	lock, err := files.ReadFile(name + ".txt")
	if err != nil {
		return "", err
	}
	dir := folder(home, "python-"+name, lock, []byte(version))
	python = filepath.Join(dir, "bin", "python")
	if runtime.GOOS == "windows" {
		python = filepath.Join(dir, "Scripts", "python.exe")
	}
	return python, once(dir, func() error {
		if _, err := output(ctx, "", "python3", "-m", "venv", dir); err != nil {
			return fmt.Errorf("no virtual environment: %w", err)
		}
		list := filepath.Join(dir, "requirements.txt")
		if err := os.WriteFile(list, lock, 0o644); err != nil {
			return err
		}
		if _, err := output(ctx, "", python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
			"--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "30", "-r", list); err != nil {
			return fmt.Errorf("pip could not install the pinned clients: %w", err)
		}
		return nil
	})
}

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
	dir := folder(home, "node", texts[:2]...)
	err := once(dir, func() error {
		for i, name := range names[:2] {
			if err := os.WriteFile(filepath.Join(dir, name), texts[i], 0o644); err != nil {
				return err
			}
		}
		if _, err := output(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
			"--loglevel=error"); err != nil {
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

// folder is the place of an installation: another one for every content.
func folder(home, name string, contents ...[]byte) string {
	sum := sha256.New()
	for _, text := range contents {
		sum.Write(text)
		sum.Write([]byte{0})
	}
	return filepath.Join(home, fmt.Sprintf("%s-%x", name, sum.Sum(nil)[:6]))
}

// once installs into a folder unless that was done before. What an earlier attempt left is removed.
func once(dir string, install func() error) error {
	mark := filepath.Join(dir, complete)
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := install(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.WriteFile(mark, nil, 0o644)
}

// output runs a program and gives what it printed. An error tells the first line of it that says so, else the last.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if ctx.Err() != nil {
		return "", fmt.Errorf("it did not end in time: %w", ctx.Err())
	}
	if err != nil {
		lines := strings.Split(text, "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(strings.ToLower(l), "error") })
		if at < 0 {
			at = len(lines) - 1
		}
		return "", fmt.Errorf("%w: %s", err, lines[at])
	}
	return text, nil
}
