package metric

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/model"
	"sparrow/internal/spec"
	"sparrow/plan"
)

type source struct {
	info  sparrow.Info
	stats sparrow.Stats
}

func (s *source) Info() sparrow.Info   { return s.info }
func (s *source) Stats() sparrow.Stats { return s.stats }

// busy returns an engine whose counters all have different values.
func busy() *source {
	k := kv.Stats{Pages: 100, Free: 70, Cached: 5, Used: 25, PromptTokens: 700, ReusedTokens: 128, Evictions: 3,
		Windows: 33, WindowsFree: 10, WindowsIdle: 2, WindowEvictions: 34}
	k.Stops[prefix.StopDifferent] = 6
	return &source{
		info: sparrow.Info{Name: "m", Family: "deepseek_v32", PageTokens: 64, Pages: 100, Kernels: "cpu",
			Config: plan.Config{Prefill: plan.SparseFlat, Decode: plan.SparseBlock},
			Memory: sparrow.Memory{Weights: 45, Cache: 46, States: 47, Arena: 48, Scratch: 49, Device: 50}},
		stats: sparrow.Stats{
			Running: 2, Waiting: 9, KV: k, Requests: 11, Finished: 7, Aborted: 1, Failed: 4, Refused: 8, Steps: 40,
			Overlapped: 38, Between: 53, Unused: 39,
			Preempted: 13, PromptTokens: 701, OutputTokens: 302, Drafted: 20, Accepted: 15, Verified: 21,
			VerifiedTokens: 36, DraftsEnded: 22, DraftsFailed: 23,
			Drafts:      [spec.MaxDrafts]sparrow.DraftCount{{Judged: 24, Right: 14}, {Judged: 12, Right: 10}},
			Conversions: 16, Slices: 17, Tables: model.TableUse{Bytes: 61, RowsRead: 62, BytesRead: 63},
			Busy: 51 * time.Second, Faults: 52,
			Graphs: sparrow.GraphCount{Captured: 41, Replayed: 42, Failed: 43, Bytes: 44},
			Plans: []sparrow.PlanCount{{Row: plan.RowDecode, Form: plan.FormSparseMLA, Kernel: plan.SparseBlock,
				Steps: 18, Rows: 19}},
		},
	}
}

// The metrics include moves of experts only if the engine can move experts.
func TestExpertMoves(t *testing.T) {
	for _, moves := range []bool{false, true} {
		e := busy()
		e.info.MovesExperts, e.stats.Experts.Moved = moves, 54
		text := scrape(t, New(e, false))
		if got := strings.Contains(text, "\nsparrow_expert_moves_total 54\n"); got != moves {
			t.Errorf("moves %v: published %v", moves, got)
		}
	}
}

func scrape(t *testing.T, s *Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestScrapeShowsTheEngine(t *testing.T) {
	s := New(busy(), false)
	text := scrape(t, s)
	wantLines(t, text,
		`sparrow_requests_running 2`, `sparrow_requests_waiting 9`, `sparrow_kv_usage_ratio 0.25`,
		`sparrow_kv_page_tokens 64`, `sparrow_kv_pages{state="used"} 25`, `sparrow_kv_pages{state="cached"} 5`,
		`sparrow_kv_pages{state="free"} 70`, `sparrow_prefix_queried_tokens_total 700`,
		`sparrow_prefix_hit_tokens_total 128`, `sparrow_prefix_stops_total{reason="first difference"} 6`,
		`sparrow_prompt_tokens_total 701`, `sparrow_output_tokens_total 302`, `sparrow_draft_tokens_total 20`,
		`sparrow_draft_accepted_tokens_total 15`, `sparrow_draft_verifies_total 21`,
		`sparrow_draft_verify_tokens_total 36`, `sparrow_draft_judged_total{place="1"} 24`,
		`sparrow_draft_right_total{place="1"} 14`, `sparrow_draft_judged_total{place="2"} 12`,
		`sparrow_draft_right_total{place="7"} 0`, `sparrow_draft_off_total{reason="cost"} 22`,
		`sparrow_draft_off_total{reason="failed"} 23`, `sparrow_requests_total 11`,
		`sparrow_requests_ended_total{outcome="finished"} 7`, `sparrow_requests_ended_total{outcome="aborted"} 1`,
		`sparrow_requests_ended_total{outcome="failed"} 4`, `sparrow_requests_ended_total{outcome="refused"} 8`,
		`sparrow_steps_total 40`, `sparrow_steps_overlapped_total 38`, `sparrow_steps_between_total 53`, `sparrow_unused_tokens_total 39`,
		`sparrow_preemptions_total 13`, `sparrow_kv_evictions_total 3`,
		`sparrow_kv_window_pages 33`, `sparrow_kv_window_pages_used 21`, `sparrow_kv_window_evictions_total 34`,
		`sparrow_table_bytes 61`, `sparrow_table_rows_read_total 62`, `sparrow_table_read_bytes_total 63`,
		`sparrow_layout_conversions_total 16`, `sparrow_slices_total 17`,
		`sparrow_graphs_captured_total 41`, `sparrow_graphs_replayed_total 42`, `sparrow_graphs_failed_total 43`,
		`sparrow_device_memory_bytes{owner="weights"} 45`,
		`sparrow_device_memory_bytes{owner="cache"} 46`,
		`sparrow_device_memory_bytes{owner="states"} 47`,
		`sparrow_device_memory_bytes{owner="arena"} 48`,
		`sparrow_device_memory_bytes{owner="scratch"} 49`,
		`sparrow_device_memory_bytes{owner="graphs"} 44`,
		`sparrow_device_memory_total_bytes 50`,
		`sparrow_device_busy_seconds_total 51`,
		`sparrow_device_faults_total 52`,
		`sparrow_plan_segments_total{convert="none",form="sparse-mla",kernel="sparse-block",row="decode"} 18`,
		`sparrow_plan_rows_total{convert="none",form="sparse-mla",kernel="sparse-block",row="decode"} 19`,
		`sparrow_info{decode="sparse-block",family="deepseek_v32",kernels="cpu",layout="none",model="m",prefill="sparse-flat"} 1`,
	)
	if strings.Contains(text, "vllm:") {
		t.Error("names of vLLM without being asked")
	}
	if !strings.Contains(text, "go_goroutines") {
		t.Error("no metrics of the process")
	}
}

func TestScrapeShowsWhatWasObserved(t *testing.T) {
	for _, vllm := range []bool{false, true} {
		s := New(busy(), vllm)
		s.FirstToken(30 * time.Millisecond)
		s.Gap(40*time.Millisecond, 2)
		s.Request(2*time.Second, sparrow.Usage{PromptTokens: 64, CompletionTokens: 3})
		s.Finished(sparrow.FinishStop)
		s.Finished(sparrow.FinishLength)
		s.Finished(sparrow.FinishToolCalls)
		s.Finished(sparrow.FinishCancelled)
		s.Finished(sparrow.FinishError)
		s.HTTP("/v1/models", 200)
		s.Panic()
		text := scrape(t, s)
		wantLines(t, text,
			`sparrow_time_to_first_token_seconds_bucket{le="0.02"} 0`,
			`sparrow_time_to_first_token_seconds_bucket{le="0.04"} 1`,
			`sparrow_inter_token_seconds_bucket{le="0.01"} 0`, `sparrow_inter_token_seconds_bucket{le="0.025"} 2`,
			`sparrow_inter_token_seconds_sum 0.04`, `sparrow_request_seconds_sum 2`,
			`sparrow_request_prompt_tokens_sum 64`, `sparrow_request_output_tokens_sum 3`,
			`sparrow_choices_total{reason="length"} 1`, `sparrow_choices_total{reason="stop"} 1`,
			`sparrow_choices_total{reason="tool_calls"} 1`,
			`sparrow_http_requests_total{route="/v1/models",status="200"} 1`, `sparrow_http_panics_total 1`,
		)
		if !vllm {
			continue
		}
		wantLines(t, text,
			`vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 1`,
			`vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 2`,
			`vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 1`,
			`vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 64`,
			`vllm:request_generation_tokens_sum{engine="0",model_name="m"} 3`,
			`vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2`,
			`vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1`,
			`vllm:request_success_total{engine="0",finished_reason="error",model_name="m"} 1`,
		)
	}
}

func TestEveryReasonIsThereFromTheStart(t *testing.T) {
	text := scrape(t, New(busy(), true))
	for _, why := range []string{"stop", "length", "tool_calls", "cancelled", "error"} {
		wantLines(t, text, `sparrow_choices_total{reason="`+why+`"} 0`)
	}
	for _, why := range []string{"stop", "length", "abort", "error"} {
		wantLines(t, text, `vllm:request_success_total{engine="0",finished_reason="`+why+`",model_name="m"} 0`)
	}
}

func TestScrapeUnderTheNamesOfVLLM(t *testing.T) {
	text := scrape(t, New(busy(), true))
	wantLines(t, text,
		`vllm:num_requests_running{engine="0",model_name="m"} 2`,
		`vllm:num_requests_waiting{engine="0",model_name="m"} 9`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25`,
		`vllm:cache_config_info{block_size="64",engine="0",model_name="m",num_gpu_blocks="100"} 1`,
		`vllm:num_preemptions_total{engine="0",model_name="m"} 13`,
		`vllm:prompt_tokens_total{engine="0",model_name="m"} 701`,
		`vllm:generation_tokens_total{engine="0",model_name="m"} 302`,
		`vllm:prefix_cache_queries_total{engine="0",model_name="m"} 700`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="m"} 128`,
		`vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 20`,
		`vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 15`,
		`vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 21`,
		`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 10`,
	)
}

func TestAnEngineWithoutPagesUsesNone(t *testing.T) {
	wantLines(t, scrape(t, New(&source{}, false)), `sparrow_kv_usage_ratio 0`)
}
