package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sparrow/builtin"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/textfile"
	"sparrow/internal/unit"
)

// synthFlags holds the flags of `sparrow synth`.
type synthFlags struct {
	config, dtype, shard string
	seed                 uint64
	nextN                int
	dryRun, asJSON       bool
	repeat               bool
}

func synthCommand() *cobra.Command {
	var f synthFlags
	c := &cobra.Command{
		Use:   "synth DIR",
		Short: "Write a random checkpoint of any supported shape, for load tests",
		Long: `Synth writes a checkpoint with random weights: config.json, safetensors files and, if the vocabulary is large enough,
the tokenizer of the built-in model. Its answers are meaningless, but it needs the same time and memory as a trained
model of its shape. The same seed gives the same bytes. Existing files are not replaced, and an interrupted run leaves
no files. A checkpoint that does not fit on the file system is refused before any file is written.

Shapes with a name:
` + presetList(),
		Example: `  sparrow synth /tmp/tiny --config v32-tiny
  sparrow synth /tmp/mini --config v32-mini --dtype fp8 --nextn 1
  sparrow synth /tmp/mine --config my-config.json --seed 7 --shard-bytes 1G
  sparrow synth /tmp/full --config deepseek-v3.2 --dtype fp8 --dry-run`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.config, "config", "", "shape: a name from the list above, a config.json, or a checkpoint folder")
	s.StringVar(&f.dtype, "dtype", "bf16", "stored type of the large matrices: bf16, fp8 as released (blocks of 128 "+
		"x 128, FP4 experts in DeepSeek-V4), or int4 (routed experts in groups of 32, the rest bf16, as "+
		"Kimi-K2-Thinking)")
	s.Uint64Var(&f.seed, "seed", 0, "seed of the weights")
	s.StringVar(&f.shard, "shard-bytes", "4G",
		"maximum tensor data of one file, with K, M, G or T for powers of 1024; 0 writes one file")
	s.IntVar(&f.nextN, "nextn", -1, "drafting layers: 0 or 1; -1 follows the config")
	s.BoolVar(&f.repeat, "repeat", false, "draw the first values of each tensor and repeat them, which is many "+
		"times faster")
	s.BoolVar(&f.dryRun, "dry-run", false, "only show parameters and bytes")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func presetList() string {
	var b strings.Builder
	for _, p := range synth.Presets() {
		fmt.Fprintf(&b, "  %-18s %s\n", p.Name, p.Summary)
	}
	return strings.TrimRight(b.String(), "\n")
}

// synthResult is the output of `--json`.
type synthResult struct {
	Folder    string `json:"folder"`
	Config    string `json:"config"`
	DType     string `json:"dtype"`
	Seed      uint64 `json:"seed"`
	Tokenizer bool   `json:"tokenizer"`
	Written   bool   `json:"written"`
	// Vocabulary is the number of token ids, and WithoutText the number of ids without text in the tokenizer.
	Vocabulary  int `json:"vocabulary"`
	WithoutText int `json:"ids_without_text,omitempty"`
	synth.Size
}

func (f *synthFlags) run(cmd *cobra.Command, dir string) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	file, text, err := readShape(f.config)
	if err != nil {
		return fmt.Errorf("synth: --config: %w", err)
	}
	c, err := synth.New(file, text, o)
	if err != nil {
		return err
	}
	beside, err := tokenizerFor(c.Config().Vocab)
	if err != nil {
		return err
	}
	r := synthResult{Folder: dir, Config: f.config, DType: f.dtype, Seed: f.seed, Tokenizer: len(beside) > 0,
		Size: c.Size(), Vocabulary: c.Config().Vocab}
	if r.Tokenizer {
		t, err := builtin.Tokenizer()
		if err != nil {
			return err
		}
		r.WithoutText = r.Vocabulary - t.VocabSize()
	}
	if !f.dryRun {
		if err := synth.Vacant(dir, beside); err != nil {
			return err
		}
		if err := f.announce(cmd.ErrOrStderr(), dir, r.Bytes, o); err != nil {
			return err
		}
		bar := newProgress(cmd.ErrOrStderr(), "writing")
		err := c.Write(cmd.Context(), dir, beside, func(done, total int64) {
			bar.set(done, total, unit.Bytes(done)+" of "+unit.Bytes(total))
		})
		bar.end()
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w; nothing was left in %s", errInterrupted, dir)
		}
		if err != nil {
			return err
		}
		r.Written = true
	}
	if f.asJSON {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return r.print(cmd)
}

func (r *synthResult) print(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s, %s, seed %d: %.3f million parameters", r.Config, r.DType, r.Seed, float64(r.Parameters)/1e6)
	if r.NextN > 0 {
		fmt.Fprintf(out, " (%.3f in the drafting layer)", float64(r.NextN)/1e6)
	}
	fmt.Fprintf(out, ", %d tensors, %s (%d bytes)\n", r.Tensors, unit.Bytes(r.Bytes), r.Bytes)
	tokens := "with the built-in tokenizer"
	switch {
	case r.Tokenizer && r.WithoutText > 0:
		tokens += fmt.Sprintf(" (%d of %d ids have no text, so that answers are mostly empty)", r.WithoutText,
			r.Vocabulary)
	case !r.Tokenizer:
		tokens = "without a tokenizer: its vocabulary is too small for the built-in one, so send token ids"
	}
	if !r.Written {
		_, err := fmt.Fprintf(out, "nothing was written; the checkpoint would be %s\n", tokens)
		return err
	}
	_, err := fmt.Fprintf(out, "written to %s, %s\ntry: sparrow serve --model %s\n", r.Folder, tokens, r.Folder)
	return err
}

func (f *synthFlags) options() (synth.Options, error) {
	o := synth.Options{Seed: f.seed, Repeat: f.repeat}
	var err error
	if o.DType, err = synth.ParseDType(f.dtype); err != nil {
		return o, fmt.Errorf("--dtype: %w", err)
	}
	if o.ShardBytes, err = parseBytes(f.shard); err != nil {
		return o, fmt.Errorf("--shard-bytes: %w", err)
	}
	if f.nextN < -1 || f.nextN > 1 {
		return o, fmt.Errorf("--nextn %d: want 0 or 1, or -1 to follow the config", f.nextN)
	}
	if f.nextN >= 0 {
		o.NextN = &f.nextN
	}
	return o, nil
}

// readShape returns the config.json of a preset, of a file or of a folder, with its file name.
func readShape(name string) (file string, text []byte, err error) {
	if name == "" {
		return "", nil, fmt.Errorf("no shape was given; want a config.json, a folder with one, or one of %s",
			strings.Join(synth.PresetNames(), ", "))
	}
	if slices.Contains(synth.PresetNames(), name) {
		text, err = synth.PresetConfig(name)
		return name, text, err
	}
	file = name
	if isDir(name) {
		file = filepath.Join(name, "config.json")
	} else if family.IsGGUF(name) || filepath.Ext(name) == ".safetensors" {
		return "", nil,
			fmt.Errorf("%s is a file of weights; want a shape: give a config.json, a folder with one, "+
				"or one of %s", name, strings.Join(synth.PresetNames(), ", "))
	}
	text, err = textfile.Read(file, textfile.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("%s is neither a file nor one of %s", name,
			strings.Join(synth.PresetNames(), ", "))
	}
	return file, text, err
}

// tokenizerFor returns the files of the built-in tokenizer, or nil if it has more tokens than the vocabulary.
func tokenizerFor(vocabulary int) ([]synth.File, error) {
	t, err := builtin.Tokenizer()
	if err != nil || vocabulary < t.VocabSize() {
		return nil, err
	}
	return []synth.File{{Name: "tokenizer.json", Data: builtin.TokenizerJSON()},
		{Name: "tokenizer_config.json", Data: builtin.TokenizerConfig()}}, nil
}

// parseBytes parses a number of bytes, such as 500M.
func parseBytes(s string) (int64, error) {
	digits, shift := s, 0
	if i := strings.IndexAny("KMGT", strings.ToUpper(s[max(len(s)-1, 0):])); s != "" && i >= 0 {
		digits, shift = s[:len(s)-1], 10*(i+1)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a number of bytes; want one such as 500M or 4G", s)
	}
	return n << shift, nil
}

// byteCount is a flag whose value is a number of bytes.
type byteCount int64

func (n *byteCount) Set(text string) error {
	v, err := parseBytes(text)
	if err == nil {
		*n = byteCount(v)
	}
	return err
}

func (n *byteCount) String() string { return strconv.FormatInt(int64(*n), 10) }

// Type returns the name of the type in help texts.
func (n *byteCount) Type() string { return "bytes" }
