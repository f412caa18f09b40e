package server

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"sparrow"
	"sparrow/internal/batch"
	"sparrow/internal/kv/event"
	"sparrow/internal/kv/tier"
	"sparrow/plan"
)

type publisher struct{}

func (publisher) Stats() event.Stats { return event.Stats{Subscribers: 2, Dropped: 3} }

// The guide for operators names every endpoint, option and metric.
func TestGuideNamesEverything(t *testing.T) {
	text, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(text)
	e := newFake(saying("x"))
	e.stats.Plans = []sparrow.PlanCount{{Row: plan.RowDecode}}
	e.stats.Tiers.Tiers = []tier.Count{{Tier: "host", Stops: map[string]int64{"not held": 1}}}
	e.stats.Experts.Choices, e.info.MovesExperts = 1, true
	e.stats.Tables.Bytes = 1
	s, hs := start(t, e, Options{VLLMNames: true, Events: publisher{},
		Batches: batchStore(t, batch.Options{})})
	for _, r := range s.routes {
		if !strings.Contains(guide, "| `"+r.method+" "+r.pattern+"` |") {
			t.Errorf("no endpoint %s %s", r.method, r.pattern)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if !strings.Contains(guide, "| `"+f.Name+"` |") {
			t.Errorf("no option %s", f.Name)
		}
	}
	post(t, hs.URL+"/v1/chat/completions", hello+`}`)
	named := 0
	for line := range strings.Lines(get(t, hs.URL+"/metrics").body) {
		name, ok := strings.CutPrefix(line, "# TYPE ")
		name, _, _ = strings.Cut(name, " ")
		if !ok || !strings.HasPrefix(name, "sparrow_") && !strings.HasPrefix(name, "vllm:") {
			continue
		}
		named++
		if !strings.Contains(guide, "| `"+name+"` |") {
			t.Errorf("no metric %s", name)
		}
	}
	documented := 0
	for line := range strings.Lines(guide) {
		if strings.HasPrefix(line, "| `sparrow_") || strings.HasPrefix(line, "| `vllm:") {
			documented++
		}
	}
	if named != documented {
		t.Errorf("the server has %d metrics, the guide %d", named, documented)
	}
}
