package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sparrow/internal/hub"
	"sparrow/internal/model/config"
	"sparrow/internal/model/estimate"
	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/usage"
	"sparrow/internal/textfile"
	"sparrow/kernel"
)

// inspectFlags holds the flags of `sparrow inspect`.
type inspectFlags struct {
	memories             []float64
	hw, usage, gpuMemory string
	asJSON               bool
}

func inspectCommand() *cobra.Command {
	var f inspectFlags
	c := &cobra.Command{
		Use:   "inspect MODEL",
		Short: "Describe a model: parameters, bytes, cache per token, machines that can run it, speed",
		Long: `Inspect describes a checkpoint without reading its matrices, and names the tensors that its files lack. MODEL is a
folder, a GGUF file, a pulled model, a config.json, or the name of a release such as deepseek-ai/DeepSeek-V4-Flash, with
or without its owner. A config.json and the name of a release need no weights. The name determines the type of weights:
zai-org/GLM-5 is in BF16, GLM-5-FP8 in FP8, Kimi-K2-Thinking in int4. For other releases of these models (such as NVFP4
and AWQ) give a config.json, or run 'sparrow pull --dry-run NAME'.

With --hw it prints whether the model fits a machine, the memory in which each part is stored, and the expected tokens
per second with the formulas. This is an estimate from measured times of kernels. Experts that do not fit the GPU are in
host memory; --usage places them by counted use. --usage FILE without MODEL prints a file that 'sparrow serve
--expert-usage FILE' has saved.`,
		Example: `  sparrow inspect testdata/oracle/deepseek_v32-1
  sparrow inspect /models/DeepSeek-V3.2 --memory 768,1024 --json
  sparrow inspect v32-q4.gguf
  sparrow inspect deepseek-v4-flash --hw "h200,128G"
  sparrow inspect deepseek-v3.2 --hw "8xh200,256G"
  sparrow inspect glm-4.7-flash --hw "cpu,64G,stream=90G"
  sparrow inspect --usage usage.json`,
		Args: mostOneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := onlyWith(cmd.Flags(), f.hw != "", "--hw", "gpu-memory"); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			return f.run(cmd.OutOrStdout(), args)
		},
	}
	s := c.Flags()
	s.Float64SliceVar(&f.memories, "memory", []float64{24, 80, 139},
		"memories, in `GiB`, to fit weights and cache into")
	s.Lookup("memory").DefValue = "24,80,139"
	s.StringVar(&f.hw, "hw", "", `machine to fit the model on: `+estimate.MachineForm)
	s.StringVar(&f.gpuMemory, "gpu-memory", "0",
		"with --hw, maximum memory of each GPU, such as 100G; 0 takes all of it")
	s.StringVar(&f.usage, "usage", "", "`FILE` with counts of experts: printed, or with --hw used to place experts")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (f *inspectFlags) run(w io.Writer, args []string) (err error) {
	for _, m := range f.memories {
		if !(m > 0) || m > 1<<20 {
			return fmt.Errorf("inspect: --memory %g: want GiB between 0 and %d", m, 1<<20)
		}
	}
	var counts *usage.Table
	if f.usage != "" {
		var err error
		if counts, err = usage.Load(f.usage); err != nil {
			return fmt.Errorf("inspect: --usage: %w", err)
		}
	}
	switch {
	case counts != nil && f.hw == "" && len(args) > 0:
		return errors.New("inspect: --usage with a model places its experts on a machine; add --hw, or omit the " +
			"model to print the file")
	case counts != nil && f.hw == "" && f.asJSON:
		return counts.Write(w)
	case counts != nil && f.hw == "":
		return counts.Print(w)
	case len(args) == 0:
		return errors.New("inspect: no model was given; want a folder, a GGUF file, a config.json or a name such as " +
			"deepseek-v4-flash")
	}
	src, shape, assumed, err := inspected(args[0])
	if err != nil {
		return err
	}
	defer src.Close()
	summary := inspect.Of(src, f.memories)
	if summary.NoWeights, summary.Assumed = shape, assumed; shape {
		summary.Files, summary.FileBytes = 0, 0
	} else if broken := checkTensors(summary, src); broken != nil {
		defer func() { err = errors.Join(err, fmt.Errorf("inspect: %w", broken)) }() // print the description first
	}
	var out printable = summary
	if f.hw != "" {
		if out, err = f.fit(args[0], summary, src, counts); err != nil {
			return err
		}
	}
	if f.asJSON {
		return writeJSON(w, out)
	}
	return out.Print(w)
}

// printable is a result that is printed for people or written as JSON.
type printable interface{ Print(io.Writer) error }

// checkTensors loads the model on the reference kernels, which support every type, to find missing tensors.
func checkTensors(s *inspect.Summary, src *family.Source) (err error) {
	dev, err := registry().Open("ref", kernel.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return s.Check(src, dev)
}

// fit returns the result for --hw: whether, and with which settings, the model fits the hardware.
func (f *inspectFlags) fit(name string, s *inspect.Summary, src *family.Source, counts *usage.Table) (printable,
	error) {
	m, err := estimate.ParseMachine(f.hw)
	if err != nil {
		return nil, fmt.Errorf("inspect: --hw: %w", err)
	}
	if m.GPUs == 0 {
		if counts != nil || f.gpuMemory != "0" {
			return nil, fmt.Errorf("inspect: --hw %s has no GPU; omit --usage and --gpu-memory", f.hw)
		}
		out, err := s.OnHost(src, &m, f.hw)
		if err != nil {
			return unfit(s, err)
		}
		return out, nil
	}
	if family.IsGGUF(name) {
		return nil, fmt.Errorf("inspect: --hw: %s is a GGUF file; sizes and times are known only for the types of "+
			"released models: give a config.json or a name such as deepseek-v4-flash", name)
	}
	most, err := parseBytes(f.gpuMemory)
	if err != nil {
		return nil, fmt.Errorf("inspect: --gpu-memory: %w", err)
	}
	q := estimate.Question{Name: name, Model: src.Model, Format: src.ExpertFormat(), Shared: src.PlainExperts(),
		Machine: m, Asked: f.hw, Usage: counts, DeviceBytes: most, Weights: estimate.WeightsOf(src)}
	out, err := q.Fit()
	if err != nil {
		return unfit(s, err)
	}
	out.Assumed = s.Assumed
	return out, nil
}

// guess is the result for a model that does not fit, if its sizes are partly assumed.
type guess struct {
	Assumed string `json:"assumed"`
	Unfit   string `json:"does_not_fit"`
}

func (g *guess) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "sizes are assumed: %s\nwith these sizes the model does not fit: %s\n", g.Assumed, g.Unfit)
	return err
}

// unfit returns the result for a model that does not fit --hw: a guess if sizes were assumed, otherwise an error.
func unfit(s *inspect.Summary, err error) (printable, error) {
	if s.Assumed != "" && (errors.Is(err, inspect.ErrNoRoom) || errors.Is(err, placement.ErrNoRoom)) {
		return &guess{s.Assumed, err.Error()}, nil
	}
	return nil, fmt.Errorf("inspect: --hw: %w", err)
}

// inspected opens a model, given as a folder or as the name of a pulled model. If there are no weights, it describes
// the shape in a config.json or of a released model instead.
func inspected(given string) (src *family.Source, shape bool, assumed string, err error) {
	file, text, shape, err := shapeOf(given)
	if err != nil {
		return nil, false, "", fmt.Errorf("inspect: %w", err)
	}
	if shape {
		src, assumed, err := released(given, file, text)
		if err != nil {
			err = fmt.Errorf("inspect: %w", err)
		}
		return src, true, assumed, err
	}
	dir, err := modelFolder("inspect: ", given)
	if err != nil {
		return nil, false, "", fmt.Errorf("%w%s", err, shapeHint(given))
	}
	src, err = modelSource(dir)
	return src, false, "", err
}

// released returns a model without weights, with the tensor types of its release; assumed lists the types that were
// guessed, because the files without weights do not state them.
func released(given, file string, text []byte) (src *family.Source, assumed string, err error) {
	r := config.Release{File: file, Config: text}
	if filepath.Ext(file) != ".json" { // the name of a release, which has no other files
		src, assumed, err = synth.Described(given, r)
		return src, cmp.Or(synth.Unlisted(given), assumed), err
	}
	for name, to := range map[string]*[]byte{config.QuantFile: &r.ModelOpt, config.OlderFile: &r.Older} {
		if *to, err = textfile.Optional(filepath.Join(filepath.Dir(file), name), textfile.Config); err != nil {
			return nil, "", err
		}
	}
	return synth.Described(given, r)
}

// shapeHint explains, for a model that was not found, how to describe a model without its weights. It suggests the
// release with the most similar name, or lists all releases.
func shapeHint(given string) string {
	if _, err := os.Stat(given); err == nil || family.IsGGUF(given) {
		return ""
	}
	hint := ""
	if name, err := hub.ParseName(given); err == nil {
		hint = fmt.Sprintf("; to describe it without its weights, run 'sparrow pull --dry-run %s', which reads its "+
			"config.json, or give that file to 'sparrow inspect'", name)
	}
	base := strings.ToLower(filepath.Base(given))
	like := cmp.Or(suggestion(base, synth.ReleaseNames()), suggestion(base, synth.PresetNames()))
	if like == "" && hint == "" {
		like = "; releases known by name are " + strings.Join(synth.ReleaseNames(), ", ") +
			"; 'sparrow synth --help' lists small shapes"
	}
	return hint + like
}

// shapeOf returns the config.json that describes a model without weights: a file, the file in a folder without
// weights, or the file of a released model. Files on disk have priority.
func shapeOf(given string) (file string, text []byte, ok bool, err error) {
	info, err := os.Stat(given)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, missing := pulledModel("", given, ""); missing == nil || !synth.IsRelease(given) {
			return "", nil, false, nil
		}
		text, err = synth.ReleaseConfig(given)
		return given, text, err == nil, err
	case err != nil:
		return "", nil, false, nil // modelFolder returns the error
	case info.IsDir():
		file = filepath.Join(given, "config.json")
		if weights, err := filepath.Glob(filepath.Join(given, "*.safetensors*")); err != nil || len(weights) > 0 {
			return "", nil, false, err
		}
		if _, err := os.Stat(file); err != nil {
			return "", nil, false, nil
		}
	case filepath.Ext(given) == ".json":
		file = given
	default:
		return "", nil, false, nil
	}
	text, err = textfile.Read(file, textfile.Config)
	return file, text, err == nil, err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
