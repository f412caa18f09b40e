package tree

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateFace = flag.Bool("update-face", false, "write testdata/face.txt")

// At most 45 packages, with 2,800 exported names in total, can be imported by other modules. All other packages are
// below internal/.
func TestImportablePackagesAreFew(t *testing.T) {
	hidden := map[string]bool{"internal": true, "testdata": true}
	packages, names := map[string]bool{}, 0
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		switch name := e.Name(); {
		case err != nil:
			return err
		case e.IsDir() && path != "../.." && (hidden[name] || strings.ContainsAny(name[:1], "._")):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if file.Name.Name != "main" {
			packages[filepath.Dir(path)] = true
			names += len(exported(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) > 45 || names > 2800 {
		t.Errorf("%d packages with %d exported names can be imported; at most 45 with 2,800 are wanted: "+
			"put what no other program should import below internal/", len(packages), names)
	}
	if len(packages) < 20 || names < 1000 {
		t.Errorf("%d packages with %d names were found: is this the root of the tree?", len(packages), names)
	}
}

// testdata/face.txt lists every exported name of the root package, so that a change of the public API is noticed. go
// test ./internal/tree -run TestRootFace -args -update-face writes the list.
func TestRootFace(t *testing.T) {
	files, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var face []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		face = append(face, exported(file)...)
	}
	slices.Sort(face)
	face = slices.Compact(face) // a name that is declared in one file per platform occurs several times
	got := strings.Join(face, "\n") + "\n"
	const list = "testdata/face.txt"
	if *updateFace {
		if err := os.WriteFile(list, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the face of the root package is not that of %s.\nIt has:\n%s", list, got)
	}
}

// exported lists the exported functions, types, variables, constants and methods that a file declares.
func exported(file *ast.File) []string {
	var names []string
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			receiver := ""
			if d.Recv != nil {
				receiver = typeName(d.Recv.List[0].Type)
			}
			if d.Name.IsExported() && (receiver == "" || ast.IsExported(receiver)) {
				names = append(names, strings.TrimPrefix(receiver+"."+d.Name.Name, "."))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						names = append(names, s.Name.Name)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() {
							names = append(names, n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// typeName returns the name of a receiver's type: T of T, *T and *T[E].
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
