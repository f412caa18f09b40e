// Command platforms checks that every package of the module, without tests, compiles for platforms on which tests do
// not run, given as GOOS/GOARCH. It type-checks the sources for each platform, including function bodies of the module,
// and looks for functions that only an assembly file of another platform defines. This finds errors that depend on the
// platform (build constraints, system calls, sizes of int) in a tenth of the time of a compiler, which would first
// compile the standard library for each platform.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	patterns := []string{"./..."}
	failed := make([]error, len(os.Args)-1)
	var wait sync.WaitGroup
	for i, name := range os.Args[1:] {
		wait.Go(func() { failed[i] = check(".", name, patterns) })
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// source holds fields of the output of go list for a package on a platform.
type source struct {
	ImportPath, Dir string
	GoFiles, SFiles []string
	ImportMap       map[string]string // actual import paths by the paths in the source, if they differ
	Module          *struct{ Main bool }
	Error           *struct{ Err string }
}

// check type-checks packages for one platform and returns all errors in packages of the module.
func check(dir, platform string, patterns []string) error {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("platforms: %q: want GOOS/GOARCH such as linux/arm64", platform)
	}
	list := exec.Command("go", append([]string{"list", "-e", "-deps",
		"-json=ImportPath,Dir,GoFiles,SFiles,ImportMap,Module,Error"}, patterns...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	out, err := list.StdoutPipe()
	if err == nil {
		err = list.Start()
	}
	if err != nil {
		return fmt.Errorf("platforms: go list: %w", err)
	}
	c := checker{platform: platform, sizes: types.SizesFor("gc", arch), files: token.NewFileSet(),
		done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for d := json.NewDecoder(out); ; {
		var s source
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("platforms: go list: %w", err)
		}
		c.check(&s) // dependencies come before the packages that import them
	}
	if err := list.Wait(); err != nil {
		return fmt.Errorf("platforms: go list: %w", err)
	}
	return errors.Join(c.errs...)
}

type checker struct {
	platform string
	sizes    types.Sizes
	files    *token.FileSet
	done     map[string]*types.Package
	errs     []error
}

func (c *checker) fail(err error) { c.errs = append(c.errs, fmt.Errorf("%s: %w", c.platform, err)) }

func (c *checker) check(s *source) {
	if s.ImportPath == "unsafe" {
		return
	}
	own := s.Module != nil && s.Module.Main
	if s.Error != nil {
		c.fail(errors.New(strings.TrimSpace(s.Error.Err)))
	}
	mode := parser.SkipObjectResolution
	if own {
		mode |= parser.ParseComments // comments are needed by linked
	}
	var files []*ast.File
	for _, name := range s.GoFiles {
		f, err := parser.ParseFile(c.files, filepath.Join(s.Dir, name), nil, mode)
		if err != nil {
			c.fail(err)
			continue
		}
		files = append(files, f)
		if own && len(s.SFiles) == 0 {
			c.bodies(f)
		}
	}
	config := types.Config{Sizes: c.sizes, IgnoreFuncBodies: !own, Importer: importer{c, s.ImportMap},
		Error: func(err error) {
			if own {
				c.fail(err)
			}
		}}
	// The returned error is ignored: it is the first of the errors that config.Error collects.
	c.done[s.ImportPath], _ = config.Check(s.ImportPath, c.files, files, nil)
}

// bodies finds functions without a body in a package without assembly.
func (c *checker) bodies(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body == nil && !linked(fn) {
			c.fail(fmt.Errorf("%v: no body of %s for this platform", c.files.Position(fn.Pos()), fn.Name.Name))
		}
	}
}

// linked reports whether a go:linkname directive names the function.
func linked(fn *ast.FuncDecl) bool {
	if fn.Doc == nil {
		return false
	}
	for _, line := range fn.Doc.List {
		if strings.HasPrefix(line.Text, "//go:linkname "+fn.Name.Name) {
			return true
		}
	}
	return false
}

// importer finds packages that have already been checked, by the import path in the source.
type importer struct {
	c       *checker
	renamed map[string]string
}

func (i importer) Import(path string) (*types.Package, error) {
	if to, ok := i.renamed[path]; ok {
		path = to
	}
	if p := i.c.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no package %s", path)
}
