package eval

import (
	"context"
	"fmt"
	"strings"

	"sparrow"
	"sparrow/plan"
	"sparrow/sample"
)

// Engine answers items with an engine in this process.
type Engine struct {
	engine *sparrow.Engine
	dense  bool
}

// NewEngine returns a runner that uses the engine with its own plan.
func NewEngine(e *sparrow.Engine) *Engine { return &Engine{engine: e} }

// NewDenseEngine returns a runner that uses only dense attention. Decode steps select keys, so each generated token is
// instead appended to the prompt and computed as a prompt row, which attends to every key. The prefix cache avoids
// computing the earlier rows again.
func NewDenseEngine(e *sparrow.Engine) (*Engine, error) {
	i := e.Info()
	if err := CanBeDense(&i.Config); err != nil {
		return nil, err
	}
	if t := i.Config.T; t < i.ContextTokens {
		return nil, notDense(fmt.Sprintf("rows of up to %d keys are dense, but the context has %d; raise the dense "+
			"threshold", t, i.ContextTokens))
	}
	return &Engine{engine: e, dense: true}, nil
}

// CanBeDense returns an error if a configuration does not support dense attention.
func CanBeDense(c *plan.Config) error {
	if !c.DenseOK {
		return notDense(strings.Join(c.DenseAgainst, "; "))
	}
	return nil
}

// notDense is the reason why a model does not support dense attention. It is an ErrPlan; the caller adds the plan's
// name.
type notDense string

func (e notDense) Error() string        { return "dense attention cannot run: " + string(e) }
func (e notDense) Is(target error) bool { return target == ErrPlan }

// About describes the model, its kernels and its cache.
func (r *Engine) About() About {
	i := r.engine.Info()
	return About{Model: i.Name, Kernels: i.Kernels, Layout: i.Config.Layout.String()}
}

// Answer generates an answer greedily, or scores the choices of an item.
func (r *Engine) Answer(ctx context.Context, it *Item, most int) (Reply, error) {
	if it.Choices != nil {
		return r.choose(ctx, it)
	}
	if r.dense {
		return r.answerDense(ctx, it, most)
	}
	request := sparrow.Request{Chat: &it.Chat, Sampling: greedy(), MaxTokens: most, ID: it.Where()}
	if it.Schema != nil {
		request.Format = sparrow.Format{Kind: sparrow.FormatSchema, Schema: it.Schema, Field: "schema"}
	}
	res, err := r.engine.Generate(ctx, request)
	if err != nil {
		return Reply{}, err
	}
	out := Reply{Raw: true, Text: res.Choices[0].Text, Ended: ended(res.Choices[0].Finish)}
	out.PromptTokens, out.CachedTokens, out.CompletionTokens = res.Usage.PromptTokens, res.Usage.CachedTokens,
		res.Usage.CompletionTokens
	return out, nil
}

// choose scores the choices of an item. The choices are rows of a prompt, so they work with dense attention too.
func (r *Engine) choose(ctx context.Context, it *Item) (Reply, error) {
	logprobs, used, err := r.engine.ScoreTexts(ctx, it.Prompt, it.Choices)
	if err != nil {
		return Reply{}, err
	}
	out := chosen(it, logprobs)
	out.PromptTokens, out.CachedTokens, out.CompletionTokens = used.PromptTokens, used.CachedTokens,
		used.CompletionTokens
	return out, nil
}

// answerDense generates one token per request. Schemas have no effect, because they apply to whole answers.
func (r *Engine) answerDense(ctx context.Context, it *Item, most int) (Reply, error) {
	_, ids, err := r.engine.Render(&it.Chat)
	if err != nil {
		return Reply{}, err
	}
	prompt := len(ids)
	out := Reply{Raw: true, PromptTokens: prompt}
	for out.CompletionTokens < most && !out.Ended {
		res, err := r.engine.Generate(ctx,
			sparrow.Request{Tokens: ids, Sampling: greedy(), MaxTokens: 1, ID: it.Where()})
		if err != nil {
			return Reply{}, err
		}
		if out.CompletionTokens == 0 {
			out.CachedTokens = res.Usage.CachedTokens
		}
		out.CompletionTokens++
		if c := &res.Choices[0]; ended(c.Finish) {
			out.Ended = true
		} else {
			ids = append(ids, c.Tokens[0].ID)
		}
	}
	out.Text, err = r.engine.Decode(ids[prompt:])
	return out, err
}

func ended(f sparrow.Finish) bool { return f == sparrow.FinishStop || f == sparrow.FinishToolCalls }

func greedy() sample.Params {
	p := sample.Default()
	p.Temperature = 0
	return p
}

// Rows is the number of attention rows that an engine has computed in one form, such as sparse or dense.
type Rows struct {
	Row     plan.RowKind `json:"row"`
	Form    plan.Form    `json:"form"`
	Kernel  plan.Kernel  `json:"kernel"`
	Convert plan.Convert `json:"convert"`
	Rows    int64        `json:"rows"`
}

// RowsOf returns the rows that an engine has computed so far.
func RowsOf(e *sparrow.Engine) []Rows {
	var out []Rows
	for _, p := range e.Stats().Plans {
		out = append(out, Rows{p.Row, p.Form, p.Kernel, p.Convert, p.Rows})
	}
	return out
}
