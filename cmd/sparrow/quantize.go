package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/builtin"
	"sparrow/internal/calibrate"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/textfile"
	"sparrow/internal/unit"
)

func quantizeCommand() *cobra.Command {
	f := quantizeFlags{mix: string(llamacpp.MixQ4KM)}
	c := &cobra.Command{
		Use:   "quantize SRC DST",
		Short: "Write a checkpoint as a GGUF file, with quantised weights",
		Long: `Quantize reads a checkpoint folder with safetensors files, or a pulled model, and writes one GGUF file that sparrow
and llama.cpp run. "builtin" as SRC is the model inside the binary. Matrices get the type of --type; norms, biases and
the router stay float32. FP4 experts of DeepSeek-V4 stay FP4 in all types but f32 and bf16. q4_k_m gives six bits to the
head and some down-projections, as in llama.cpp. iq4_xs, q3_k and types of fewer bits are for experts only; all other
matrices are then those of q4_k_m. In iq2_s, iq2_xs and iq2_xxs the down-projections of experts are Q2_K. The size and
the error of each class of matrices are printed. Rows that do not fit the blocks of a type get a type with smaller
blocks and as many bits or more. --imatrix reads the mean squares of the inputs of every matrix from a file of
llama-imatrix, and --calibrate measures them while the model reads a text on this computer. Errors of weights with large
inputs then count more, which matters most for types of two and three bits. The text should be like the texts that the
model will work with; a few hundred thousand tokens are enough. The printed table has the number of matrices whose
format used an importance; experts that no token chose and drafting layers have none, and some formats use none. Its
errors count all weights alike, so an importance matrix may increase them. A drafting block of DeepSeek-V4 is omitted. Existing files are not replaced, and an interrupted run leaves no incomplete
file.`,
		Example: `  sparrow quantize /models/DeepSeek-V3.2 v32-q4.gguf --type q4_k_m
  sparrow quantize /models/DeepSeek-V3.2 v32-iq2.gguf --type iq2_xxs --imatrix imatrix.gguf
  sparrow quantize /models/DeepSeek-V3.2 v32-iq2.gguf --type iq2_xxs --calibrate texts.txt
  sparrow quantize builtin tiny.gguf --type q8_0`,
		Args: sourceAndTarget,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	c.Flags().StringVar(&f.mix, "type", f.mix, "type of the matrices: "+strings.Join(mixNames(), ", "))
	c.Flags().StringVar(&f.importance, "imatrix", "",
		"importance matrix of this model: a `FILE` of llama-imatrix, GGUF or dat")
	c.Flags().StringVar(&f.text, "calibrate", "",
		"`FILE` with a text from which the importance matrix is computed on the CPU")
	return c
}

// quantizeFlags holds the flags of `sparrow quantize`.
type quantizeFlags struct{ mix, importance, text string }

func mixNames() []string {
	var names []string
	for _, m := range llamacpp.Mixes() {
		names = append(names, string(m))
	}
	return names
}

// check refuses flags that have no effect.
func (f *quantizeFlags) check(given *pflag.FlagSet, mix llamacpp.Mix) error {
	if f.importance != "" && f.text != "" {
		return errors.New("quantize: --imatrix and --calibrate both give the importance matrix; omit one of them")
	}
	for flag, value := range map[string]string{"imatrix": f.importance, "calibrate": f.text} {
		if given.Changed(flag) && value == "" {
			return fmt.Errorf("quantize: --%s has no file name; give a file, or omit the flag", flag)
		}
		if value != "" && !mix.UsesImportance() {
			return fmt.Errorf("quantize: --%s has no effect with --type %s; omit it, or give a type of fewer bits",
				flag, mix)
		}
	}
	return nil
}

func (f *quantizeFlags) run(cmd *cobra.Command, src, dst string) (err error) {
	mix, err := llamacpp.ParseMix(f.mix)
	if err != nil {
		return fmt.Errorf("--type: %w", err)
	}
	if err := f.check(cmd.Flags(), mix); err != nil {
		return err
	}
	if _, err := os.Stat(dst); err == nil {
		return fmt.Errorf("%s exists; give another name, or remove it first", dst)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if folder := filepath.Dir(dst); !isDir(folder) {
		return fmt.Errorf("quantize: %s: there is no folder %s; create it first", dst, folder)
	}
	folder, err := modelFolder("quantize: ", src)
	if err != nil {
		return err
	}
	m, source, err := readForGGUF(src, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	// Check the checkpoint before the conversion, which may take hours.
	if err := checkTensors(&inspect.Summary{}, source); err != nil {
		return fmt.Errorf("quantize: %w", err)
	}
	if err := f.weigh(cmd, m, mix, folder, source); err != nil {
		return err
	}
	if len(m.Tokenizer) == 0 {
		warnings(cmd)("the checkpoint has no tokenizer.json, so the file will have none and accepts only token ids")
	}
	bar := newProgress(cmd.ErrOrStderr(), "writing")
	report, err := llamacpp.Write(cmd.Context(), dst, m, mix, func(done, total int, tensor string) {
		bar.set(int64(done), int64(total), tensor)
	})
	bar.end()
	if err != nil {
		return err
	}
	info, err := os.Stat(dst)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s, %s before\n", dst, unit.Bytes(info.Size()), mix,
		unit.Bytes(source.Weights.Bytes()))
	if err := report.Print(cmd.OutOrStdout()); err != nil {
		return err
	}
	if source.Config.Family == config.DeepseekV4 && source.Config.NextN > 0 {
		fmt.Fprintln(cmd.OutOrStdout(),
			"the drafting block was omitted: the format cannot store it together with the model")
	}
	return nil
}

// weigh reads or computes the importance matrix of the model, if one of the flags selects one.
func (f *quantizeFlags) weigh(cmd *cobra.Command, m *llamacpp.Model, mix llamacpp.Mix, folder string,
	source *family.Source) (err error) {
	switch {
	case f.importance != "":
		if m.Importance, err = llamacpp.ReadImportance(f.importance); err != nil {
			return fmt.Errorf("--imatrix: %w", err)
		}
		m.ImportanceFile = filepath.Base(f.importance)
	case f.text != "":
		if m.Importance, err = f.calibrate(cmd, m, mix, folder, source); err != nil {
			return fmt.Errorf("--calibrate: %w", err)
		}
		m.ImportanceFile = filepath.Base(f.text)
	case mix.NeedsImportance():
		warnings(cmd)(fmt.Sprintf("answers in type %s are much better with an importance matrix; --imatrix reads "+
			"one, and --calibrate computes one", mix))
	}
	return nil
}

// calibrationTokens is the number of tokens of a text that are processed as one sequence, as in llama-imatrix.
const calibrationTokens = 512

// calibrate measures the inputs of the model's matrices while it processes the text.
func (f *quantizeFlags) calibrate(cmd *cobra.Command, m *llamacpp.Model, mix llamacpp.Mix, folder string,
	source *family.Source) (llamacpp.Importance, error) {
	text, err := readText(f.text)
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr(), "reading the text")
	c := sparrow.Config{Model: folder, Warn: warnings(cmd)}
	p, of, err := calibrate.Measure(cmd.Context(), c, source, text, calibrationTokens,
		func(done, total int, p float64) {
			bar.set(int64(done), int64(total), fmt.Sprintf("perplexity %.3f", p))
		})
	bar.end()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "importance matrix of %d chunks of %d tokens of %s, perplexity %.4f\n", p.Chunks,
		p.ChunkTokens, f.text, p.Perplexity)
	return llamacpp.ImportanceOf(m, mix, of)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readForGGUF opens the checkpoint in a folder, or the built-in one, with everything that a GGUF file contains. given
// is the checkpoint as the user named it.
func readForGGUF(given, folder string) (*llamacpp.Model, *family.Source, error) {
	repo, _, _ := strings.Cut(given, "@") // without the commit of a pulled model
	m := &llamacpp.Model{Name: filepath.Base(filepath.Clean(repo))}
	var source *family.Source
	var err error
	if folder == "" {
		m.Name, m.Tokenizer, m.TokenizerConfig = builtin.Name, builtin.TokenizerJSON(), builtin.TokenizerConfig()
		source, err = builtin.Source()
	} else {
		if family.IsGGUF(folder) {
			return nil, nil, fmt.Errorf("%s is already a GGUF file; give the checkpoint folder from which it was made",
				folder)
		}
		var template []byte
		for name, to := range map[string]*[]byte{"tokenizer.json": &m.Tokenizer,
			"tokenizer_config.json": &m.TokenizerConfig, "chat_template.jinja": &template} {
			if *to, err = textfile.Optional(filepath.Join(folder, name), textfile.Tokenizer); err != nil {
				return nil, nil, err
			}
		}
		m.ChatTemplate = string(template)
		source, err = family.Open(folder)
	}
	if err != nil {
		return nil, nil, err
	}
	m.Config, m.Weights = source.Model, source.Weights
	return m, source, nil
}
