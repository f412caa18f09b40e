package eval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Options configures a run.
type Options struct {
	Concurrency int // concurrent requests; 0 means 16
	Limit       int // items of each task; 0 means all
	// MaxTokens is the maximum length of an answer; 0 means the number of bytes of the expected answer plus
	// answerSlack, which suffices for every byte-level tokenizer.
	MaxTokens int
	// Failures is the maximum number of wrong items that the report lists.
	Failures int
	// OnItem, if not nil, is called after every item; calls do not overlap.
	OnItem func(Progress)
}

// Progress is the progress of a run.
type Progress struct {
	Task         string
	Done, Items  int // finished items and all items, of all tasks
	Exact, Wrong int // exact and wrong items so far
}

const (
	defaultConcurrency = 16
	answerSlack        = 32 // tokens beyond the length of the expected answer, to detect longer answers
)

// Report holds the results of one run.
type Report struct {
	Plan  string `json:"plan,omitempty"`  // name of the plan in a comparison
	About string `json:"about,omitempty"` // meaning of the plan in a comparison
	By    About  `json:"by"`

	Tasks []Score `json:"tasks"`
	Total Score   `json:"total"`
	Rows  []Rows  `json:"rows,omitempty"` // attention rows that an engine computed, by form
	// Drafts counts the drafts of an engine; nil if there were none.
	Drafts *Drafts `json:"drafts,omitempty"`
	// Failures lists the first wrong items.
	Failures []Failure `json:"failures,omitempty"`

	outputs []output // outputs in the order of the items
}

// Score counts the items of a task, or of all tasks.
type Score struct {
	Task   string `json:"task,omitempty"`
	Items  int    `json:"items"`
	Exact  int    `json:"exact"`  // items with an exactly equal answer
	Final  int    `json:"final"`  // items whose answer contains the final value
	Errors int    `json:"errors"` // requests that failed; they count as wrong

	PromptTokens     int `json:"prompt_tokens"`
	CachedTokens     int `json:"cached_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	// Seconds is wall time. TokensPerSecond is CompletionTokens / Seconds, which includes the time for prompts.
	Seconds         float64 `json:"seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// Accuracy returns the share of exact answers.
func (s *Score) Accuracy() float64 { return share(s.Exact, s.Items) }

func share(part, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// Failure is an item whose answer is wrong.
type Failure struct {
	Task  string `json:"task"`
	Line  int    `json:"line"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Error string `json:"error,omitempty"` // error of the request
}

// output is the reply to an item and its assessment.
type output struct {
	item         *Item
	text         string // the reply as returned by Reply.String
	exact, final bool
	err          error
	reply        Reply
}

// Run runs all items, one task after the other. An item whose request fails counts as wrong. Run returns an error only
// if ctx ends or o is invalid.
func Run(ctx context.Context, r Runner, tasks []Task, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	rep := &Report{By: r.About()}
	run := runState{runner: r, options: o, report: rep}
	run.progress.Items = Count(tasks, o.Limit)
	for _, t := range tasks {
		s, err := run.task(ctx, t)
		if err != nil {
			return nil, err
		}
		rep.Tasks = append(rep.Tasks, s)
		rep.Total.add(&s)
	}
	rep.Total.rate()
	return rep, nil
}

func (o *Options) check() error {
	var errs []error
	for _, f := range []struct {
		name string
		v    int
	}{{"Concurrency", o.Concurrency}, {"Limit", o.Limit}, {"MaxTokens", o.MaxTokens}, {"Failures", o.Failures}} {
		if f.v < 0 {
			errs = append(errs, fmt.Errorf("%w: %s is %d, want 0 or more", ErrOptions, f.name, f.v))
		}
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	return errors.Join(errs...)
}

// runState is the state of a run.
type runState struct {
	runner  Runner
	options Options
	report  *Report

	mu       sync.Mutex // guards progress, for OnItem
	progress Progress
}

// task runs one task's items concurrently.
func (r *runState) task(ctx context.Context, t Task) (Score, error) {
	items := t.first(r.options.Limit)
	r.progress.Task = t.Name
	outs := make([]output, len(items))
	next := make(chan int)
	var workers sync.WaitGroup
	begun := time.Now()
	for range min(r.options.Concurrency, len(items)) {
		workers.Go(func() {
			for i := range next {
				outs[i] = r.item(ctx, items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return Score{}, err
	}
	s := Score{Task: t.Name, Seconds: time.Since(begun).Seconds()}
	for i := range outs {
		s.count(&outs[i])
		if o := &outs[i]; !o.exact && len(r.report.Failures) < r.options.Failures {
			r.report.Failures = append(r.report.Failures, o.failure())
		}
	}
	s.rate()
	r.report.outputs = append(r.report.outputs, outs...)
	return s, nil
}

// item runs one item and compares its reply with the expected answer.
func (r *runState) item(ctx context.Context, it *Item) output {
	out := output{item: it}
	if out.err = ctx.Err(); out.err != nil {
		return out
	}
	most := r.options.MaxTokens
	if most == 0 {
		most = len(it.Answer) + answerSlack
	}
	out.reply, out.err = r.runner.Answer(ctx, it, most)
	if out.err == nil {
		out.text, out.exact, out.final = out.reply.String(), Exact(it, &out.reply), Final(it, &out.reply)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.progress
	p.Done++
	if out.exact {
		p.Exact++
	} else {
		p.Wrong++
	}
	if r.options.OnItem != nil {
		r.options.OnItem(*p)
	}
	return out
}

func (o *output) failure() Failure {
	f := Failure{Task: o.item.Task, Line: o.item.Line, Want: o.item.Answer, Got: o.text}
	if o.err != nil {
		f.Error = o.err.Error()
	}
	return f
}

func (s *Score) count(o *output) {
	s.Items++
	if o.exact {
		s.Exact++
	}
	if o.final {
		s.Final++
	}
	if o.err != nil {
		s.Errors++
	}
	s.PromptTokens += o.reply.PromptTokens
	s.CachedTokens += o.reply.CachedTokens
	s.CompletionTokens += o.reply.CompletionTokens
}

func (s *Score) add(t *Score) {
	s.Items += t.Items
	s.Exact += t.Exact
	s.Final += t.Final
	s.Errors += t.Errors
	s.PromptTokens += t.PromptTokens
	s.CachedTokens += t.CachedTokens
	s.CompletionTokens += t.CompletionTokens
	s.Seconds += t.Seconds
}

func (s *Score) rate() {
	if s.Seconds > 0 {
		s.TokensPerSecond = float64(s.CompletionTokens) / s.Seconds
	}
}
