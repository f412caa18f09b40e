package compile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"

	"sparrow/internal/cuda/cubin"
	"sparrow/internal/cuda/image"
)

// Config lists the sources to compile and the output folder.
type Config struct {
	Source string    // root of the CUDA sources
	Out    string    // output folder of the images
	NVRTC  string    // folder to search for the compiler; empty means the usual folders
	Force  bool      // also compile images whose sources have not changed
	Log    io.Writer // progress, one line per image, and the compiler's warnings
}

const archOption = "--gpu-architecture="

// Build compiles every image whose sources or options have changed, removes images whose source no longer exists, and
// writes the manifest. If compiling an image fails, its old files are kept, all other images are written, and all
// errors are returned together.
func Build(cfg Config) error { return (&builder{Config: cfg, root: os.DirFS(cfg.Source)}).build() }

// builder holds the state of a build. The compiler is opened when the first image is compiled.
type builder struct {
	Config
	root    fs.FS
	nvrtc   *compiler
	version string
}

func (b *builder) build() error {
	sources, err := image.Sources(b.root)
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("compile: no .cu file in an instantiations folder under %s", b.Source)
	}
	old := readManifest(b.Out)
	next := image.Manifest{Compiler: old.Compiler}
	var errs []error
	for _, src := range sources {
		im, err := b.image(src, old)
		if err != nil {
			errs = append(errs, err)
			im = b.find(src, old)
		}
		if im != nil {
			next.Images = append(next.Images, *im)
		}
	}
	if b.version != "" {
		next.Compiler = b.version
	}
	sort.Slice(next.Images, func(i, j int) bool { return next.Images[i].Name < next.Images[j].Name })
	if err := removeOthers(b.Out, next); err != nil {
		errs = append(errs, err)
	}
	text, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("compile: manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.Out, "manifest.json"), append(text, '\n'), 0o644); err != nil {
		errs = append(errs, fmt.Errorf("compile: manifest: %w", err))
	}
	return errors.Join(errs...)
}

// image compiles one source, or returns the old manifest entry if nothing changed.
func (b *builder) image(src string, old image.Manifest) (*image.Image, error) {
	files, err := image.Files(b.root, src)
	if err != nil {
		return nil, err
	}
	im := &image.Image{Name: image.NameOf(src), Source: src, Target: image.Target(src), Options: image.Options(),
		Files: files, PTX: image.Portable(src)}
	im.Hash = image.HashOf(src, im.Files)
	if prev := b.find(src, old); prev != nil && prev.Hash == im.Hash && !b.Force {
		return prev, nil
	}
	if err := b.load(); err != nil {
		return nil, err
	}
	code, err := b.compile(im, im.Target)
	if err != nil {
		return nil, err
	}
	facts, err := cubin.Parse(code)
	if err != nil {
		return nil, fmt.Errorf("compile: %s: %w", src, err)
	}
	if len(facts.Kernels) == 0 {
		return nil, fmt.Errorf("compile: %s defines no kernel", src)
	}
	im.Bytes, im.Kernels, im.Structs = len(code), facts.Kernels, facts.Structs
	if im.Native() {
		if err := writeCompressed(filepath.Join(b.Out, image.CubinFile(im.Name)), code); err != nil {
			return nil, err
		}
	}
	if im.PTX {
		text, err := b.compile(im, image.PTXTarget(src))
		if err != nil {
			return nil, err
		}
		if err := writeCompressed(filepath.Join(b.Out, image.PTXFile(im.Name)), forOldDrivers(text)); err != nil {
			return nil, err
		}
	}
	for _, k := range im.Kernels {
		fmt.Fprintf(b.Log, "%s %s: %d registers, %d B shared, %d B local, %d B arguments\n",
			im.Name, k.Name, k.Registers, k.SharedBytes, k.LocalBytes, k.ParamBytes)
	}
	return im, nil
}

// version matches the PTX directive that determines which drivers can compile the text.
var version = regexp.MustCompile(`(?m)^\.version .*$`)

// forOldDrivers replaces the PTX version in the text by image.PTXVersion. The compiler writes its own version, which
// old drivers reject although the text uses only features of the older version.
func forOldDrivers(text []byte) []byte {
	return version.ReplaceAll(bytes.TrimRight(text, "\x00"), []byte(".version "+image.PTXVersion))
}

// find returns the existing image of a source, or nil.
func (b *builder) find(src string, old image.Manifest) *image.Image {
	name := image.NameOf(src)
	for i := range old.Images {
		im := &old.Images[i]
		if im.Name == name && (!im.Native() || exists(filepath.Join(b.Out, image.CubinFile(name)))) &&
			(!im.PTX || exists(filepath.Join(b.Out, image.PTXFile(name)))) {
			return im
		}
	}
	return nil
}

// compile runs the compiler for one architecture on the source, followed by the declarations that record struct
// layouts.
func (b *builder) compile(im *image.Image, arch string) ([]byte, error) {
	var list []argStruct
	for _, f := range im.Files {
		text, err := fs.ReadFile(b.root, f.Path)
		if err != nil {
			return nil, fmt.Errorf("compile: %w", err)
		}
		found, err := findStructs(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		list = append(list, found...)
	}
	source := fmt.Sprintf("#include \"%s\"\n%s", im.Source, factSource(list))
	options := append([]string{archOption + arch, "--include-path=" + b.Source}, im.Options...)
	code, log, err := b.nvrtc.Compile(im.Name+".cu", source, options)
	if log != "" && err == nil {
		fmt.Fprintf(b.Log, "%s for %s:\n%s\n", im.Source, arch, log)
	}
	return code, err
}

// load opens the compiler on first use, so that no compiler is needed if all images are up to date.
func (b *builder) load() error {
	if b.nvrtc != nil {
		return nil
	}
	path, err := FindNVRTC(b.NVRTC, loadable)
	if err != nil {
		return err
	}
	c, err := openCompiler(path)
	if err != nil {
		return err
	}
	if b.version, err = c.Version(); err != nil {
		return err
	}
	fmt.Fprintf(b.Log, "%s from %s\n", b.version, path)
	b.nvrtc = c
	return nil
}

// readManifest reads the manifest. If it cannot be read, readManifest returns an empty manifest, so that everything is
// compiled again.
func readManifest(out string) image.Manifest {
	var m image.Manifest
	text, err := os.ReadFile(filepath.Join(out, "manifest.json"))
	if err != nil || json.Unmarshal(text, &m) != nil {
		return image.Manifest{}
	}
	return m
}

// removeOthers deletes image files that are not in the manifest.
func removeOthers(out string, m image.Manifest) error {
	keep := map[string]bool{}
	for _, im := range m.Images {
		keep[image.CubinFile(im.Name)] = im.Native()
		keep[image.PTXFile(im.Name)] = im.PTX
	}
	found, err := filepath.Glob(filepath.Join(out, "*.gz"))
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	for _, p := range found {
		if !keep[filepath.Base(p)] {
			if err := os.Remove(p); err != nil {
				return fmt.Errorf("compile: %w", err)
			}
		}
	}
	return nil
}

// writeCompressed stores data with gzip, without a time in the header, so that equal input gives equal files.
func writeCompressed(path string, data []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	if _, err := z.Write(data); err != nil {
		return fmt.Errorf("compile: %s: %w", path, err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compile: %s: %w", path, err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
