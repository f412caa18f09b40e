package metric

import (
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/batch"
	"sparrow/internal/kv/event"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// events is a publisher whose counters all have different values.
type events struct{ stats event.Stats }

func (e events) Stats() event.Stats { return e.stats }

// Every counter of an engine is published under its name, with its help text, type and labels.
func TestTableOfMetrics(t *testing.T) {
	var full source
	table.Fill(&full.info)
	table.Fill(&full.stats)
	full.stats.Plans[1].Row = plan.RowDecode
	var published events
	table.Fill(&published.stats)
	s := New(&full, true)
	s.AddEvents(published)
	store, err := batch.Open(batch.Options{Dir: t.TempDir(), Budget: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s.AddBatches(store)
	s.FirstToken(300 * time.Millisecond)
	s.Gap(60*time.Millisecond, 3)
	s.Request(7*time.Second, sparrow.Usage{PromptTokens: 700, CompletionTokens: 30})
	s.Finished(sparrow.FinishStop)
	s.Finished(sparrow.FinishError)
	s.HTTP("/v1/models", 404)
	s.Panic()
	text := scrape(t, s)
	full.stats.Device, full.stats.Tiers.Identified, full.info.MovesExperts = "", false, false
	full.stats.KV.Pages, full.stats.Experts.Choices, full.stats.Tables.Bytes = 0, 0, 0
	var lines []string
	seen := map[string]bool{}
	for line := range strings.Lines(text + scrape(t, New(&full, false)) + scrape(t, New(&source{}, false))) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if (strings.HasPrefix(name, "sparrow_") || strings.HasPrefix(name, "vllm:")) && !seen[line] {
			seen[line] = true
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	table.Check(t, "metrics.txt", lines)
}
