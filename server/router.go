package server

import (
	"fmt"
	"net/http"
	"time"

	"sparrow/api/openai"
)

// Headers of llm-d's gateway: an objective, whose priority is in Options.Objectives, and the flow of the request.
const (
	objectiveHeader = "X-Llm-D-Inference-Objective"
	fairnessHeader  = "X-Llm-D-Inference-Fairness-Id"
)

// routerAPI implements the endpoints that routers of llm-d, vLLM and SGLang use.
type routerAPI struct{ *service }

// rendered is a prompt as token ids, in vLLM's format.
type rendered struct {
	RequestID string  `json:"request_id"`
	Model     string  `json:"model"`
	TokenIDs  []int32 `json:"token_ids"`
}

func (s routerAPI) rendered(id string, ids []int32) rendered {
	if ids == nil {
		ids = []int32{}
	}
	return rendered{RequestID: id, Model: s.info.Name, TokenIDs: ids}
}

// renderChat handles POST /v1/chat/completions/render: it returns the token ids of a chat's prompt, by which routers
// find the server that has its prefix cached.
func (s routerAPI) renderChat(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeChat)
	if err != nil {
		return err
	}
	if err := s.checkModel(req.Model); err != nil {
		return err
	}
	s.fitEffort(w, exchangeOf(r), req)
	ids, err := s.engine.EncodeChat(conversation(req), false)
	if err != nil {
		return renameField(err, req)
	}
	return s.respond(w, http.StatusOK, s.rendered("chatcmpl-"+exchangeOf(r).id, ids))
}

// renderCompletion handles POST /v1/completions/render: it returns the token ids of a completion's prompts.
func (s routerAPI) renderCompletion(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeCompletion)
	if err != nil {
		return err
	}
	if err := s.checkModel(req.Model); err != nil {
		return err
	}
	x := exchangeOf(r)
	list := make([]rendered, 0, req.Prompt.Len())
	add := func(ids []int32) {
		list = append(list, s.rendered("cmpl-"+promptID(x.id, len(list), req.Prompt.Len()), ids))
	}
	for _, text := range req.Prompt.Texts {
		ids, err := s.engine.Encode(text, !plainPrompts(req))
		if err != nil {
			return err
		}
		add(ids)
	}
	for i, ids := range req.Prompt.Tokens {
		if err := s.checkIDs(fmt.Sprintf("prompt[%d]", i), ids); err != nil {
			return err
		}
		add(ids)
	}
	return s.respond(w, http.StatusOK, list)
}

// serverInfo handles GET /server_info and /get_server_info with the fields that routers read: names, and sizes for load
// balancing.
func (s routerAPI) serverInfo(w http.ResponseWriter, _ *http.Request) error {
	i := &s.info
	return s.respond(w, http.StatusOK, struct {
		ModelID       string `json:"model_id"`
		ModelPath     string `json:"model_path"`
		Served        string `json:"served_model_name"`
		Version       string `json:"version"`
		Engine        string `json:"engine"`
		Family        string `json:"model_type"`
		DPSize        int    `json:"dp_size"`
		TPSize        int    `json:"tp_size"`
		ContextLength int    `json:"context_length"`
		MaxTokens     int    `json:"max_total_tokens"`
		MaxNumTokens  int    `json:"max_total_num_tokens"`
		MaxPrefill    int    `json:"max_prefill_tokens"`
		MaxRunning    int    `json:"max_running_requests"`
		MaxNumReqs    int    `json:"max_num_reqs"`
		MaxBatch      int    `json:"max_batch_size"`
		MaxQueued     int    `json:"max_queued_requests"`
		PageSize      int    `json:"page_size"`
	}{i.Name, i.Name, i.Name, s.options.Version, "sparrow", i.Family, 1, 1, i.ContextTokens, i.CacheTokens,
		i.CacheTokens, i.StepTokens, i.MaxRunning, i.MaxRunning, i.MaxRunning, i.MaxQueue, i.PageTokens})
}

// modelInfo handles GET /model_info and /get_model_info.
func (s routerAPI) modelInfo(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, struct {
		ModelPath     string   `json:"model_path"`
		TokenizerPath string   `json:"tokenizer_path"`
		Served        string   `json:"served_model_name"`
		Family        string   `json:"model_type"`
		Architectures []string `json:"architectures"`
		IsGeneration  bool     `json:"is_generation"`
		Images        bool     `json:"has_image_understanding"`
		Audio         bool     `json:"has_audio_understanding"`
	}{s.info.Name, s.info.Name, s.info.Name, s.info.Family, []string{}, true, false, false})
}

// loadOf is the load of the engine in SGLang's format. Sequences count as requests.
type loadOf struct {
	Rank       int     `json:"dp_rank"`
	Running    int     `json:"num_running_reqs"`
	Waiting    int     `json:"num_waiting_reqs"`
	Total      int     `json:"num_total_reqs"`
	UsedTokens int     `json:"num_used_tokens"`
	MaxTokens  int     `json:"max_total_num_tokens"`
	Usage      float64 `json:"token_usage"`
	HitRate    float64 `json:"cache_hit_rate"`
	MaxRunning int     `json:"max_running_requests"`
}

func (s routerAPI) loadNow() loadOf {
	stats := s.engine.Stats()
	l := loadOf{Running: stats.Running, Waiting: stats.Waiting, Total: stats.Running + stats.Waiting,
		UsedTokens: stats.KV.Used * s.info.PageTokens, MaxTokens: s.info.CacheTokens, MaxRunning: s.info.MaxRunning}
	if stats.KV.Pages > 0 {
		l.Usage = stats.KV.Usage()
	}
	if stats.KV.PromptTokens > 0 {
		l.HitRate = float64(stats.KV.ReusedTokens) / float64(stats.KV.PromptTokens)
	}
	return l
}

// loads handles GET /v1/loads. The time is text, because routers do not accept a number.
func (s routerAPI) loads(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, struct {
		Timestamp time.Time `json:"timestamp"`
		Version   string    `json:"version"`
		Ranks     int       `json:"dp_rank_count"`
		Loads     []loadOf  `json:"loads"`
	}{s.now().UTC(), s.options.Version, 1, []loadOf{s.loadNow()}})
}

// load handles GET /get_load, the older form of /v1/loads.
func (s routerAPI) load(w http.ResponseWriter, _ *http.Request) error {
	type rank struct {
		Rank    int `json:"dp_rank"`
		Total   int `json:"num_reqs"`
		Waiting int `json:"num_waiting_reqs"`
		Tokens  int `json:"num_tokens"`
	}
	l := s.loadNow()
	return s.respond(w, http.StatusOK, []rank{{0, l.Total, l.Waiting, l.UsedTokens}})
}
