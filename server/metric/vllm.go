package metric

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sparrow"
)

// addVLLM registers the metrics that routers and dashboards made for vLLM read. They carry vLLM's labels; there is
// one engine, so its number is always 0.
func (s *Set) addVLLM(source Source) {
	info := source.Info()
	labels := prometheus.Labels{"model_name": info.Name, "engine": "0"}
	s.vllmFinished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vllm:request_success_total", Help: "Choices that ended, by reason.", ConstLabels: labels,
	}, []string{"finished_reason"})
	s.registry.MustRegister(newVLLMCollector(source, labels), s.vllmFinished)
	s.histograms("vllm:", names{
		firstToken: "time_to_first_token_seconds", gap: "inter_token_latency_seconds",
		request: "e2e_request_latency_seconds", promptTokens: "request_prompt_tokens",
		outputTokens: "request_generation_tokens",
	}, labels)
}

// vllmReason is the word that vLLM has for a reason.
func vllmReason(why sparrow.Finish) string {
	switch why {
	case sparrow.FinishStop, sparrow.FinishToolCalls:
		return "stop"
	case sparrow.FinishLength:
		return "length"
	case sparrow.FinishCancelled:
		return "abort"
	}
	return "error"
}

// vllmCollector is the engine's snapshot under vLLM's names.
type vllmCollector struct {
	source   Source
	readings []reading
	cache    *prometheus.Desc
	places   *prometheus.Desc
}

func newVLLMCollector(source Source, labels prometheus.Labels) *vllmCollector {
	gauge := func(name, help string, of func(*snapshot) float64) reading {
		return reading{prometheus.NewDesc("vllm:"+name, help, nil, labels), prometheus.GaugeValue, of}
	}
	counter := func(name, help string, of func(*sparrow.Stats) int64) reading {
		r := gauge(name, help, func(s *snapshot) float64 { return float64(of(&s.stats)) })
		r.kind = prometheus.CounterValue
		return r
	}
	return &vllmCollector{
		source: source,
		readings: []reading{
			gauge("num_requests_running", "Sequences in the batch.", func(s *snapshot) float64 {
				return float64(s.stats.Running)
			}),
			gauge("num_requests_waiting", "Sequences in the queue.", func(s *snapshot) float64 {
				return float64(s.stats.Waiting)
			}),
			gauge("kv_cache_usage_perc", "Share of cache pages in use, 0 to 1.", (*snapshot).usage),
			counter("num_preemptions_total", "Preemptions.", func(s *sparrow.Stats) int64 { return s.Preempted }),
			counter("prompt_tokens_total", "Prompt tokens.", func(s *sparrow.Stats) int64 { return s.PromptTokens }),
			counter("generation_tokens_total", "Tokens generated.", func(s *sparrow.Stats) int64 {
				return s.OutputTokens
			}),
			counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
				func(s *sparrow.Stats) int64 { return s.KV.PromptTokens }),
			counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
				func(s *sparrow.Stats) int64 { return s.KV.ReusedTokens }),
			counter("spec_decode_num_drafts_total", "Sequences whose drafts a step verified.",
				func(s *sparrow.Stats) int64 { return s.Verified }),
			counter("spec_decode_num_draft_tokens_total", "Tokens drafted.", func(s *sparrow.Stats) int64 {
				return s.Drafted
			}),
			counter("spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.",
				func(s *sparrow.Stats) int64 { return s.Accepted }),
		},
		cache: prometheus.NewDesc("vllm:cache_config_info", "Always 1; the labels are the sizes of the cache.",
			[]string{"block_size", "num_gpu_blocks"}, labels),
		places: prometheus.NewDesc("vllm:spec_decode_num_accepted_tokens_per_pos_total",
			"Drafted tokens that were accepted, by their place in the chain from 0.", []string{"position"}, labels),
	}
}

// Describe names every metric.
func (c *vllmCollector) Describe(out chan<- *prometheus.Desc) {
	for _, r := range c.readings {
		out <- r.desc
	}
	out <- c.cache
	out <- c.places
}

// Collect reads the engine once.
func (c *vllmCollector) Collect(out chan<- prometheus.Metric) {
	now := &snapshot{c.source.Info(), c.source.Stats()}
	for _, r := range c.readings {
		out <- prometheus.MustNewConstMetric(r.desc, r.kind, r.of(now))
	}
	out <- prometheus.MustNewConstMetric(c.cache, prometheus.GaugeValue, 1, strconv.Itoa(now.info.PageTokens),
		strconv.Itoa(now.info.Pages))
	for i, n := range now.stats.Drafts {
		out <- prometheus.MustNewConstMetric(c.places, prometheus.CounterValue, float64(n.Right), strconv.Itoa(i))
	}
}
