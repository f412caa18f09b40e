package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"sparrow"
	"sparrow/internal/hub"
	"sparrow/internal/model/config"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
	"sparrow/kernel/cuda"
)

// pullFlags holds the flags of `sparrow pull`.
type pullFlags struct {
	dryRun, asJSON, force bool
	jobs                  int
}

func pullCommand() *cobra.Command {
	var f pullFlags
	c := &cobra.Command{
		Use:   "pull NAME",
		Short: "Download a model from Hugging Face, to serve it by its name",
		Long: `Pull downloads the files that a model needs to run. It stores them in the cache of Hugging Face's tools (HF_HUB_CACHE,
HF_HOME, or .cache/huggingface in the home folder), where --model finds the model by name. NAME is organisation/name.
For a repository of GGUF files, : and the name of the file follow; @ and a branch, a tag or a commit may come last. If
there are several GGUF models and NAME selects none, they are listed with their sizes and whether this machine can hold
them. An interrupted download continues where it stopped. Every file is compared with its hash. HF_TOKEN is the access
token for models that need one, and HF_ENDPOINT is the URL of another hub. Exit status 1 means that the model is
incomplete, 130 that Ctrl-C ended the download.`,
		Example: `  sparrow pull deepseek-ai/DeepSeek-V3.2
  sparrow pull zai-org/GLM-5 --dry-run
  sparrow pull unsloth/GLM-5.2-GGUF
  sparrow pull unsloth/DeepSeek-V4-Flash-GGUF:UD-Q2_K_XL
  sparrow pull deepseek-ai/DeepSeek-V3.2@main --jobs 16`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.BoolVar(&f.dryRun, "dry-run", false, "print what would be downloaded and whether it fits this machine, and stop")
	s.IntVar(&f.jobs, "jobs", hub.DefaultJobs, "files that are downloaded at the same time")
	s.BoolVar(&f.force, "force", false, "also download a model that cannot run here, because of its kind or its size")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

// oneName requires one argument, the name of a model on a hub.
func oneName(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: want one name such as deepseek-ai/DeepSeek-V3.2, but %d were given; use it as: %s",
			c.Name(), len(args), c.UseLine())
	}
	return nil
}

// pullReport describes the download and whether this machine has space for it.
type pullReport struct {
	Model    string     `json:"model"`
	Revision string     `json:"revision"`
	Commit   string     `json:"commit"`
	Family   string     `json:"family,omitempty"`
	Format   string     `json:"format,omitempty"`
	Losses   []string   `json:"losses,omitempty"`
	Against  string     `json:"cannot_run,omitempty"`
	Cache    string     `json:"cache"`
	Folder   string     `json:"folder"`
	Bytes    int64      `json:"bytes"`
	Missing  int64      `json:"missing_bytes"`
	Weights  int64      `json:"weight_bytes"`
	Free     *int64     `json:"free_bytes,omitempty"`
	Memory   int64      `json:"memory_bytes,omitempty"` // memory of the machine and of GPUs that support the weights
	Files    []hub.File `json:"files"`
	// Quants lists the GGUF models of the repository if none was selected.
	Quants []quantReport `json:"quants,omitempty"`
	// Elsewhere lists local files of other engines with the same sizes.
	Elsewhere []hub.Local `json:"elsewhere,omitempty"`

	gpus int64 // bytes of GPUs, included in Memory
}

// quantReport is one GGUF model of a repository.
type quantReport struct {
	hub.Quant
	Verdict   string      `json:"verdict,omitempty"`
	Elsewhere []hub.Local `json:"elsewhere,omitempty"`
}

func (f *pullFlags) run(cmd *cobra.Command, given string) error {
	name, err := hub.ParseName(given)
	if err != nil {
		if p := releasedPreset(given); p != nil {
			err = fmt.Errorf("%w; did you mean %s?", err, p.Release)
		}
		return err
	}
	if v := os.Getenv("HF_HUB_OFFLINE"); v != "" && v != "0" {
		return fmt.Errorf("pull: HF_HUB_OFFLINE=%s forbids downloads; unset it", v)
	}
	if f.jobs < 1 {
		return fmt.Errorf("pull: --jobs %d: want 1 or more", f.jobs)
	}
	cache, err := hubCache()
	if err != nil {
		return err
	}
	home, _ := os.UserHomeDir() // without a home folder there is no token file
	token, err := hub.Token(os.Getenv, home)
	if err != nil {
		return err
	}
	meter := &pullMeter{w: cmd.ErrOrStderr(), bar: newProgress(cmd.ErrOrStderr(), "downloading"), said: time.Now()}
	p, err := hub.New(hub.Options{Cache: cache, Endpoint: os.Getenv("HF_ENDPOINT"), Token: token, Jobs: f.jobs,
		Version: sparrow.Version, Progress: meter.set, Notice: meter.notice})
	if err != nil {
		return err
	}
	d, err := p.Plan(cmd.Context(), name)
	if err != nil {
		return err
	}
	r := report(p, d, cache, hub.Elsewhere(os.Getenv, home, name))
	if len(r.Quants) > 0 {
		return f.listQuants(cmd, r)
	}
	if err := f.announce(cmd, r); err != nil || f.dryRun {
		return err
	}
	dir, err := p.Pull(cmd.Context(), d)
	meter.end()
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "the downloaded data is kept; run the command again to continue")
		return err
	}
	if f.asJSON {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "folder   %s\n\ntry      sparrow serve --model %s\n", dir, name)
	return nil
}

// report describes a download: sizes, the memory and disk space of this machine, and local copies of other engines.
func report(p *hub.Puller, d *hub.Download, cache hub.Cache, elsewhere []hub.Local) *pullReport {
	r := &pullReport{Model: d.Name.Repo, Revision: d.Name.Revision, Commit: d.Commit, Cache: cache.Root,
		Folder: p.Dir(d), Bytes: d.Bytes, Missing: d.Missing, Files: d.Files, gpus: cuda.Memory()}
	if host := sysmem.Total(); host > 0 {
		r.Memory = host + r.gpus
	}
	for _, file := range d.Files {
		if ext := filepath.Ext(file.Path); ext == ".safetensors" || ext == ".gguf" {
			r.Weights += file.Size
		}
	}
	if free, known := freeBytes(nearestFolder(cache.Root)); known {
		r.Free = &free
	}
	if len(d.Quants) > 0 {
		r.describeGGUF(d, elsewhere)
		return r
	}
	release := config.Release{File: "config.json", Config: d.Config, ModelOpt: d.Quant, Tensors: d.Tensors}
	if c, err := release.Describe(); err != nil {
		r.Against = err.Error()
	} else {
		r.Family, r.Format, r.Losses = string(c.Common().Family), string(c.Common().Format), c.Common().Losses
	}
	return r
}

// describeGGUF adds the GGUF files of the download; their metadata is not known before the download.
func (r *pullReport) describeGGUF(d *hub.Download, elsewhere []hub.Local) {
	if d.Architecture != "" {
		if err := llamacpp.CheckArchitecture(d.Architecture); err != nil {
			r.Against = err.Error()
		}
	}
	same := func(q hub.Quant) []hub.Local { // a file of another size belongs to another revision
		return slices.DeleteFunc(slices.Clone(elsewhere), func(l hub.Local) bool {
			return l.Bytes != q.Bytes || !strings.EqualFold(l.Quant, q.Name)
		})
	}
	if len(d.Files) > 0 {
		r.Family, r.Format, r.Elsewhere = cmp.Or(d.Architecture, "GGUF"), d.Quants[0].Name, same(d.Quants[0])
		return
	}
	for _, q := range d.Quants {
		r.Quants = append(r.Quants, quantReport{q, verdict(q.Bytes, r.gpus, r.Memory-r.gpus), same(q)})
	}
}

// verdict returns which memory, of GPUs or of the host, is large enough for the weights; it is empty if the memory of
// the machine is unknown.
func verdict(weights, gpus, host int64) string {
	switch {
	case host <= 0:
		return ""
	case weights <= gpus || gpus == 0 && weights <= host:
		return "fits"
	case weights <= gpus+host:
		return "fits with experts in RAM"
	}
	return "does not fit"
}

// listQuants prints the GGUF models of a repository. Unless only the list was requested, it returns an error with the
// command for one of them.
func (f *pullFlags) listQuants(cmd *cobra.Command, r *pullReport) error {
	out := cmd.OutOrStdout()
	if f.asJSON {
		if err := writeJSON(out, r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "model    %s at commit %s: %d GGUF models\n", r.Model, r.Commit, len(r.Quants))
		if r.Memory > 0 {
			fmt.Fprintf(out, "memory   this machine has %s\n", unit.Bytes(r.Memory))
		}
		for _, q := range r.Quants {
			fmt.Fprintf(out, "%18s  %-14s %s\n", unit.Bytes(q.Bytes), q.Name, q.Verdict)
			for _, l := range q.Elsewhere {
				fmt.Fprintf(out, "%18s  %s has it: --model %s\n", "", l.Engine, l.Path)
			}
		}
	}
	if r.Against != "" {
		return fmt.Errorf("pull: sparrow cannot run %s: %s", r.Model, r.Against)
	}
	if f.dryRun {
		return nil
	}
	return fmt.Errorf("pull: %s has %d GGUF models; choose one, such as: sparrow pull %s:%s", r.Model, len(r.Quants),
		r.Model, r.Quants[0].Name)
}

// announce prints the download. It returns an error if sparrow cannot run the model or if the file system has too
// little space.
func (f *pullFlags) announce(cmd *cobra.Command, r *pullReport) error {
	out := cmd.OutOrStdout()
	var err error
	switch {
	case !f.asJSON:
		_, err = io.WriteString(out, r.text(f.dryRun))
	case f.dryRun: // without a dry run, the folder is printed after the download
		err = writeJSON(out, r)
	}
	if err != nil {
		return err
	}
	var errs []error
	if len(r.Elsewhere) > 0 && !f.force {
		errs = append(errs, fmt.Errorf("pull: %s already has files of the same sizes; use --model %s to run them, or "+
			"--force to download them anyway", r.Elsewhere[0].Engine, r.Elsewhere[0].Path))
	}
	if r.Against != "" && !f.force {
		errs = append(errs, fmt.Errorf("pull: sparrow cannot run %s: %s; --force downloads it anyway", r.Model,
			r.Against))
	}
	if r.beyondMemory() && !f.force {
		errs = append(errs, fmt.Errorf("pull: the weights of %s take %s, but this machine has %s of memory, GPUs "+
			"included; they would be read from the disk for every token: choose a smaller model or format, or --force "+
			"to download it anyway", r.Model, unit.Bytes(r.Weights), unit.Bytes(r.Memory)))
	}
	if r.Free != nil && r.Missing > *r.Free {
		errs = append(errs, fmt.Errorf("pull: the download needs %s, but the file system of %s has %s free; free "+
			"%s, or set HF_HUB_CACHE to a folder on another file system", unit.Bytes(r.Missing), r.Cache,
			unit.Bytes(*r.Free), unit.Bytes(r.Missing-*r.Free)))
	}
	return errors.Join(errs...)
}

// beyondMemory reports whether the weights need more memory than this machine has. It returns false if the memory is
// unknown.
func (r *pullReport) beyondMemory() bool { return r.Memory > 0 && r.Weights > r.Memory }

// text returns the report as plain text.
func (r *pullReport) text(files bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model    %s at commit %s", r.Model, r.Commit)
	if r.Family != "" {
		fmt.Fprintf(&b, ": %s, %s", r.Family, r.Format)
	}
	for _, l := range r.Losses {
		fmt.Fprintf(&b, "\nwithout  %s", l)
	}
	fmt.Fprintf(&b, "\nfiles    %d files of %s; %s to download\n", len(r.Files), unit.Bytes(r.Bytes),
		unit.Bytes(r.Missing))
	if files {
		for _, f := range r.Files {
			fmt.Fprintf(&b, "%18s  %s\n", unit.Bytes(f.Size), f.Path)
		}
	}
	if r.Free != nil {
		verdict := "fits"
		if r.Missing > *r.Free {
			verdict = "does not fit"
		}
		fmt.Fprintf(&b, "disk     %s, %s free where %s is\n", verdict, unit.Bytes(*r.Free), r.Cache)
	}
	if r.Memory > 0 {
		held := verdict(r.Weights, r.gpus, r.Memory-r.gpus)
		if r.beyondMemory() {
			held += ": weights would be read from the disk for every token"
		}
		fmt.Fprintf(&b, "memory   %s; weights %s, this machine has %s\n", held, unit.Bytes(r.Weights),
			unit.Bytes(r.Memory))
	}
	return b.String()
}

// pullMeter shows the progress of a download: a bar on a terminal, otherwise one line every pullEvery.
type pullMeter struct {
	mu   sync.Mutex
	w    io.Writer
	bar  *progress
	said time.Time // when the last line was written
}

// pullEvery is the interval of progress lines if there is no terminal.
const pullEvery = 30 * time.Second

func (m *pullMeter) set(done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	note := fmt.Sprintf("%s of %s", unit.Bytes(done), unit.Bytes(total))
	m.bar.set(min(done, total), total, note)
	if m.bar.columns == 0 && now.Sub(m.said) >= pullEvery {
		m.said = now
		fmt.Fprintf(m.w, "downloaded %s\n", note)
	}
}

func (m *pullMeter) notice(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bar.end()
	fmt.Fprintln(m.w, text)
}

func (m *pullMeter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bar.end()
}
