// Package image embeds the compiled kernels in the binary, with a manifest that lists the sources of each image.
//
// For the name of an image it returns the cubin (or PTX, for devices without a cubin) and the entry in the manifest.
// The other files of this folder are written by the kernel build tool (go run ./cmd/kernelc) and must not be edited.
package image

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"sparrow/internal/cuda/cubin"
)

//go:embed manifest.json *.gz
var files embed.FS

// ErrUnknown is returned for an image or kernel that this build does not contain.
var ErrUnknown = errors.New("image: not in this build")

// Manifest describes the embedded images.
type Manifest struct {
	Compiler string  `json:"compiler"` // name and version of the compiler
	Images   []Image `json:"images"`   // sorted by name
}

// Image is one compiled translation unit.
type Image struct {
	Name    string         `json:"name"`
	Source  string         `json:"source"` // path under the source root
	Target  string         `json:"target"` // architecture of the cubin; without a cubin, that of the kernel properties
	Options []string       `json:"options"`
	Files   []File         `json:"files"` // the source and all files that it includes
	Hash    string         `json:"hash"`  // hash of target, options and files, see Hash
	Bytes   int            `json:"bytes"` // size of the uncompressed cubin
	PTX     bool           `json:"ptx"`   // PTX for PTXTarget(Source) is embedded
	Kernels []cubin.Kernel `json:"kernels"`
	Structs []cubin.Struct `json:"structs"`
}

// Load reads the embedded manifest.
var Load = sync.OnceValues(func() (*Manifest, error) {
	b, err := files.ReadFile("manifest.json")
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("image: manifest: %w", err)
	}
	return m, nil
})

// Find returns the image that contains a kernel, and the kernel's properties. If the kernel exists as machine code and
// as PTX, it returns the image with machine code.
func (m *Manifest) Find(kernel string) (*Image, *cubin.Kernel, error) {
	for _, native := range []bool{true, false} {
		for i := range m.Images {
			for j := range m.Images[i].Kernels {
				if m.Images[i].Native() == native && m.Images[i].Kernels[j].Name == kernel {
					return &m.Images[i], &m.Images[i].Kernels[j], nil
				}
			}
		}
	}
	return nil, nil, fmt.Errorf("kernel %q: %w", kernel, ErrUnknown)
}

// Native reports whether the image's machine code is embedded.
func (im *Image) Native() bool { return Native(im.Source) }

// Cubin returns the image's machine code.
func (im *Image) Cubin() ([]byte, error) {
	if !im.Native() {
		return nil, fmt.Errorf("machine code of image %q: %w", im.Name, ErrUnknown)
	}
	return read(CubinFile(im.Name))
}

// Text returns the image's PTX, which the driver of any device from Ampere on can compile.
func (im *Image) Text() ([]byte, error) {
	if !im.PTX {
		return nil, fmt.Errorf("PTX of image %q: %w", im.Name, ErrUnknown)
	}
	return read(PTXFile(im.Name))
}

// CubinFile returns the name of the file with an image's machine code.
func CubinFile(name string) string { return name + ".cubin.gz" }

// PTXFile returns the name of the file with an image's PTX.
func PTXFile(name string) string { return name + ".ptx.gz" }

// contents maps the name of an embedded file to a function that unpacks the file on its first call.
var contents sync.Map

// read returns an unpacked file. The caller must not change it, because devices of several ranks load the same images.
func read(name string) ([]byte, error) {
	once, _ := contents.LoadOrStore(name, sync.OnceValues(func() ([]byte, error) { return unpack(name) }))
	return once.(func() ([]byte, error))()
}

func unpack(name string) ([]byte, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("image: %s: %w", name, err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("image: %s: %w", name, err)
	}
	return out, nil
}
