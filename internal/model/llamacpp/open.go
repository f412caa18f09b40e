package llamacpp

import (
	"errors"

	"sparrow/weight"
	"sparrow/weight/gguf"
)

// Folder is a GGUF file as the files of a checkpoint folder.
type Folder struct {
	Config          []byte // config.json
	Tokenizer       []byte // tokenizer.json; nil where the file has no vocabulary
	TokenizerConfig []byte // tokenizer_config.json, with the chat template
	Weights         *weight.Checkpoint
}

// Open maps a file, or all splits of one.
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
	out := &Folder{}
	var s *shape
	if out.Config, s, err = readConfig(path, f.Metadata); err != nil {
		return nil, err
	}
	if out.Tokenizer, out.TokenizerConfig, err = readTokenizer(path, f.Metadata); err != nil {
		return nil, err
	}
	tensors, err := renamed(f, s)
	if err != nil {
		return nil, err
	}
	files := make([]weight.FileInfo, len(f.Parts))
	for i, p := range f.Parts {
		files[i] = weight.FileInfo{Path: p.Path, Bytes: p.Bytes, Tensors: p.Tensors}
	}
	out.Weights, err = weight.FromTensors(files, tensors, f.Close)
	return out, err
}
