package llamacpp

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sparrow/weight"
	"sparrow/weight/gguf"
)

// A DSpark draft head of DeepSeek-V4 is a separate GGUF file next to the file of the model (dspark spec, 10). Two forms
// (dialects) are supported: llama.cpp's (dflash) and ds4's (deepseek4-dspark). The metadata describes only the head;
// loading the model fails if the sizes of its tensors are not those of the model.

// sidecar is a draft head in a file next to a model.
type sidecar struct {
	file   *gguf.File
	path   string
	names  *headNames
	stages int
	rank   int
}

// headNames holds the metadata keys and tensor names of a dialect.
type headNames struct {
	block, taps, noise string
	tapsFrom           int64             // number of the model's first layer in the file
	stage              string            // prefix of the tensor names of a stage
	first, last        map[string]string // names of tensors of the first and the last stage, by their names in the file
}

// lastStage returns the map for tensors that only the last stage has, from their names in a dialect.
func lastStage(norm, hc, markov, confidence string) map[string]string {
	out := map[string]string{norm: "norm.weight", confidence: "confidence_head.proj.weight"}
	for _, part := range []string{"fn", "base", "scale"} {
		out[hc+part] = "hc_head_" + part
	}
	for _, part := range []string{"1", "2"} {
		out[markov+part] = "markov_head.markov_w" + part + ".weight"
	}
	return out
}

// heads holds the dialects by architecture. %d in a name is the number of the stage. Tensor names in a file may end in
// .weight or not.
var heads = map[string]*headNames{
	"dflash": {block: "dflash.block_size", taps: "dflash.target_layers", tapsFrom: 1,
		noise: "tokenizer.ggml.mask_token_id", stage: "blk.%d.",
		first: map[string]string{"fc": "main_proj.weight", "enc.output_norm": "main_norm.weight"},
		last:  lastStage("output_norm", "output_hc_", "markov_w", "conf_proj")},
	"deepseek4-dspark": {block: "dspark.block_size", taps: "dspark.target_layer_ids", noise: "dspark.noise_token_id",
		stage: "mtp.%d.",
		first: map[string]string{"mtp.0.main_proj": "main_proj.weight", "mtp.0.main_norm": "main_norm.weight"},
		last: lastStage("mtp.%d.norm", "mtp.%d.hc_head_", "mtp.%d.markov_head.markov_w",
			"mtp.%d.confidence_head.proj")},
}

// isHead reports whether an architecture is a draft head in a separate file.
func isHead(arch string) bool { return heads[arch] != nil }

// besideModel returns the draft head in the folder of a model: the only GGUF file with dspark or dflash in its name
// that has one of the dialects. It returns nil if there is none.
func besideModel(path string) (_ *sidecar, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	var found *sidecar
	defer func() {
		if err != nil && found != nil {
			err = errors.Join(err, found.file.Close())
		}
	}()
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		if !strings.HasSuffix(name, gguf.Extension) || e.Name() == filepath.Base(path) ||
			!strings.Contains(name, "dspark") && !strings.Contains(name, "dflash") {
			continue
		}
		s, err := openHead(filepath.Join(filepath.Dir(path), e.Name()))
		switch {
		case err != nil:
			return nil, err
		case s != nil && found != nil:
			return nil, errors.Join(fmt.Errorf("gguf: %s: %w: %s and %s are two draft heads in its folder; keep one",
				path, ErrUnsupported, filepath.Base(found.path), filepath.Base(s.path)), s.file.Close())
		case s != nil:
			found = s
		}
	}
	return found, nil
}

// openHead opens a draft head; it returns nil for a file that is not a draft head.
func openHead(path string) (*sidecar, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the draft head in the model's folder: %w; move this file out of the folder to run "+
			"without drafts", err)
	}
	arch, _ := f.Metadata.Text("general.architecture")
	s := &sidecar{file: f, path: path, names: heads[arch]}
	if s.names == nil {
		return nil, f.Close()
	}
	for i := range f.Tensors {
		name := f.Tensors[i].Name
		var stage int
		var rest string
		if n, _ := fmt.Sscanf(name, s.names.stage+"%s", &stage, &rest); n == 2 && stage >= 0 {
			s.stages = max(s.stages, stage+1)
		}
		if strings.HasSuffix(strings.TrimSuffix(name, ".weight"), "markov_w1") && len(f.Tensors[i].Shape) == 2 {
			s.rank = f.Tensors[i].Shape[1]
		}
	}
	if s.rank == 0 || s.stages == 0 { // files of llama.cpp's architecture may contain other drafters
		err := fmt.Errorf("gguf: %s: %w: the draft head has no Markov head (markov_w1) or no stages; want a DSpark "+
			"head; move the file away to run without drafts", path, ErrUnsupported)
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// describe adds the fields of the head to config.json of the model.
func (s *sidecar) describe(r *reader, c map[string]any) {
	meta := s.file.Metadata
	problem := func(key, want string) {
		r.problems = append(r.problems, fmt.Sprintf("the draft head %s: %s is %s, want %s", s.path, key,
			meta.Describe(key), want))
	}
	for field, key := range map[string]string{"dspark_block_size": s.names.block,
		"dspark_noise_token_id": s.names.noise} {
		n, ok := meta.Int(key)
		if !ok {
			problem(key, "a number")
		}
		c[field] = n
	}
	taps, ok := meta.Ints(s.names.taps)
	if !ok {
		problem(s.names.taps, "numbers of layers")
	}
	taps = slices.Clone(taps)
	for i := range taps {
		taps[i] -= s.names.tapsFrom
	}
	c["dspark_target_layer_ids"], c["dspark_markov_rank"], c["num_nextn_predict_layers"] = taps, s.rank, 1
	if ratios, ok := c["compress_ratios"].([]int64); ok {
		c["compress_ratios"] = slices.Concat(ratios, make([]int64, s.stages))
	}
}

// tensors returns the tensors of the head with their official names.
func (s *sidecar) tensors(of *shape) ([]weight.Tensor, error) {
	stages := *of
	var out []weight.Tensor
	var problems []string
	known := map[string]string{}
	for name, to := range s.names.first {
		known[name] = "mtp.0." + to
	}
	for name, to := range s.names.last {
		if strings.Contains(name, "%d") {
			name = fmt.Sprintf(name, s.stages-1)
		}
		known[name] = fmt.Sprintf("mtp.%d.%s", s.stages-1, to)
	}
	width := 0
	for i := range s.file.Tensors {
		t := &s.file.Tensors[i]
		list, err := s.translate(t, &stages, known)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for j := range list {
			if strings.HasSuffix(list[j].Name, "main_norm.weight") {
				width = list[j].Shape[0]
			}
		}
		out = append(out, list...)
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return nil, fmt.Errorf("gguf: %s: %w:\n  %s\nmove this file out of the folder to run without "+
			"drafts", s.path, ErrUnsupported,
			strings.Join(problems, "\n  "))
	}
	return s.confident(out, width), nil
}

// confident adds a confidence head with a constant value if the file has none; draft lengths then depend only on how
// many earlier drafts were accepted.
func (s *sidecar) confident(list []weight.Tensor, width int) []weight.Tensor {
	name := fmt.Sprintf("mtp.%d.confidence_head.proj.weight", s.stages-1)
	for i := range list {
		if t := &list[i]; t.Name == name {
			if len(t.Shape) == 1 {
				t.Shape = []int{1, t.Shape[0]}
			}
			return list
		}
	}
	n := width + s.rank
	return append(list, weight.Tensor{Name: name, DType: weight.BF16, Shape: []int{1, n}, Data: make([]byte, 2*n)})
}

// translate returns a tensor of the file in the form of the checkpoint. Embedding and head are skipped: those of the
// model's file are used.
func (s *sidecar) translate(t *gguf.Tensor, of *shape, known map[string]string) ([]weight.Tensor, error) {
	plain := strings.TrimSuffix(t.Name, ".weight")
	if name, ok := known[plain]; ok {
		return one(t, name)
	}
	if plain == "token_embd" || plain == "output" {
		return nil, nil
	}
	var stage int
	var rest string
	if n, err := fmt.Sscanf(t.Name, s.names.stage+"%s", &stage, &rest); n == 2 && err == nil && stage >= 0 {
		prefix := fmt.Sprintf("mtp.%d.", stage)
		if name, ok := v4Names.inLayer[rest]; ok {
			return one(t, prefix+name)
		}
		if name, ok := v4Names.fused[rest]; ok {
			return of.experts3D(t, prefix, name)
		}
	}
	return nil, fmt.Errorf("tensor %s is unknown", t.Name)
}

// dialects lists the architectures of draft heads, for messages.
func dialects() string { return strings.Join(slices.Sorted(maps.Keys(heads)), " and ") }
