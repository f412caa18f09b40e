package llamacpp

import (
	"errors"
	"slices"

	"sparrow/internal/model/config"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// Folder holds the contents of a GGUF file as the contents of the files of a checkpoint folder.
type Folder struct {
	Config          []byte // text of config.json
	Tokenizer       []byte // text of tokenizer.json; nil if the file has no vocabulary
	TokenizerConfig []byte // text of tokenizer_config.json, with the chat template
	Weights         *weight.Checkpoint
}

// Open maps a file, or all parts of a split file. For DeepSeek-V4 it also maps a DSpark head next to the file
// (sidecar.go).
func Open(path string) (_ *Folder, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	var side *sidecar
	if arch, _ := f.Metadata.Text("general.architecture"); architectures[arch] == string(config.DeepseekV4) {
		if side, err = besideModel(path); err != nil {
			return nil, err
		}
	}
	release := f.Close
	if side != nil {
		release = func() error { return errors.Join(f.Close(), side.file.Close()) }
		defer func() {
			if err != nil {
				err = errors.Join(err, side.file.Close())
			}
		}()
	}
	out := &Folder{}
	var s *shape
	if out.Config, s, err = readConfig(path, f.Metadata, side); err != nil {
		return nil, err
	}
	if out.Tokenizer, out.TokenizerConfig, err = readTokenizer(path, f.Metadata); err != nil {
		return nil, err
	}
	tensors, err := renamed(f, s)
	if err != nil {
		return nil, err
	}
	parts := f.Parts
	if side != nil {
		head, err := side.tensors(s)
		if err != nil {
			return nil, err
		}
		tensors, parts = append(tensors, head...), slices.Concat(parts, side.file.Parts)
	}
	files := make([]weight.FileInfo, len(parts))
	for i, p := range parts {
		files[i] = weight.FileInfo{Path: p.Path, Bytes: p.Bytes, Tensors: p.Tensors}
	}
	out.Weights, err = weight.FromTensors(files, tensors, release)
	return out, err
}
