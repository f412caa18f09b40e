// Package family opens checkpoints: it reads config.json, maps the weights and loads the model with the package of its
// family.
package family

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"sparrow/internal/cost"
	"sparrow/internal/device/group"
	"sparrow/internal/device/offload"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/dsa"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/model/next"
	"sparrow/internal/model/nn"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/shard"
	"sparrow/internal/model/v4"
	"sparrow/internal/model/v41"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// Source is an opened checkpoint whose weights are not loaded yet.
type Source struct {
	Name    string             // the folder, for messages
	Config  *config.Config     // the fields of every family
	Model   config.Description // all of config.json, such as *config.DSA
	Weights *weight.Checkpoint
	Skipped []string // kinds of tensors that loading skipped, with the number of each

	undrafted bool // the drafting layers were dropped (DropDrafts)
}

// New returns a Source with a description and the weights that it describes.
func New(name string, d config.Description, w *weight.Checkpoint) *Source {
	w.Scheme = d.Common().Scheme
	return &Source{Name: name, Config: d.Common(), Model: d, Weights: w}
}

// IsGGUF reports whether a path is that of a GGUF file, not of a checkpoint folder: by its name, or by its first bytes.
func IsGGUF(path string) bool {
	return strings.EqualFold(filepath.Ext(path), gguf.Extension) || gguf.Begins(path)
}

// NameOf returns the name of a model in a folder or a GGUF file: all parts of a split file have the same name.
func NameOf(path string) string {
	name := filepath.Base(filepath.Clean(path))
	if strings.EqualFold(filepath.Ext(name), gguf.Extension) {
		name = gguf.Stem(name)
	}
	return name
}

// Open reads the config and maps the weights of a checkpoint folder or a GGUF file.
func Open(dir string) (*Source, error) {
	if IsGGUF(dir) {
		f, err := llamacpp.Open(dir)
		if err != nil {
			return nil, err
		}
		return FromGGUF(dir, f)
	}
	release, err := config.ReadRelease(dir)
	if err != nil {
		return nil, err
	}
	w, err := weight.Open(dir)
	if err != nil {
		if _, refused := release.Describe(); refused != nil { // an unsupported release is the more useful error
			err = refused
		}
		return nil, err
	}
	release.Tensors = w.Names()
	d, err := release.Describe()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	w.TrimPrefix(d.Common().TextPrefix())
	return New(dir, d, w), nil
}

// FromGGUF returns the model of an open GGUF file. If it returns an error, it has closed the file.
func FromGGUF(path string, f *llamacpp.Folder) (*Source, error) {
	d, err := config.Describe(path, f.Config)
	if err != nil {
		return nil, errors.Join(err, f.Weights.Close())
	}
	d.Common().Format = config.FormatGGUF
	return New(path, d, f.Weights), nil
}

// DropDrafts removes the drafting layers from the source, to save memory in engines that do not draft. It must be
// called before the model is loaded.
func (s *Source) DropDrafts() {
	if s.undrafted || s.Config.NextN == 0 {
		return
	}
	s.undrafted = true
	layer := fmt.Sprintf("layers.%d.", s.Config.Layers)
	s.Weights.Drop("mtp.", "model."+layer, "model.language_model."+layer) // the prefixes in all families
}

// Close unmaps the weights. Models loaded from the source must no longer be used.
func (s *Source) Close() error { return s.Weights.Close() }

// Load loads the weights to a device and returns the model. onTensor, if not nil, is called once for each tensor, for
// progress bars.
func (s *Source) Load(dev kernel.Device, onTensor func(name string)) (model.Model, error) {
	return s.LoadPart(dev, kernel.Member{}, Placed{}, onTensor)
}

// Placed describes where a model's experts are stored: on the device, or in host memory.
type Placed struct {
	Placement *placement.Placement // nil: all experts are on the device
	Host      *offload.Host
	Movable   bool // experts may move between device and host memory after loading
	Described bool // only types and shapes of matrices are checked; the model cannot run
}

// LoadPlaced is Load with experts that may be in host memory.
func (s *Source) LoadPlaced(dev kernel.Device, p Placed, onTensor func(name string)) (model.Model, error) {
	return s.LoadPart(dev, kernel.Member{}, p, onTensor)
}

// ExpertLayers returns how many layers a placement has methods for, drafting layers included, and the experts of each.
func (s *Source) ExpertLayers() (layers, experts int) {
	switch c := s.Model.(type) {
	case *config.DSA:
		return c.Layers + c.NextN, c.FFN.Experts
	case *config.V4:
		return c.Layers + c.NextN, c.FFN.Experts
	case *config.Next:
		return c.Layers + c.NextN, c.FFN.Experts
	case *config.V41:
		return c.Layers, c.FFN.Experts
	}
	return 0, 0
}

// LayerExperts returns the number of routed experts of each layer; 0 for a layer without experts or a drafting layer
// that was left out.
func (s *Source) LayerExperts() []int {
	layers, experts := s.ExpertLayers()
	list := make([]int, layers)
	var dense []bool
	switch c := s.Model.(type) {
	case *config.DSA:
		dense = c.FFN.Dense
	case *config.Next:
		dense = c.FFN.Dense
	}
	for l := range list {
		if (l >= len(dense) || !dense[l]) && (l < s.Config.Layers || !s.undrafted) {
			list[l] = experts
		}
	}
	return list
}

// ChosenExperts returns how many experts a row chooses in each layer that has any.
func (s *Source) ChosenExperts() int {
	switch c := s.Model.(type) {
	case *config.DSA:
		return c.FFN.TopK
	case *config.V4:
		return c.FFN.TopK
	case *config.Next:
		return c.FFN.TopK
	case *config.V41:
		return c.FFN.TopK
	}
	return 0
}

// ExpertFormat returns how the checkpoint stores its routed experts. If their types differ, the first name in
// alphabetical order decides.
func (s *Source) ExpertFormat() cost.Format {
	format, first := cost.BF16, ""
	for t := range s.Weights.All() {
		if !strings.Contains(t.Name, ".experts.") || first != "" && t.Name > first {
			continue
		}
		values, _ := s.Weights.Parameters(t)
		if values == 0 { // scales and zero points
			continue
		}
		switch t.DType {
		case weight.I8, weight.U8, weight.F4E2M1x2, weight.I32: // int4 has about as many bits as FP4, int8 as FP8
			format, first = cost.E2M1, t.Name
			if t.Bytes() >= values {
				format = cost.E4M3
			}
		case weight.F8E4M3:
			format, first = cost.E4M3, t.Name
		case weight.BF16:
			format, first = cost.BF16, t.Name
		}
	}
	return format
}

// PlainExperts reports whether all routed experts are bf16, or all e4m3 in blocks of 128 x 128, or all FP4 in groups of
// 32, as kernel.ExpertWeights.Plain requires.
func (s *Source) PlainExperts() bool {
	first := weight.Invalid
	for t := range s.Weights.All() {
		if values, _ := s.Weights.Parameters(t); values == 0 || !strings.Contains(t.Name, ".experts.") {
			continue
		}
		m, err := s.Weights.Matrix(t.Name)
		plain := m.Values == weight.BF16 || m.Values == weight.F8E4M3 && m.BlockRows == 128 && m.BlockCols == 128 ||
			m.Values == weight.F4E2M1x2 && m.BlockCols == 32 && m.Factor == 0 && m.Scale.DType != weight.F8E4M3
		if err != nil || !plain || first != weight.Invalid && m.Values != first {
			return false
		}
		first = m.Values
	}
	return first != weight.Invalid
}

// LoadRanks loads the shards of each rank to its device and returns one model for all ranks. how is the division of
// attention. onTensor is called once for each tensor.
func (s *Source) LoadRanks(g *group.Group, how plan.Division, onTensor func(name string)) (model.Model, error) {
	facts, err := Facts(s.Model)
	if err == nil {
		facts, err = facts.Divide(g.Ranks(), how)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	var parts []model.Model
	for r := range g.Ranks() {
		if r > 0 {
			onTensor = nil
		}
		of := g.Member(r)
		of.Requests = facts.ByRequests()
		m, err := s.LoadPart(g.Device(r), of, Placed{}, onTensor)
		if err != nil {
			return nil, err
		}
		parts = append(parts, m)
	}
	return shard.New(g, parts)
}

// LoadPart loads the shards of one of several ranks to a device, with its experts placed according to p.
func (s *Source) LoadPart(dev kernel.Device, of kernel.Member, p Placed, onTensor func(name string)) (model.Model,
	error) {
	if err := p.Placement.Check(s.ExpertLayers()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	l := nn.NewLoader(s.Weights, dev, onTensor)
	l.Described = p.Described
	l.Pow2Rows, l.Ranks, l.Placement, l.Movable = s.Config.Pow2Rows, of, p.Placement, p.Movable
	if p.Host != nil {
		l.Host = p.Host
	}
	m, err := s.load(l, dev)
	s.Skipped = l.Skipped()
	switch {
	case errors.Is(err, nn.ErrTensors) && IsGGUF(s.Name):
		hint := "download the file again, or convert the model again"
		if of.Count() > 1 {
			hint = "if ranks cannot share a weight, use one of the numbers of ranks above, or --attention dp, which " +
				"does not divide the weights of attention; otherwise " + hint
		}
		return nil, fmt.Errorf("%s: %w\ntensor names are those of safetensors files; %s", s.Name, err, hint)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return m, nil
}

func (s *Source) load(l *nn.Loader, dev kernel.Device) (model.Model, error) {
	switch c := s.Model.(type) {
	case *config.DSA:
		return loaded(dsa.Load(c, l, dev))
	case *config.V4:
		return loaded(v4.Load(c, l, dev))
	case *config.Next:
		return loaded(next.Load(c, l, dev))
	case *config.V41:
		var tokens []int32
		if len(c.Engram.Layers) > 0 && !l.Described {
			var err error
			if tokens, err = s.tokenMap(c.Vocab, c.Engram.Compressed); err != nil {
				return nil, err
			}
		}
		return loaded(v41.Load(c, l, dev, tokens))
	}
	return nil, fmt.Errorf("%w: %T", config.ErrFamily, s.Model)
}

// loaded returns an untyped nil instead of a nil pointer of type M, so that callers can compare the model with nil.
func loaded[M model.Model](m M, err error) (model.Model, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Facts returns the properties of a described model that plans depend on. No weights are needed.
func Facts(d config.Description) (plan.Model, error) {
	switch c := d.(type) {
	case *config.DSA:
		return dsa.Facts(c), nil
	case *config.V4:
		return v4.Facts(c), nil
	case *config.Next:
		return next.Facts(c), nil
	case *config.V41:
		return v41.Facts(c), nil
	}
	return plan.Model{}, fmt.Errorf("%w: %T", config.ErrFamily, d)
}
