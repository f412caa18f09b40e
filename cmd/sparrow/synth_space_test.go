package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sparrow/internal/model/synth"
	"sparrow/internal/testkit/await"
)

// A checkpoint that is larger than the file system is refused before anything is written. The error contains both sizes
// and shapes that fit.
func TestSynthRefusesWhatTheFileSystemCannotHold(t *testing.T) {
	if _, known := freeBytes(t.TempDir()); !known {
		t.Skip("free space is not known on this system")
	}
	text, err := synth.PresetConfig("deepseek-v3.2")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.json")
	huge := bytes.Replace(text, []byte(`"vocab_size": 129280`), []byte(`"vocab_size": 1073741824`), 1)
	if err := os.WriteFile(config, huge, 0o644); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	// The timeout prevents a faulty command from filling the disk.
	ctx, stop := context.WithTimeout(context.Background(), await.Hang)
	defer stop()
	var out, side bytes.Buffer
	status := run(ctx, []string{"synth", filepath.Join(parent, "a", "b"), "--config", config}, &out, &side)
	said := regexp.MustCompile(`needs (\d+) bytes .* has (\d+) bytes .* free; .*v32-tiny \(`).FindStringSubmatch(
		side.String())
	if status != 1 || said == nil {
		t.Fatalf("status %d: %q", status, &side)
	}
	asked, _ := strconv.ParseInt(said[1], 10, 64)
	free, _ := strconv.ParseInt(said[2], 10, 64)
	if asked < 1<<44 || free <= 0 || free >= asked ||
		strings.Contains(side.String(), "deepseek-v4-pro (") && free < 800<<30 {
		t.Errorf("%d asked, %d free: %q", asked, free, &side)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestSynthSaysHowMuchItWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny")
	out, side := mustDrive(t, "", "synth", dir, "--config", "v32-tiny", "--json")
	if !regexp.MustCompile(`^writing \d+\.\d MiB to ` + regexp.QuoteMeta(dir)).MatchString(side) {
		t.Errorf("it says %q", side)
	}
	if strings.Contains(out, "writing") {
		t.Errorf("the announcement is in the result: %q", out)
	}
}
