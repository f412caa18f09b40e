package image

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// File is one source file of an image.
type File struct {
	Path   string `json:"path"`   // path under the source root
	SHA256 string `json:"sha256"` // hash of the text without comments and blank lines
}

// Sources returns the translation units of a source tree: every .cu file in a folder named instantiations.
func Sources(root fs.FS) ([]string, error) {
	var list []string
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && path.Ext(p) == ".cu" && path.Base(path.Dir(p)) == "instantiations" {
			list = append(list, p)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("image: sources: %w", err)
	}
	return list, nil
}

// NameOf returns the name of the image of a translation unit: sm90/topk/instantiations/select.cu gives
// sm90-topk-select.
func NameOf(source string) string {
	dir := path.Dir(path.Dir(source))
	return strings.ReplaceAll(dir, "/", "-") + "-" + strings.TrimSuffix(path.Base(source), ".cu")
}

// include matches a directive that includes a file of this project. The compiler's own headers are in angle brackets.
var include = regexp.MustCompile(`^\s*#\s*include\s+"([^"]+)"`)

// Files returns a translation unit and all files that it includes, directly or indirectly, each once, in the order of
// first inclusion. A name is searched in the folder of the including file, then under the root.
func Files(root fs.FS, source string) ([]File, error) {
	var list []File
	seen := map[string]bool{}
	var visit func(p string) error
	visit = func(p string) error {
		if seen[p] {
			return nil
		}
		seen[p] = true
		b, err := fs.ReadFile(root, p)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		b = code(b)
		sum := sha256.Sum256(b)
		list = append(list, File{Path: p, SHA256: hex.EncodeToString(sum[:])})
		lines := bufio.NewScanner(bytes.NewReader(b))
		for lines.Scan() {
			m := include.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			target := path.Join(path.Dir(p), m[1])
			if _, err := fs.Stat(root, target); err != nil {
				target = path.Clean(m[1])
			}
			if err := visit(target); err != nil {
				return fmt.Errorf("%s includes %q: %w", p, m[1], err)
			}
		}
		return lines.Err()
	}
	if err := visit(source); err != nil {
		return nil, err
	}
	return list, nil
}

// Hash returns a hash of the inputs of an image: the target, the options and every file without its comments. The
// compiler's version is not included, so that a newer compiler alone does not require compiling all images again.
func Hash(target string, options []string, files []File) string {
	h := sha256.New()
	fmt.Fprintf(h, "target %s\n", target)
	for _, o := range options {
		fmt.Fprintf(h, "option %s\n", o)
	}
	for _, f := range files {
		fmt.Fprintf(h, "file %s %s\n", f.Path, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// PTXVersion is the version of embedded PTX: drivers for CUDA 12.3 and newer compile it.
const PTXVersion = "8.3"

// Target returns the architecture for which a source is compiled, which depends on its folder. Code under sm90 is for
// Hopper only, code under sm80 and sm89 is for the portable kernels, and code under smxx is for both. For sm80 and
// sm89, only PTX is embedded, and Target returns the architecture that is compiled to read the properties of kernels.
func Target(source string) string {
	switch {
	case strings.HasPrefix(source, "sm90/"):
		return "sm_90a"
	case strings.HasPrefix(source, "sm80/"):
		return "sm_80"
	case strings.HasPrefix(source, newerCodes):
		return "sm_89"
	}
	return "sm_90"
}

// newerCodes is the folder of images that replace images under sm80 on devices with FP8 instructions.
const newerCodes = "sm89/"

// FirstCapability returns the first compute capability that the PTX of a source runs on, times ten: 80 or 89.
func FirstCapability(source string) int {
	if strings.HasPrefix(source, newerCodes) {
		return 89
	}
	return 80
}

// InPlaceOf returns the name of the image that the image of a source replaces on devices that can run it. It is empty
// for most sources.
func InPlaceOf(source string) string {
	if rest, ok := strings.CutPrefix(source, newerCodes); ok {
		return NameOf("sm80/" + rest)
	}
	return ""
}

// PTXTarget returns the architecture of the PTX of a source.
func PTXTarget(source string) string { return fmt.Sprintf("compute_%d", FirstCapability(source)) }

// Portable reports whether PTX of the source is embedded, for devices without machine code.
func Portable(source string) bool { return !strings.HasPrefix(source, "sm90/") }

// Deferred reports whether the PTX of a source is compiled when one of its kernels is first needed, and not when a
// device is opened: most models have no packed weights, or weights in one or two of their many formats.
func Deferred(source string) bool { return path.Base(path.Dir(path.Dir(source))) == "packed" }

// Native reports whether machine code of the source is embedded.
func Native(source string) bool {
	return !strings.HasPrefix(source, "sm80/") && !strings.HasPrefix(source, newerCodes)
}

// targets returns the names of all targets of a source, which are part of the hash of its image.
func targets(source string) string {
	if Portable(source) {
		return Target(source) + " " + PTXTarget(source) + " " + PTXVersion
	}
	return Target(source)
}

// HashOf returns the hash of the image of a source that has the given files.
func HashOf(source string, files []File) string { return Hash(targets(source), Options(), files) }

// Options returns the compiler's options other than the target. Fused multiply-add is enabled for speed; kernels whose
// results must be bitwise equal to those of the host round explicitly. Functions without an attribute are device
// functions, because there is no host code.
func Options() []string { return []string{"--std=c++17", "--device-as-default-execution-space"} }
