package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sparrow/internal/model/synth"
	"sparrow/internal/unit"
)

// announce prints what will be written. It returns an error if the file system has too little space.
func (f *synthFlags) announce(w io.Writer, dir string, bytes int64, o synth.Options) error {
	at := nearestFolder(dir)
	free, known := freeBytes(at)
	if !known {
		fmt.Fprintf(w, "writing %s to %s\n", unit.Bytes(bytes), dir)
		return nil
	}
	if bytes > free {
		return fmt.Errorf("synth: %s as %s needs %d bytes (%s), but the file system of %s has %d bytes (%s) free; %s",
			f.config, f.dtype, bytes, unit.Bytes(bytes), at, free, unit.Bytes(free), fittingPresets(free, o))
	}
	fmt.Fprintf(w, "writing %s to %s, where %s are free\n", unit.Bytes(bytes), dir, unit.Bytes(free))
	return nil
}

// fittingPresets lists the presets that fit in the given number of bytes, as a clause for an error.
func fittingPresets(free int64, o synth.Options) string {
	var fit []string
	for _, name := range synth.PresetNames() {
		text, err := synth.PresetConfig(name)
		if err != nil {
			continue
		}
		c, err := synth.New(name, text, o)
		if err != nil {
			continue // the preset does not support these options
		}
		if n := c.Size().Bytes; n <= free {
			fit = append(fit, fmt.Sprintf("%s (%s)", name, unit.Bytes(n)))
		}
	}
	if len(fit) == 0 {
		return "no named shape fits either: choose a folder on another file system"
	}
	return "choose a folder on another file system, or a shape that fits: " + strings.Join(fit, ", ")
}

// nearestFolder returns dir or, if it does not exist, the closest existing folder above it.
func nearestFolder(dir string) string {
	at, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			return at
		}
		at = filepath.Dir(at)
	}
}
