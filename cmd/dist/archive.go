package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// entry is a file in an archive.
type entry struct {
	name string // path below the archive's folder, with slashes
	mode fs.FileMode
	text []byte
}

// pack makes the archive of a build: zip for Windows, tar.gz elsewhere. Equal arguments give equal bytes.
func pack(b build, folder string, files []entry, at time.Time) (name string, archive []byte, err error) {
	var out bytes.Buffer
	if b.os == "windows" {
		err = writeZip(&out, folder, files, at)
		return folder + ".zip", out.Bytes(), err
	}
	err = writeTar(&out, folder, files, at)
	return folder + ".tar.gz", out.Bytes(), err
}

func writeTar(w io.Writer, folder string, files []entry, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression) // the header has neither name nor time unless they are set
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Size: int64(len(f.text)),
			Mode: int64(f.mode), ModTime: at, Format: tar.FormatUSTAR, Uname: "root", Gname: "root"}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func writeZip(w io.Writer, folder string, files []entry, at time.Time) error {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	for _, f := range files {
		h := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		to, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.text); err != nil {
			return err
		}
	}
	return z.Close()
}

// glibc lists the libraries that a build with CUDA may be linked with. All belong to glibc.
var glibc = []string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}

// checkLinking refuses a Linux binary that is linked with a library not in glibc or, without CUDA, with any library.
func checkLinking(b build, program []byte) error {
	if b.os != "linux" {
		return nil
	}
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	loaded := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	for _, lib := range needed {
		if !b.cuda || !slices.Contains(glibc, lib) {
			return fmt.Errorf("%s needs %s", b.name, lib)
		}
	}
	if loaded != b.cuda {
		return fmt.Errorf("%s: dynamic linking is %v, want %v", b.name, loaded, b.cuda)
	}
	return nil
}
