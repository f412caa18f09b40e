package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sparrow"
	"sparrow/internal/testkit/testflag"
	"sparrow/plan"
)

// open opens the built-in model, with a cache no larger than the tests need.
func open(t *testing.T, p plan.Policy) *sparrow.Engine {
	t.Helper()
	e, err := sparrow.Open(t.Context(), sparrow.Config{Policy: p, CacheTokens: 16384, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func shippedTasks(t *testing.T, patterns string) []Task {
	t.Helper()
	tasks, err := Load(Shipped(), patterns)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// allRight checks that every item was answered exactly and returns the report.
func allRight(t *testing.T, r Runner, tasks []Task, limit int) *Report {
	t.Helper()
	rep, err := Run(t.Context(), r, tasks, Options{Limit: limit, Failures: 5})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Total.Exact != rep.Total.Items || rep.Total.Final != rep.Total.Items || rep.Total.Items == 0 {
		t.Errorf("%d of %d exact, %d final; wrong are %+v", rep.Total.Exact, rep.Total.Items, rep.Total.Final,
			rep.Failures)
	}
	return rep
}

// Every prompt has the number of tokens that the file states. So chat format, tools and tokenizer produce the same form
// as the training data.
func TestPromptsHaveTheirTokens(t *testing.T) {
	e := open(t, plan.Policy{})
	for _, task := range shippedTasks(t, "") {
		for _, it := range task.Items {
			_, ids, err := e.Render(&it.Chat)
			if err != nil {
				t.Fatal(err)
			}
			if len(ids) != it.Tokens {
				t.Errorf("%s has %d tokens, the file says %d", it.Where(), len(ids), it.Tokens)
			}
		}
	}
}

// pairs returns all valid combinations of a prefill kernel, a decode kernel and a layout on CPUs.
func pairs(t *testing.T) (out []plan.Policy) {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ModelFor("deepseek_v32")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range []string{"bf16", "fp8-656", "fp8-576", "f32"} {
		for prefill := plan.SparseFlat; prefill <= plan.Auto; prefill++ {
			for decode := plan.SparseFlat; decode <= plan.Auto; decode++ {
				p := plan.Policy{KV: kv, Prefill: prefill.String(), Decode: decode.String()}
				if _, _, err := plan.Resolve(hw, m, p); err == nil {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// everything enables test cases whose properties other tests already imply. make long sets it.
var everything = testflag.Long

// A few items of every cheap task are answered exactly in the layouts that are used most, and with deterministic
// arithmetic. The test uses the last valid pair of kernels of each layout; make long uses every layout and all pairs,
// which package verify compares row by row. The model solves these tasks completely, so one wrong item is an error.
// Prompts of 1,024 tokens select 256 keys.
func TestAnswersInEveryLayout(t *testing.T) {
	short, long := shippedTasks(t, "word1,json"), shippedTasks(t, "find_one_1024")
	if *everything {
		short = shippedTasks(t, "word*,json,tool,talk")
	}
	list := pairs(t)
	if len(list) != 11 {
		t.Errorf("%d pairs are legal, want 11: %+v", len(list), list)
	}
	for i, p := range append(list, plan.Policy{KV: "bf16", Deterministic: true}) {
		if !*everything && (p.KV == "f32" || p.KV == "fp8-576" || i+1 < len(list) && list[i+1].KV == p.KV) {
			continue
		}
		name := fmt.Sprintf("%s %s %s", p.KV, p.Prefill, p.Decode)
		if p.Deterministic {
			name = p.KV + " deterministic"
		}
		t.Run(name, func(t *testing.T) {
			e := open(t, p)
			items := 1
			if *everything {
				items = 2
			}
			allRight(t, NewEngine(e), short, items)
			allRight(t, NewEngine(e), long, 1)
			if rowsOf(e, plan.RowSparsePrefill) == 0 || rowsOf(e, plan.RowDecode)+rowsOf(e, plan.RowVerify) == 0 {
				t.Errorf("no selection ran: %+v", RowsOf(e))
			}
		})
	}
}

func rowsOf(e *sparrow.Engine, row plan.RowKind) int64 {
	var n int64
	for _, r := range RowsOf(e) {
		if r.Row == row {
			n += r.Rows
		}
	}
	return n
}

// The dense runner computes only dense rows. Both the dense and the sparse runner give the right answers.
func TestDenseIsDense(t *testing.T) {
	plans, err := ParsePlans("dense,sparse", plan.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	tasks := shippedTasks(t, "word1,tool,find_one_1024")
	var reports []*Report
	for _, p := range plans {
		e := open(t, p.Policy)
		r := NewEngine(e)
		if p.Dense {
			if r, err = NewDenseEngine(e); err != nil {
				t.Fatal(err)
			}
		}
		reports = append(reports, allRight(t, r, tasks, 1))
		for _, k := range RowsOf(e) {
			if p.Dense && k.Form != plan.FormDenseMHA {
				t.Errorf("the dense plan computed %d rows %v by %v", k.Rows, k.Row, k.Kernel)
			}
		}
	}
	c, err := Compare(reports, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Agreement[0][1] != 1 || c.Different != 0 {
		t.Errorf("dense and sparse agree on %v of the items", c.Agreement[0][1])
	}
	for i := range reports[0].Tasks {
		d, s := &reports[0].Tasks[i], &reports[1].Tasks[i]
		if d.CachedTokens != s.CachedTokens { // tokens of the dense answer that earlier requests for it have cached
			t.Errorf("%s: %d tokens of dense prompts were cached, %d of sparse ones", d.Task, d.CachedTokens,
				s.CachedTokens)
		}
		if d.PromptTokens != s.PromptTokens || d.CompletionTokens != s.CompletionTokens {
			t.Errorf("%s: dense counts %d+%d tokens, sparse %d+%d", d.Task, d.PromptTokens, d.CompletionTokens,
				s.PromptTokens, s.CompletionTokens)
		}
	}
}

func TestDenseIsRefusedWhereItIsNot(t *testing.T) {
	for name, p := range map[string]plan.Policy{"dense threshold": {},
		"switched off":  {Dense: plan.SwitchOff, DenseThreshold: denseKeys},
		"deterministic": {Deterministic: true, DenseThreshold: denseKeys}} {
		if _, err := NewDenseEngine(open(t, p)); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A truncated answer is not exact, with either runner.
func TestCutOff(t *testing.T) {
	it := shippedTasks(t, "word1")[0].Items[0]
	e := open(t, plan.Policy{DenseThreshold: denseKeys})
	dense, err := NewDenseEngine(e)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]Runner{"plain": NewEngine(e), "dense": dense} {
		reply, err := r.Answer(t.Context(), it, 3)
		if err != nil || reply.Ended || reply.CompletionTokens != 3 || reply.Text == "" ||
			!strings.HasPrefix(it.Answer, reply.Text) || Exact(it, &reply) {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
}
