package planread

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"sparrow/plan"
)

const module = "sparrow/"

// runs lists the packages that run passes and therefore read plans. Code that prints plans is not included.
var runs = []string{"internal/step", "internal/attn/...", "internal/model/...", "engine"}

// made lists the functions that make or compare plans. A field that only they read has no effect on a pass.
var made = []string{planned + ".Build", planned + ".Resolve", planned + ".ShapeOf", "(*" + planned + ".Shaper).Of",
	"(*" + planned + ".Plan).Bytes"}

// Fields that no code reads belong to plans of other engines' kernels; TestPlansSayWhatRuns and every test of an engine
// show that our plans leave them unset.
func TestUnreadFieldsAreThoseOfOtherEngines(t *testing.T) {
	list, err := unreadFields()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(list, unread) {
		t.Errorf("no running code reads the fields %q, want %q", list, unread)
	}
}

// unreadFields returns the fields of plans that no code acts on and that explain does not print.
func unreadFields() ([]string, error) {
	acted, err := reading()
	if err != nil {
		return nil, err
	}
	var list []string
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch {
		case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
			walk(t.Elem())
		case t.Kind() == reflect.Struct && t.PkgPath() == planned && !seen[t]:
			seen[t] = true
			for i := range t.NumField() {
				if f := name(t, i); told[f] == "" {
					if !acted[f] {
						list = append(list, f)
					}
					walk(t.Field(i).Type)
				}
			}
		}
	}
	walk(reflect.TypeFor[plan.Plan]())
	slices.Sort(list)
	return list, nil
}

// reading returns the fields that running code reads, directly or through functions of package plan.
var reading = sync.OnceValues(func() (map[string]bool, error) {
	r := reader{files: token.NewFileSet(), reads: map[string]map[string]bool{}, calls: map[string]map[string]bool{}}
	if err := r.load(); err != nil {
		return nil, fmt.Errorf("planread: %w", err)
	}
	fields, seen := map[string]bool{}, map[string]bool{}
	var visit func(string)
	visit = func(function string) {
		if seen[function] || slices.Contains(made, function) {
			return
		}
		seen[function] = true
		for f := range r.reads[function] {
			fields[f] = true
		}
		for f := range r.calls[function] {
			visit(f)
		}
	}
	visit("")
	return fields, nil
})

// reader records which fields of plan are read, and which functions of plan are called, for each function of plan. The
// name "" stands for all running code.
type reader struct {
	files        *token.FileSet
	imports      types.Importer
	reads, calls map[string]map[string]bool
}

// source is a package as go list describes it.
type source struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// acts reports whether a package is plan itself or a package that runs passes.
func (s *source) acts() bool {
	return s.ImportPath == planned || slices.ContainsFunc(runs, func(pattern string) bool {
		below, deep := strings.CutSuffix(module+pattern, "/...")
		return s.ImportPath == below || deep && strings.HasPrefix(s.ImportPath, below+"/")
	})
}

func (r *reader) load() error {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", planned}
	for _, p := range runs {
		args = append(args, module+p)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var own []source
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var s source
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		exports[s.ImportPath] = s.Export
		if s.acts() {
			own = append(own, s)
		}
	}
	r.imports = importer.ForCompiler(r.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for i := range own {
		if err := r.check(&own[i]); err != nil {
			return err
		}
	}
	return nil
}

// check records the fields and functions that the functions of a package use.
func (r *reader) check(s *source) error {
	files := make([]*ast.File, len(s.GoFiles))
	for i, name := range s.GoFiles {
		var err error
		files[i], err = parser.ParseFile(r.files, filepath.Join(s.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}}
	if _, err := (&types.Config{Importer: r.imports}).Check(s.ImportPath, r.files, files, info); err != nil {
		return err
	}
	for _, f := range files {
		for _, d := range f.Decls {
			function := ""
			if fn, ok := d.(*ast.FuncDecl); ok && s.ImportPath == planned {
				function = info.Defs[fn.Name].(*types.Func).FullName()
			}
			r.walk(info, d, function)
		}
	}
	return nil
}

// walk records the fields and functions that a declaration uses. A field on the left of = is written, not read.
func (r *reader) walk(info *types.Info, d ast.Decl, function string) {
	if r.reads[function] == nil {
		r.reads[function], r.calls[function] = map[string]bool{}, map[string]bool{}
	}
	written := map[ast.Expr]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				written[e] = n.Tok == token.ASSIGN
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal && !written[n] {
				r.field(s, function)
			}
		case *ast.Ident:
			if f, ok := info.Uses[n].(*types.Func); ok && f.Pkg() != nil && f.Pkg().Path() == planned {
				r.calls[function][f.Origin().FullName()] = true
			}
		}
		return true
	})
}

// field records a field and the fields in which it is embedded.
func (r *reader) field(s *types.Selection, function string) {
	at := s.Recv()
	for _, i := range s.Index() {
		if p, ok := at.Underlying().(*types.Pointer); ok {
			at = p.Elem()
		}
		f := at.Underlying().(*types.Struct).Field(i)
		if t, ok := types.Unalias(at).(*types.Named); ok && t.Obj().Pkg() != nil && t.Obj().Pkg().Path() == planned {
			r.reads[function][t.Obj().Name()+"."+f.Name()] = true
		}
		at = f.Type()
	}
}
