package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/internal/eval"
	"sparrow/internal/spec"
	"sparrow/plan"
)

// evalFlags holds the flags of `sparrow eval`.
type evalFlags struct {
	engineFlags
	tasks, compare, url, key, perplexity    string
	chunk, repeat                           int
	limit, concurrency, maxTokens, failures int
	timeout                                 time.Duration
	asJSON                                  bool
}

func evalCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use:   "eval [FILE.jsonl|DIR ...]",
		Short: "Measure how many answers are right, under one plan or several side by side",
		Long: `Eval runs every item of the task files, greedily and in batches. It counts the answers that are exactly the expected
ones, and those that contain the expected value ("final"). Without files it uses the tasks inside the binary, which
belong to the built-in model: word problems, lists, JSON with and without a schema, tool calls and their results, small
talk, and facts to be found in texts of 1,024 to 8,192 tokens. With --url any server with OpenAI's interface answers.

A line of a task file is a JSON object with messages and answer, and optionally tools, schema (the answer follows it)
and final. An item of multiple choice has prompt, choices (texts that may follow it) and label (the number of the right
one) instead. Its answer is the most likely choice; for "final" it is the most likely one per character.

With --perplexity a text is scored instead. It is cut into chunks, and the second half of each chunk is predicted from
the tokens before it, as llama.cpp's tool does, so that figures of the same file can be compared.

With --compare the same items run under several plans, and accuracy and agreement are printed side by side. A plan is
words joined by "+":
` + eval.PlanHelp() + `
Exit status 1 means that requests failed; wrong answers are a result, not a failure.`,
		Example: `  sparrow eval --limit 10
  sparrow eval --tasks word*,tool --kv fp8 --json
  sparrow eval --compare dense,sparse,kv=fp8,kv=fp8-576 --tasks find_one_1024,word3,tool --limit 10
  sparrow eval --model v32-q4.gguf --perplexity wiki.test.raw
  sparrow eval --url http://127.0.0.1:8080 --repeat 5 my-tasks.jsonl
  sparrow eval --url http://127.0.0.1:8080 my-tasks.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(c.Flags())
	return c
}

func (f *evalFlags) add(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringVar(&f.tasks, "tasks", "", "tasks to run from a folder or from the binary, not from files: "+
		"patterns such as word*,find_one_*; default all")
	s.IntVar(&f.limit, "limit", 0, "maximum number of items of each task; 0 means all")
	s.IntVar(&f.repeat, "repeat", 1, "number of runs of all items: from 2 on, the mean of each score and its spread "+
		"between runs are printed")
	s.StringVar(&f.compare, "compare", "", "plans to run side by side, separated by commas")
	s.StringVar(&f.perplexity, "perplexity", "", "`FILE` with a text whose perplexity is measured instead of tasks; "+
		"--limit is then the maximum number of chunks")
	s.IntVar(&f.chunk, "chunk-tokens", 512, "with --perplexity, tokens of a chunk")
	s.IntVar(&f.concurrency, "concurrency", 0, "number of concurrent items; 0 means 16")
	s.IntVar(&f.maxTokens, "max-tokens", 0,
		"maximum number of tokens of an answer; 0 means a little more than the expected answer has")
	s.IntVar(&f.failures, "failures", 10, "how many wrong items to list; with --compare, items with different outputs")
	s.StringVar(&f.url, "url", "", "server to use instead of an engine in this process")
	s.StringVar(&f.name, "name", "",
		"the model's name in the API; default the first name the server of --url lists")
	s.StringVar(&f.key, "key", "", "bearer key for --url")
	s.DurationVar(&f.timeout, "timeout", 0, "maximum time of one request to --url; 0 means 10 minutes")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	f.engineFlags.add(s)
}

func (f *evalFlags) run(cmd *cobra.Command, args []string) error {
	if f.url != "" && f.compare != "" {
		return errors.New("eval: --compare selects plans of an engine in this process, but --url uses a server, " +
			"which has its own; omit one of them")
	}
	if err := f.placed(cmd.Flags()); err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	if err := counted(count{"limit", f.limit, 0}, count{"concurrency", f.concurrency, 0},
		count{"max-tokens", f.maxTokens, 0}, count{"failures", f.failures, 0}); err != nil {
		return err
	}
	if f.repeat < 1 || f.repeat > 1 && (f.compare != "" || f.perplexity != "") {
		return fmt.Errorf("eval: --repeat is %d; want 1 or more; --compare and --perplexity cannot be combined with "+
			"more than 1", f.repeat)
	}
	if f.perplexity != "" {
		return f.measurePerplexity(cmd, args)
	}
	if err := onlyWith(cmd.Flags(), false, "--perplexity", "chunk-tokens"); err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	tasks, err := loadTasks(args, f.tasks)
	if err != nil {
		return err
	}
	switch {
	case f.url != "":
		runs, err := f.askServer(cmd, tasks)
		return f.finishRuns(cmd.OutOrStdout(), runs, err)
	case f.compare != "":
		c, failed := f.comparePlans(cmd, tasks)
		if c == nil {
			return failed
		}
		return errors.Join(f.finish(cmd.OutOrStdout(), c, nil, c.Reports...), failed)
	}
	c, err := f.config()
	if err != nil {
		return err
	}
	runs, err := f.askEngine(cmd, tasks, c, eval.Plan{Policy: c.Policy})
	return f.finishRuns(cmd.OutOrStdout(), runs, err)
}

// measurePerplexity scores a text instead of tasks.
func (f *evalFlags) measurePerplexity(cmd *cobra.Command, args []string) (err error) {
	if f.url != "" || f.compare != "" || f.tasks != "" || len(args) > 0 {
		return errors.New("eval: --perplexity scores one text with an engine in this process; omit tasks, " +
			"--tasks, --compare and --url")
	}
	text, err := readText(f.perplexity)
	if err != nil {
		return fmt.Errorf("eval: --perplexity: %w", err)
	}
	e, err := f.open(cmd, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNow(e)) }()
	noteDevice(cmd.ErrOrStderr(), e.Info())
	bar := newProgress(cmd.ErrOrStderr(), "chunks")
	p, err := eval.MeasurePerplexity(cmd.Context(), e, text, f.chunk, f.limit,
		func(done, total int, p float64) {
			bar.set(int64(done), int64(total), fmt.Sprintf("perplexity %.3f", p))
		})
	bar.end()
	if err != nil {
		return err
	}
	p.File = f.perplexity
	return f.finish(cmd.OutOrStdout(), p, nil)
}

// readText reads a file of UTF-8 text.
func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if err := checkText(text); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return string(text), nil
}

// checkText refuses a file that is not text, because the perplexity of its tokens would be meaningless.
func checkText(data []byte) error {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("byte %d is 0, so this is not a text file; want UTF-8 text", i)
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("byte %d, %#02x, is not UTF-8; want a file of UTF-8 text (iconv converts other "+
				"encodings)", i, data[i])
		}
		i += n
	}
	return nil
}

// placed refuses flags without effect: flags of the engine if a server at --url answers, otherwise flags of the server.
func (f *evalFlags) placed(given *pflag.FlagSet) error {
	if f.url != "" {
		return f.refuse(given)
	}
	return onlyWith(given, false, "--url", "key", "timeout")
}

// loadTasks reads the named files and folders, or the tasks embedded in the binary.
func loadTasks(paths []string, patterns string) ([]eval.Task, error) {
	if len(paths) == 0 {
		return eval.Load(eval.Shipped(), patterns)
	}
	var tasks []eval.Task
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("eval: %w", err)
		}
		if !info.IsDir() && patterns != "" {
			return nil, fmt.Errorf("eval: --tasks selects files of a folder, but %s is a single file, which is "+
				"always run completely; omit one of them", p)
		}
		var more []eval.Task
		if info.IsDir() {
			more, err = eval.Load(os.DirFS(p), patterns)
		} else {
			more, err = loadFile(os.DirFS(filepath.Dir(p)), filepath.Base(p))
		}
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, more...)
	}
	return tasks, nil
}

func loadFile(dir fs.FS, name string) ([]eval.Task, error) {
	t, err := eval.LoadFile(dir, name)
	return []eval.Task{t}, err
}

// askServer runs the tasks on the server at --url.
func (f *evalFlags) askServer(cmd *cobra.Command, tasks []eval.Task) ([]*eval.Report, error) {
	r, err := eval.NewRemote(cmd.Context(),
		eval.RemoteConfig{URL: f.url, Model: f.name, Key: f.key, Timeout: f.timeout})
	if err != nil {
		return nil, err
	}
	return f.ask(cmd, r, tasks, "items")
}

// comparePlans runs the tasks under one plan after another. If one of them fails or is interrupted, the comparison
// contains the plans before it.
func (f *evalFlags) comparePlans(cmd *cobra.Command, tasks []eval.Task) (*eval.Comparison, error) {
	base, err := f.config()
	if err != nil {
		return nil, err
	}
	plans, err := eval.ParsePlans(f.compare, base.Policy)
	if err != nil {
		return nil, err
	}
	for _, p := range plans { // check all plans before the first one runs, because a run may take long
		if err := resolvable(base, p); err != nil {
			return nil, unfinished(cmd.Context(), p, 0, len(plans), err)
		}
	}
	var reports []*eval.Report
	var failed error
	for _, p := range plans {
		r, err := f.askEngine(cmd, tasks, base, p)
		if err != nil {
			failed = unfinished(cmd.Context(), p, len(reports), len(plans), err)
			break
		}
		reports = append(reports, r...)
	}
	if len(reports) == 0 {
		return nil, failed
	}
	c, err := eval.Compare(reports, f.failures)
	return c, errors.Join(failed, err)
}

// resolvable returns an error if a plan cannot run on the model and the device.
func resolvable(c sparrow.Config, p eval.Plan) error {
	c.Policy, c.Kernels = p.Policy, cmp.Or(p.Kernels, c.Kernels)
	got, err := sparrow.Resolve(c)
	switch {
	case errors.Is(err, sparrow.ErrUndecided):
		return nil
	case err == nil && p.Dense:
		err = eval.CanBeDense(&got)
	}
	return err
}

// unfinished returns the error for a comparison that stopped at plan p: the reason, and how many plans have finished.
func unfinished(ctx context.Context, p eval.Plan, done, plans int, err error) error {
	if refused := (*plan.Error)(nil); errors.As(err, &refused) {
		advised := *refused
		advised.Try = eval.PlanWord(refused.Try) // suggest a word for --compare, which would override flags
		err = &advised
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w in plan %s; %d of %d plans finished", errInterrupted, p.Name, done, plans)
	}
	if done > 0 {
		return fmt.Errorf("plan %s: %w; %d of %d plans finished", p.Name, err, done, plans)
	}
	return fmt.Errorf("plan %s: %w", p.Name, err)
}

// planned returns the configuration of an engine that runs a plan.
func planned(c sparrow.Config, p eval.Plan) (sparrow.Config, error) {
	c.Policy = p.Policy
	c.Kernels = cmp.Or(p.Kernels, c.Kernels)
	if p.Draft == "" {
		return c, nil
	}
	var err error
	c.Draft, err = spec.Parse(p.Draft)
	return c, err
}

// askEngine runs the tasks on a separate engine with the plan.
func (f *evalFlags) askEngine(cmd *cobra.Command, tasks []eval.Task, c sparrow.Config, p eval.Plan) (
	_ []*eval.Report, err error) {
	if c, err = planned(c, p); err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr(), "loading weights")
	c.OnLoad = func(done, total int64) { bar.set(done, total, p.Name) }
	c.Warn = warnings(cmd)
	e, err := sparrow.Open(cmd.Context(), c)
	bar.end()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeNow(e)) }()
	noteDevice(cmd.ErrOrStderr(), e.Info())
	f.warnOfUnused(cmd, e.Info())
	answers, label := eval.NewEngine(e), "items"
	if p.Dense {
		if answers, err = eval.NewDenseEngine(e); err != nil {
			return nil, err
		}
	}
	if p.Name != "" {
		label = p.Name
	}
	runs, err := f.ask(cmd, answers, tasks, label)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		r.Plan, r.About, r.By.Settings = p.Name, p.About, f.settings(e.Info())
	}
	last := runs[len(runs)-1] // the counters of the engine are read after the last run, so they include all runs
	last.Rows, last.Drafts = eval.RowsOf(e), eval.DraftsOf(e)
	return runs, nil
}

// ask runs the tasks as often as --repeat states, with a progress bar on standard error.
func (f *evalFlags) ask(cmd *cobra.Command, r eval.Runner, tasks []eval.Task, label string) ([]*eval.Report, error) {
	bar := newProgress(cmd.ErrOrStderr(), label)
	defer bar.end()
	var runs []*eval.Report
	for i := range f.repeat {
		report, err := eval.Run(cmd.Context(), r, tasks, eval.Options{
			Concurrency: f.concurrency, Limit: f.limit, MaxTokens: f.maxTokens, Failures: f.failures,
			OnItem: func(p eval.Progress) {
				bar.set(int64(i*p.Items+p.Done), int64(f.repeat*p.Items),
					fmt.Sprintf("%s, %d right, %d wrong", p.Task, p.Exact, p.Wrong))
			},
		})
		if err != nil {
			return nil, err
		}
		runs = append(runs, report)
	}
	return runs, nil
}

// finishRuns prints the result of one run, or the mean and spread of several.
func (f *evalFlags) finishRuns(w io.Writer, runs []*eval.Report, err error) error {
	if err != nil {
		return err
	}
	if len(runs) == 1 {
		return f.finish(w, runs[0], nil, runs...)
	}
	r, err := eval.Repeated(runs)
	return f.finish(w, r, err, runs...)
}

// finish prints a result. It returns an error if any request has failed.
func (f *evalFlags) finish(w io.Writer, result interface{ Print(io.Writer) error }, err error,
	reports ...*eval.Report) error {
	if err != nil {
		return err
	}
	if f.asJSON {
		err = writeJSON(w, result)
	} else {
		err = result.Print(w)
	}
	for _, r := range reports {
		if n := r.Total.Errors; err == nil && n > 0 {
			err = fmt.Errorf("eval: %d of %d requests failed", n, r.Total.Items)
		}
	}
	return err
}
