package metric

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sparrow"
)

// addVLLM adds the metrics that routers and dashboards for vLLM read, with vLLM's labels. The label engine is always 0.
func (s *Set) addVLLM(source Source) {
	info := source.Info()
	labels := prometheus.Labels{"model_name": info.Name, "engine": "0"}
	s.vllmFinished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vllm:request_success_total", Help: "Choices that ended, by reason.", ConstLabels: labels,
	}, []string{"finished_reason"})
	s.registry.MustRegister(&collector{source: source, prefix: "vllm:", labels: labels, write: (*snapshot).vllm},
		s.vllmFinished)
	s.histograms("vllm:", names{
		firstToken: "time_to_first_token_seconds", gap: "inter_token_latency_seconds",
		request: "e2e_request_latency_seconds", promptTokens: "request_prompt_tokens",
		outputTokens: "request_generation_tokens",
	}, labels)
}

// vllmReason returns vLLM's name of a finish reason.
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

// vllm sends the engine's metrics under vLLM's names.
func (s *snapshot) vllm() {
	stats := &s.stats
	s.gauge("num_requests_running", "Sequences in the batch.", stats.Running)
	s.gauge("num_requests_waiting", "Sequences in the queue.", stats.Waiting)
	s.usage("kv_cache_usage_perc", "Share of cache pages in use, 0 to 1.")
	s.counter("num_preemptions_total", "Preemptions.", stats.Preempted)
	s.counter("prompt_tokens_total", "Prompt tokens.", stats.PromptTokens)
	s.counter("generation_tokens_total", "Tokens generated.", stats.OutputTokens)
	s.counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.KV.PromptTokens)
	s.counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", stats.KV.ReusedTokens)
	s.counter("spec_decode_num_drafts_total", "Sequences whose drafts a step verified.", stats.Verified)
	s.counter("spec_decode_num_draft_tokens_total", "Tokens drafted.", stats.Drafted)
	s.counter("spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.", stats.Accepted)
	s.gauge("cache_config_info", "Always 1; the labels are the sizes of the cache.", 1,
		"block_size", strconv.Itoa(s.info.PageTokens), "num_gpu_blocks", strconv.Itoa(s.info.Pages))
	for i, n := range stats.Drafts {
		s.counter("spec_decode_num_accepted_tokens_per_pos_total",
			"Drafted tokens that were accepted, by their position in the chain from 0.", n.Right,
			"position", strconv.Itoa(i))
	}
}
