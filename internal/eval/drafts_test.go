package eval

import (
	"strings"
	"testing"

	"sparrow"
	"sparrow/internal/spec"
	"sparrow/plan"
)

// The built-in model's drafting layer predicts the next token of its answers nearly always. It predicts the three
// tokens after it often enough for 2.4 tokens per verification. The test runs a few items of every short task.
func TestTheBuiltInModelDraftsWell(t *testing.T) {
	four, err := spec.Fixed(4)
	if err != nil {
		t.Fatal(err)
	}
	e, err := sparrow.Open(t.Context(), sparrow.Config{Draft: four, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	r, err := Run(t.Context(), NewEngine(e), shippedTasks(t, "word*,json,tool,talk,list"), Options{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	d := DraftsOf(e)
	if r.Total.Exact != r.Total.Items || d == nil || len(d.Places) != 4 {
		t.Fatalf("%d of %d answers are right, drafts %+v", r.Total.Exact, r.Total.Items, d)
	}
	t.Logf("%d verifies, %.2f tokens each, right by place: %+v", d.Verifies, d.TokensPerVerify, d.Places)
	if d.Places[0].Share < 0.95 || d.TokensPerVerify < 2.4 {
		t.Errorf("the first draft is right in %.3f, a verify gives %.2f tokens; want 0.95 and 2.4", d.Places[0].Share,
			d.TokensPerVerify)
	}
	if d.Drafted <= d.Accepted || d.Places[0].Judged > d.Verifies || d.Places[1].Judged > d.Places[0].Right {
		t.Errorf("counts contradict each other: %+v", d)
	}
	r.Drafts = d
	var b strings.Builder
	if err := r.Print(&b); err != nil || !strings.Contains(b.String(), "tokens per verification") ||
		!strings.Contains(b.String(), "draft 4 accepted:") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

func TestDraftIsAWordOfPlans(t *testing.T) {
	plans, err := ParsePlans("draft=off,draft=4+kv=fp8", plan.Policy{})
	if err != nil || plans[0].Draft != "off" || plans[1].Draft != "4" || plans[1].Policy.KV != "fp8" {
		t.Errorf("%+v, %v", plans, err)
	}
	if _, err := ParsePlans("draft=9", plan.Policy{}); err == nil || !strings.Contains(err.Error(), "1 to 7") {
		t.Errorf("nine drafts: %v", err)
	}
}
