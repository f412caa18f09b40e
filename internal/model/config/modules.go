package config

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sparrow/weight"
)

// ModuleType describes how the values of a matrix are stored.
type ModuleType struct {
	Bits  int    // bits of a value
	Float bool   // values are e2m1 or e4m3; otherwise they are integers
	Group int    // values of a row with one scale; 0 if scales are for blocks
	Block [2]int // rows and columns of a block with one scale; 0 means all rows or all columns
	// Columns means that matrices are stored by columns with zero points, as AWQ or GPTQ; Method is one of the two.
	Columns bool
	Method  string
}

// String returns the name of the type's format.
func (t ModuleType) String() string {
	switch {
	case t.Float && t.Bits == 4 && t.Group == 16:
		return "NVFP4"
	case t.Float && t.Bits == 4:
		return "MXFP4"
	case t.Float:
		return "FP8"
	}
	return weight.Group{Bits: t.Bits, Size: t.Group}.String()
}

// Modules describes the types of a release's matrices, for use before the weights are downloaded.
type Modules struct {
	rules []moduleRule
	// Base is the type of matrices to which no rule applies: FormatBF16, or FormatFP8 or FormatFP4 if most modules have
	// the family's usual types.
	Base Format
	// Assumed lists the assumptions about properties that the config files do not state; empty if they state
	// everything.
	Assumed string
}

// moduleRule assigns a type to the modules for which in returns true; a nil kind means the type of Base. If in is nil,
// the rule applies to every linear module.
type moduleRule struct {
	in   func(module string) bool
	kind *ModuleType
}

// Of returns the type of a matrix by its names in releases; ok is false for a matrix of the type of Base. linear is
// true for a "linear module" in the sense of the formats: not a router, the embedding or the head.
func (m *Modules) Of(linear bool, names ...string) (t ModuleType, ok bool) {
	for _, r := range m.rules {
		if r.in == nil && linear || r.in != nil && slices.ContainsFunc(names, r.in) {
			if r.kind == nil {
				return t, false
			}
			return *r.kind, true
		}
	}
	return t, false
}

// rawModules holds the fields, of both files, that select the modules to which a format applies.
type rawModules struct {
	Ignore    []string            `json:"ignore"`
	Exclude   []string            `json:"exclude_modules"`
	Without   []string            `json:"modules_to_not_convert"`
	GroupSize int                 `json:"group_size"`
	Layers    map[string]rawLayer `json:"quantized_layers"`
	Groups    map[string]struct {
		Targets []string `json:"targets"`
		rawGroup
	} `json:"config_groups"`
	Extra   map[string]json.RawMessage `json:"extra_config"`
	Dynamic map[string]any             `json:"dynamic"`
}

// Modules reads the types of a release's matrices from its small files.
func (r Release) Modules() (*Modules, error) {
	fields, _, err := r.open()
	if err != nil {
		return nil, err
	}
	q, at, err := r.quantization(fields)
	if err != nil {
		return nil, fmt.Errorf("config: %s: %w", r.File, err)
	}
	m := &Modules{Base: FormatBF16}
	var raw rawModules
	for _, text := range [][]byte{fields["quantization_config"], fields["compression_config"], r.Older} {
		if text != nil && string(text) != "null" {
			if err := json.Unmarshal(text, &raw); err != nil {
				return nil, fmt.Errorf("config: %s: %s: %w", r.File, at, err)
			}
		}
	}
	if r.ModelOpt != nil {
		var file struct {
			Quantization rawModules `json:"quantization"`
		}
		if err := json.Unmarshal(r.ModelOpt, &file); err != nil {
			return nil, fmt.Errorf("config: %s: %s: %w", r.File, QuantFile, err)
		}
		own := file.Quantization
		raw.Exclude = append(raw.Exclude, own.Exclude...)
		if len(raw.Layers) == 0 {
			raw.Layers = own.Layers
		}
	}
	switch q.Method {
	case "fp8":
		out, err := q.blocks(func(_, _, name string) error { return fmt.Errorf("weights in %s: %w", name, ErrFormat) },
			expertsAreFP4(fields))
		if err != nil {
			return nil, fmt.Errorf("config: %s: %w", r.File, err)
		}
		if m.Base = FormatFP8; strings.HasPrefix(string(out.format), "FP4") {
			m.Base = FormatFP4
		}
		if len(q.algorithms()) > 0 {
			m.modelopt(&q, &raw)
		} else if out.format != m.Base { // scales are for blocks of another size than the family's
			if m.Base == FormatFP4 {
				m.add(func(name string) bool { return strings.Contains(name, ".experts.") }, nil)
			}
			m.add(nil, &ModuleType{Bits: 8, Float: true, Block: out.scheme.Block})
		}
	case "modelopt", "modelopt_fp4":
		m.modelopt(&q, &raw)
	case "compressed-tensors":
		m.compressed(&raw)
	case "mxfp4", "quark":
		m.add(nil, &ModuleType{Bits: 4, Float: true, Group: 32})
		m.Assumed = "every matrix of the layers except routers is MXFP4"
	case "awq", "gptq", "auto-round", "intel/auto-round":
		m.columns(&q, &raw)
	}
	return m, nil
}

func (m *Modules) add(in func(string) bool, t *ModuleType) {
	m.rules = append(m.rules, moduleRule{in, t})
}

// modelopt reads patterns with * for modules that are not quantised, or a list of modules with their algorithms.
func (m *Modules) modelopt(q *rawQuantization, raw *rawModules) {
	for _, pattern := range append(slices.Clone(raw.Exclude), raw.Ignore...) {
		m.add(like(pattern), nil)
	}
	kinds := map[string]*ModuleType{
		"NVFP4": {Bits: 4, Float: true, Group: 16}, "W4A16_NVFP4": {Bits: 4, Float: true, Group: 16},
		"FP8": {Bits: 8, Float: true}, "FP8_PER_CHANNEL_PER_TOKEN": {Bits: 8, Float: true, Block: [2]int{1, 0}},
		"FP8_PB_WO": {Bits: 8, Float: true, Block: [2]int{128, 128}}, "MXFP8": {Bits: 8, Float: true, Group: 32}}
	for name, l := range raw.Layers {
		if t := kinds[strings.ToUpper(l.Algorithm)]; t != nil {
			m.add(below(name), t)
		}
	}
	if t := kinds[strings.ToUpper(q.Algorithm)]; t != nil {
		m.add(nil, t)
	}
	if t := kinds[strings.ToUpper(q.MoE)]; t != nil && len(raw.Layers) == 0 {
		m.add(func(name string) bool { return strings.Contains(name, ".experts.") }, t)
	}
}

// like returns a function that accepts the module with the given name and the modules below it or, for a pattern with
// *, all modules that match.
func like(pattern string) func(string) bool {
	if !strings.Contains(pattern, "*") {
		return below(pattern)
	}
	// Names of modules have no slash, so * matches any text.
	return func(name string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	}
}

// below returns a function that accepts a module and the modules below it.
func below(module string) func(string) bool {
	return func(name string) bool { return name == module || strings.HasPrefix(name, module+".") }
}

// compressed reads the groups of compressed-tensors, whose modules are given by classes, names or patterns.
func (m *Modules) compressed(raw *rawModules) {
	matcher := func(target string) func(string) bool {
		pattern, ok := strings.CutPrefix(target, "re:")
		if !ok {
			return below(target)
		}
		x, err := regexp.Compile("^(?:" + pattern + ")")
		if err != nil {
			m.Assumed = fmt.Sprintf("the pattern %q is not supported and was applied to no module", target)
			return func(string) bool { return false }
		}
		return x.MatchString
	}
	for _, target := range raw.Ignore {
		m.add(matcher(target), nil)
	}
	var whole []*ModuleType // types of all linear modules, used after the types of named modules
	for _, g := range raw.Groups {
		w := g.Weights
		t := &ModuleType{Bits: w.Bits, Float: w.Type == "float"}
		switch {
		case w.Size > 0 && w.Strategy != "channel" && w.Strategy != "tensor":
			t.Group = w.Size
		case len(w.Block) == 2:
			copy(t.Block[:], w.Block)
		case w.Strategy == "channel":
			t.Block[0] = 1
		}
		for _, target := range g.Targets {
			if target == "Linear" {
				whole = append(whole, t)
				continue
			}
			m.add(matcher(target), t)
		}
	}
	for _, t := range whole {
		m.add(nil, t)
	}
	if len(m.rules) == len(raw.Ignore) {
		m.Assumed = "no module has the format: config_groups list no modules"
	}
}

// columns adds the rules of AWQ, GPTQ and AutoRound, which exclude modules by parts of their names.
func (m *Modules) columns(q *rawQuantization, raw *rawModules) {
	for _, part := range raw.Without {
		m.add(func(name string) bool { return strings.Contains(name+".", part) }, nil)
	}
	for pattern := range raw.Dynamic {
		if x, err := regexp.Compile(strings.TrimPrefix(pattern, "-:")); err == nil {
			m.add(x.MatchString, nil)
		}
	}
	method := "gptq"
	if q.Method == "awq" || strings.HasSuffix(q.Pack, "awq") {
		method = "awq"
	}
	t := &ModuleType{Bits: q.Bits, Group: q.GroupSize, Columns: true, Method: method}
	m.add(nil, t)
	if len(raw.Without)+len(raw.Dynamic) == 0 {
		m.Assumed = fmt.Sprintf("every matrix of the layers except routers is %v, because no field lists exceptions", t)
	}
	if len(raw.Extra) > 0 {
		m.Assumed = "modules of extra_config have the same number of bits as the others"
	}
}
