package cost

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"

	"sparrow/internal/textfile"
)

// Figures holds rates that are measured at start on a machine that is not in the table (package probe); the placement
// of experts depends on them. Results of experts on the CPU and on the device are not bitwise equal, so the figures are
// saved in a file: with this file, a restarted server and other replicas place experts in the same way.
type Figures struct {
	Bus Bus  `json:"bus"`
	CPU Host `json:"cpu"`
}

// keptFile is the content of a file of figures.
type keptFile struct {
	Version int    `json:"version"`
	Machine string `json:"machine"`
	Figures
}

// keptVersion is the version of the file: it must be increased if fields of Figures or their meaning change.
const keptVersion = 1

// KeptPath returns the file for a machine's figures in the user's cache folder.
func KeptPath(machine string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	h.Write([]byte(machine))
	return filepath.Join(dir, "sparrow", fmt.Sprintf("machine-%016x.json", h.Sum64())), nil
}

// LoadFigures reads the figures of a machine. It returns false if the file is missing or unreadable, or belongs to
// another machine or version; then the machine is measured again.
func LoadFigures(path, machine string) (Figures, bool) {
	text, err := textfile.Read(path, textfile.Config)
	if err != nil {
		return Figures{}, false
	}
	var k keptFile
	if json.Unmarshal(text, &k) != nil || k.Version != keptVersion || k.Machine != machine || !k.valid() {
		return Figures{}, false
	}
	return k.Figures, true
}

// SaveFigures writes the figures of a machine atomically.
func SaveFigures(path, machine string, f Figures) error {
	text, err := json.MarshalIndent(keptFile{keptVersion, machine, f}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return textfile.Replace(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// valid reports whether all figures are positive and finite.
func (f *Figures) valid() bool {
	list := []float64{f.Bus.Rate, f.Bus.Wait, float64(f.CPU.Cores), f.CPU.Core, f.CPU.Stream, f.CPU.Dispatch}
	list = append(append(list, f.CPU.One[:]...), f.CPU.Sixteen[:]...)
	for _, v := range list {
		if !(v > 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}
