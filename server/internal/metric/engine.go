package metric

import (
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sparrow"
	"sparrow/internal/kv/prefix"
)

// collector reads the engine's metrics at each scrape, under names with one prefix.
type collector struct {
	source Source
	prefix string
	labels prometheus.Labels // constant labels of all metrics
	write  func(*snapshot)

	mu    sync.Mutex
	descs map[string]*prometheus.Desc // [metric and label names] descriptions; creating one is slow
}

// desc returns the description of a metric.
func (c *collector) desc(name, help string, labels []string) *prometheus.Desc {
	key := name + "\x00" + strings.Join(labels, "\x00")
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.descs[key]
	if d == nil {
		if c.descs == nil {
			c.descs = map[string]*prometheus.Desc{}
		}
		d = prometheus.NewDesc(c.prefix+name, help, labels, c.labels)
		c.descs[key] = d
	}
	return d
}

// Describe sends nothing, because the set of metrics depends on what has run.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the engine's metrics.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.write(&snapshot{collector: c, out: out, info: c.source.Info(), stats: c.source.Stats()})
}

// snapshot holds the values of one scrape, all read at the same time, and the channel for the metrics.
type snapshot struct {
	*collector
	out   chan<- prometheus.Metric
	info  sparrow.Info
	stats sparrow.Stats
}

// add sends one value; labels are pairs of name and value.
func (s *snapshot) add(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s.out <- prometheus.MustNewConstMetric(s.desc(name, help, names), kind, v, values...)
}

func (s *snapshot) gauge(name, help string, v int, labels ...string) {
	s.add(prometheus.GaugeValue, name, help, float64(v), labels...)
}

func (s *snapshot) counter(name, help string, v int64, labels ...string) {
	s.add(prometheus.CounterValue, name, help, float64(v), labels...)
}

// usage sends the share of pages in use, or 0 if the engine has no pages.
func (s *snapshot) usage(name, help string) {
	share := 0.0
	if s.stats.KV.Pages > 0 {
		share = s.stats.KV.Usage()
	}
	s.add(prometheus.GaugeValue, name, help, share)
}

func newEngineCollector(source Source) *collector {
	return &collector{source: source, prefix: "sparrow_", write: (*snapshot).engine}
}

// engine sends the engine's metrics.
func (s *snapshot) engine() {
	info, stats, kv := &s.info, &s.stats, &s.stats.KV
	s.gauge("info", "Always 1; the labels describe the engine.", 1, "model", info.Name, "family", info.Family,
		"kernels", info.Kernels, "layout", info.Config.Layout.String(), "prefill", info.Config.Prefill.String(),
		"decode", info.Config.Decode.String())
	s.gauge("requests_running", "Sequences in the batch.", stats.Running)
	s.gauge("requests_waiting", "Sequences in the queue.", stats.Waiting)
	s.usage("kv_usage_ratio", "Share of cache pages in use by running sequences, 0 to 1.")
	s.gauge("kv_page_tokens", "Tokens in a cache page.", info.PageTokens)
	s.counter("requests_total", "Requests accepted.", stats.Requests)
	s.counter("steps_total", "Steps of the engine.", stats.Steps)
	s.counter("steps_overlapped_total", "Steps that were enqueued while the previous step ran.", stats.Overlapped)
	s.counter("steps_between_total", "Decode steps that ran between operations of a prefill step.",
		stats.Between)
	s.counter("unused_tokens_total", "Tokens computed for sequences that had ended in the previous step.", stats.Unused)
	s.counter("preemptions_total", "Sequences that were suspended to free pages or places for others.", stats.Preempted)
	s.counter("scored_tokens_total", "Tokens of prompts and given continuations whose log probabilities were "+
		"computed.", stats.ScoredTokens)
	s.counter("prompt_tokens_total", "Prompt tokens of accepted requests, cached ones included.", stats.PromptTokens)
	s.counter("output_tokens_total", "Tokens generated.", stats.OutputTokens)
	s.counter("prefix_queried_tokens_total", "Prompt tokens looked up in the prefix cache.", kv.PromptTokens)
	s.counter("prefix_hit_tokens_total", "Prompt tokens found in the prefix cache.", kv.ReusedTokens)
	s.counter("kv_evictions_total", "Cached pages evicted.", kv.Evictions)
	s.gauge("kv_window_pages", "Window pages of the cache; 0 if windows have no separate pages.", kv.Windows)
	s.gauge("kv_window_pages_used", "Window pages within the windows of running sequences.",
		kv.Windows-kv.WindowsFree-kv.WindowsIdle)
	s.counter("kv_window_evictions_total", "Window pages of cached prefixes that were evicted.",
		kv.WindowEvictions)
	s.counter("draft_tokens_total", "Tokens drafted.", stats.Drafted)
	s.counter("draft_accepted_tokens_total", "Drafted tokens that were accepted.", stats.Accepted)
	s.counter("draft_verifies_total", "Sequences whose drafts a step verified.", stats.Verified)
	s.counter("draft_verify_tokens_total", "Tokens that steps with verified drafts produced.", stats.VerifiedTokens)
	if t := &stats.Tables; t.Bytes > 0 {
		s.add(prometheus.GaugeValue, "table_bytes", "Memory of n-gram tables, in host memory or mapped.",
			float64(t.Bytes))
		s.counter("table_rows_read_total", "Rows of n-gram tables that were looked up.", t.RowsRead)
		s.counter("table_read_bytes_total", "Bytes of the rows of n-gram tables that were looked up.", t.BytesRead)
	}
	s.counter("layout_conversions_total", "Plan segments whose cached rows were converted before a kernel read them.",
		stats.Conversions)
	s.counter("slices_total", "Extra launches because of a kernel's limit.", stats.Slices)
	if x := &stats.Experts; x.Choices > 0 {
		s.add(prometheus.CounterValue, "expert_choices_total", "Choices of experts by rows, over all layers; choices "+
			"that were already in the usage file are included.", x.Choices)
		for _, top := range []struct {
			name  string
			share float64
		}{{"tenth", x.Tenth}, {"quarter", x.Quarter}, {"half", x.Half}} {
			s.add(prometheus.GaugeValue, "expert_top_share", "Share of choices of the most chosen experts of a "+
				"layer, averaged over layers: a measure of uneven use.", top.share, "of", top.name)
		}
	}
	if info.MovesExperts {
		s.counter("expert_moves_total", "Experts that were moved to the device in exchange for others.",
			stats.Experts.Moved)
	}
	s.counter("graphs_captured_total", "Passes that were captured as a graph of the device.", stats.Graphs.Captured)
	s.counter("graphs_replayed_total", "Passes that ran from a captured graph.", stats.Graphs.Replayed)
	s.counter("graphs_failed_total", "Captures that failed; passes of these shapes run with plain launches.",
		stats.Graphs.Failed)
	m := &info.Memory
	s.add(prometheus.GaugeValue, "device_memory_total_bytes",
		"Total memory of the GPU, or of all GPUs that share the model; 0 on a CPU.", float64(m.Device))
	s.add(prometheus.CounterValue, "device_busy_seconds_total",
		"Time of passes, from their preparation to their results.", stats.Busy.Seconds())
	s.add(prometheus.GaugeValue, "longest_gap_seconds",
		"Longest step of the last minute or two that running streams waited for.", stats.LongestGap.Seconds())
	s.counter("device_faults_total", "Passes that failed on the device.", stats.Faults)
	usable := 1
	if stats.Device != "" {
		usable = 0
	}
	s.gauge("device_usable", "1 while the device works, 0 after it failed or while a step on it hangs.", usable)
	for owner, bytes := range map[string]int64{"weights": m.Weights, "cache": m.Cache, "states": m.States,
		"arena": m.Arena, "scratch": m.Scratch, "graphs": stats.Graphs.Bytes} {
		s.add(prometheus.GaugeValue, "device_memory_bytes", "Memory by owner: weights, cache, states of sequences, "+
			"arena of passes, scratch of operations, graphs.", float64(bytes), "owner", owner)
	}
	for state, n := range map[string]int{"used": kv.Used, "cached": kv.Cached, "free": kv.Free} {
		s.gauge("kv_pages", "Cache pages by state: used by sequences, cached for later prompts, or free.", n,
			"state", state)
	}
	for outcome, n := range map[string]int64{"finished": stats.Finished, "aborted": stats.Aborted,
		"failed": stats.Failed, "refused": stats.Refused} {
		s.counter("requests_ended_total",
			"Requests that ended, by outcome: finished, aborted (by their callers), failed, refused (queue full).", n,
			"outcome", outcome)
	}
	for why, n := range kv.Stops {
		s.counter("prefix_stops_total", "Prefix lookups, by the reason why the match ended.", n,
			"reason", prefix.Stop(why).String())
	}
	s.tiers()
	for i, n := range stats.Drafts {
		place := strconv.Itoa(i + 1)
		s.counter("draft_judged_total", "Drafts compared with the target's token, by their position in the chain.",
			n.Judged, "place", place)
		s.counter("draft_right_total", "Drafts that equalled the target's token, by their position in the chain.",
			n.Right, "place", place)
	}
	for reason, n := range map[string]int64{"cost": stats.DraftsEnded, "failed": stats.DraftsFailed} {
		s.counter("draft_off_total",
			"Sequences that stopped drafting, by reason: cost (drafting did not save time) or failed.", n,
			"reason", reason)
	}
	for _, p := range stats.Plans {
		labels := []string{"row", p.Row.String(), "form", p.Form.String(), "kernel", p.Kernel.String(),
			"convert", p.Convert.String()}
		s.counter("plan_segments_total",
			"Plan segments that ran, by kind of rows, form, kernel and conversion.", p.Steps, labels...)
		s.counter("plan_rows_total", "Rows of plan segments that ran, by kind of rows, form, kernel and "+
			"conversion.", p.Rows, labels...)
	}
}

// tiers sends the metrics of tiers outside the device, if there are any.
func (s *snapshot) tiers() {
	t := &s.stats.Tiers
	if len(t.Tiers) == 0 {
		return
	}
	kind := "sampled"
	if t.Identified {
		kind = "all"
	}
	s.add(prometheus.GaugeValue, "tier_weights_identity", "1 for the way in which pages outside the device identify "+
		"the weights: all (by all bytes), or sampled (by a sample until all bytes are read; pages then stay on this "+
		"machine).", 1, "kind", kind)
	s.counter("tier_restored_tokens_total", "Prompt tokens whose pages came from a tier.", t.Tokens)
	s.counter("tier_no_memory_total", "Pages that were not copied from the device because host memory was full.",
		t.NoRoom)
	for outcome, n := range map[string]int64{"restored": t.Restored, "missed": t.Missed, "slow": t.Slow} {
		s.counter("tier_requests_total", "Sequences that looked for pages in tiers, by outcome: restored (some "+
			"arrived), missed (no tier had them), slow (the rest was computed because pages arrived too slowly).", n,
			"outcome", outcome)
	}
	s.add(prometheus.CounterValue, "tier_saved_seconds_total",
		"Time saved by restoring tokens instead of computing them.", t.Saved.Seconds())
	s.add(prometheus.CounterValue, "tier_lost_seconds_total",
		"Time that sequences waited for pages beyond the time to compute them.", t.Lost.Seconds())
	for i := range t.Tiers {
		c := &t.Tiers[i]
		s.add(prometheus.GaugeValue, "tier_bytes", "Bytes of the pages in a tier; not reported for a shared store.",
			float64(c.Bytes), "tier", c.Tier)
		s.add(prometheus.GaugeValue, "tier_pages", "Pages in a tier; not reported for a shared store.",
			float64(c.Pages), "tier", c.Tier)
		for reason, n := range c.Stops {
			s.counter("tier_stops_total", "How often a tier did not return the next page of a prompt, by reason.",
				n, "tier", c.Tier, "reason", reason)
		}
		s.counter("tier_hit_bytes_total", "Bytes of the pages loaded from a tier.", c.HitBytes, "tier", c.Tier)
		s.add(prometheus.CounterValue, "tier_busy_seconds_total", "Time spent reading pages from a tier.",
			c.Busy.Seconds(), "tier", c.Tier)
		for event, n := range map[string]int64{"hit": c.Hits, "stored": c.Stored, "evicted": c.Evicted,
			"dropped": c.Dropped, "damaged": c.Damaged, "failed": c.Failed} {
			s.counter("tier_pages_total", "Pages by tier and event: hit (loaded), stored, evicted, "+
				"dropped (no time or memory to store it), damaged (stored but unusable), failed (calls that failed).",
				n, "tier", c.Tier, "event", event)
		}
	}
}
