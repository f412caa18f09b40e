package metric

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sparrow"
	"sparrow/kv/prefix"
)

// reading is one number of an engine's snapshot.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*snapshot) float64
}

// snapshot is what one scrape reads, all of one moment.
type snapshot struct {
	info  sparrow.Info
	stats sparrow.Stats
}

// usage is the share of pages in use; an engine without pages uses none.
func (s *snapshot) usage() float64 {
	if s.stats.KV.Pages == 0 {
		return 0
	}
	return s.stats.KV.Usage()
}

// engineCollector reads a snapshot for each scrape.
type engineCollector struct {
	source   Source
	readings []reading

	info, pages, ended, stops *prometheus.Desc
	segments, rows            *prometheus.Desc
	judged, right, undrafted  *prometheus.Desc
}

func gauge(name, help string, of func(*snapshot) float64) reading {
	return reading{prometheus.NewDesc("sparrow_"+name, help, nil, nil), prometheus.GaugeValue, of}
}

func counter(name, help string, of func(*sparrow.Stats) int64) reading {
	value := func(s *snapshot) float64 { return float64(of(&s.stats)) }
	return reading{prometheus.NewDesc("sparrow_"+name, help, nil, nil), prometheus.CounterValue, value}
}

var planLabels = []string{"row", "form", "kernel", "convert"}

func newEngineCollector(source Source) *engineCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sparrow_"+name, help, labels, nil)
	}
	return &engineCollector{
		source: source,
		readings: []reading{
			gauge("requests_running", "Sequences in the batch.", func(s *snapshot) float64 {
				return float64(s.stats.Running)
			}),
			gauge("requests_waiting", "Sequences in the queue.", func(s *snapshot) float64 {
				return float64(s.stats.Waiting)
			}),
			gauge("device_usable", "1 while the device works, 0 after it failed or while a step on it does not end.",
				func(s *snapshot) float64 {
					if s.stats.Device != "" {
						return 0
					}
					return 1
				}),
			gauge("kv_usage_ratio", "Share of cache pages in use by running sequences, 0 to 1.", (*snapshot).usage),
			gauge("kv_page_tokens", "Tokens in a cache page.", func(s *snapshot) float64 {
				return float64(s.info.PageTokens)
			}),
			counter("requests_total", "Requests accepted.", func(s *sparrow.Stats) int64 { return s.Requests }),
			counter("steps_total", "Steps of the engine.", func(s *sparrow.Stats) int64 { return s.Steps }),
			counter("preemptions_total", "Sequences that gave up their pages and were computed again.",
				func(s *sparrow.Stats) int64 { return s.Preempted }),
			counter("prompt_tokens_total", "Prompt tokens of accepted requests, cached ones included.",
				func(s *sparrow.Stats) int64 { return s.PromptTokens }),
			counter("output_tokens_total", "Tokens generated.", func(s *sparrow.Stats) int64 { return s.OutputTokens }),
			counter("prefix_queried_tokens_total", "Prompt tokens looked up in the prefix cache.",
				func(s *sparrow.Stats) int64 { return s.KV.PromptTokens }),
			counter("prefix_hit_tokens_total", "Prompt tokens found in the prefix cache.",
				func(s *sparrow.Stats) int64 { return s.KV.ReusedTokens }),
			counter("kv_evictions_total", "Cached pages given up to make room.", func(s *sparrow.Stats) int64 {
				return s.KV.Evictions
			}),
			gauge("kv_window_pages", "Window pages of the cache; 0 where rows live as long as their page.",
				func(s *snapshot) float64 { return float64(s.stats.KV.Windows) }),
			gauge("kv_window_pages_used", "Window pages that running sequences still see.", func(s *snapshot) float64 {
				return float64(s.stats.KV.Windows - s.stats.KV.WindowsFree - s.stats.KV.WindowsIdle)
			}),
			counter("kv_window_evictions_total", "Window pages of cached prefixes given up to make room.",
				func(s *sparrow.Stats) int64 { return s.KV.WindowEvictions }),
			counter("draft_tokens_total", "Tokens drafted.", func(s *sparrow.Stats) int64 { return s.Drafted }),
			counter("draft_accepted_tokens_total", "Drafted tokens that were accepted.", func(s *sparrow.Stats) int64 {
				return s.Accepted
			}),
			counter("draft_verifies_total", "Sequences whose drafts a step verified.", func(s *sparrow.Stats) int64 {
				return s.Verified
			}),
			counter("draft_verify_tokens_total", "Tokens that came out of those verifies.",
				func(s *sparrow.Stats) int64 { return s.VerifiedTokens }),
			counter("layout_conversions_total",
				"Plan segments whose cached rows were converted before a kernel read them.",
				func(s *sparrow.Stats) int64 { return s.Conversions }),
			counter("slices_total", "Extra launches because a kernel's limit was met.", func(s *sparrow.Stats) int64 {
				return s.Slices
			}),
			counter("graphs_captured_total", "Passes that were captured as a graph of the device.",
				func(s *sparrow.Stats) int64 { return s.Graphs.Captured }),
			counter("graphs_replayed_total", "Passes that ran from a captured graph.",
				func(s *sparrow.Stats) int64 { return s.Graphs.Replayed }),
			counter("graphs_failed_total", "Captures that failed; passes of these shapes run with plain launches.",
				func(s *sparrow.Stats) int64 { return s.Graphs.Failed }),
			gauge("graphs_bytes", "Device memory of captured graphs.",
				func(s *snapshot) float64 { return float64(s.stats.Graphs.Bytes) }),
		},
		info: desc("info", "Always 1; the labels describe the engine.", "model", "family", "kernels", "layout",
			"prefill", "decode"),
		pages: desc("kv_pages", "Cache pages by state: used by sequences, cached for later prompts, or free.",
			"state"),
		ended: desc("requests_ended_total",
			"Requests that ended, by outcome: finished, aborted (by their callers), failed, refused (queue full).",
			"outcome"),
		stops: desc("prefix_stops_total", "Prefix lookups by the reason they matched no further.", "reason"),
		segments: desc("plan_segments_total",
			"Plan segments that ran, by what their rows were, their form, kernel and conversion.", planLabels...),
		rows: desc("plan_rows_total", "Rows carried by those segments.", planLabels...),
		judged: desc("draft_judged_total", "Drafts compared with the target's choice, by their place in the chain.",
			"place"),
		right: desc("draft_right_total", "Drafts that were the target's choice, by their place in the chain.",
			"place"),
		undrafted: desc("draft_off_total",
			"Sequences that stopped drafting, by reason: cost (drafting did not save time) or failed.", "reason"),
	}
}

// Describe names every metric.
func (c *engineCollector) Describe(out chan<- *prometheus.Desc) {
	for _, r := range c.readings {
		out <- r.desc
	}
	for _, d := range []*prometheus.Desc{c.info, c.pages, c.ended, c.stops, c.segments, c.rows, c.judged, c.right,
		c.undrafted} {
		out <- d
	}
}

// Collect reads the engine once.
func (c *engineCollector) Collect(out chan<- prometheus.Metric) {
	now := &snapshot{c.source.Info(), c.source.Stats()}
	for _, r := range c.readings {
		out <- prometheus.MustNewConstMetric(r.desc, r.kind, r.of(now))
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	info, stats := &now.info, &now.stats
	gauge(c.info, 1, info.Name, info.Family, info.Kernels, info.Config.Layout.String(), info.Config.Prefill.String(),
		info.Config.Decode.String())
	gauge(c.pages, stats.KV.Used, "used")
	gauge(c.pages, stats.KV.Cached, "cached")
	gauge(c.pages, stats.KV.Free, "free")
	counter(c.ended, stats.Finished, "finished")
	counter(c.ended, stats.Aborted, "aborted")
	counter(c.ended, stats.Failed, "failed")
	counter(c.ended, stats.Refused, "refused")
	for why, n := range stats.KV.Stops {
		counter(c.stops, n, prefix.Stop(why).String())
	}
	for i, n := range stats.Drafts {
		counter(c.judged, n.Judged, strconv.Itoa(i+1))
		counter(c.right, n.Right, strconv.Itoa(i+1))
	}
	counter(c.undrafted, stats.DraftsEnded, "cost")
	counter(c.undrafted, stats.DraftsFailed, "failed")
	for _, p := range stats.Plans {
		labels := []string{p.Row.String(), p.Form.String(), p.Kernel.String(), p.Convert.String()}
		counter(c.segments, p.Steps, labels...)
		counter(c.rows, p.Rows, labels...)
	}
}
