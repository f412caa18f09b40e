package clienttest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sparrow"
	"sparrow/plan"
	"sparrow/record"
	"sparrow/server"
)

// postJSON sends a body, decodes the response, and returns the status.
func (s *service) postJSON(t *testing.T, path, body string, into any) int {
	t.Helper()
	r, err := http.Post(s.url()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", r.Status, text, err)
	}
	return r.StatusCode
}

func int32s(t *testing.T, text string) (list []int32) {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(b) > 0; b = b[4:] {
		list = append(list, int32(binary.LittleEndian.Uint32(b)))
	}
	return list
}

// native holds the fields of a response of /generate that a trainer reads.
type native struct {
	Text      string  `json:"text"`
	OutputIDs []int32 `json:"output_ids"`
	Meta      struct {
		FinishReason struct {
			Type   string `json:"type"`
			Length int    `json:"length"`
		} `json:"finish_reason"`
		PromptTokens int      `json:"prompt_tokens"`
		Cached       int      `json:"cached_tokens"`
		Input        [][3]any `json:"input_token_logprobs"`
		Output       [][3]any `json:"output_token_logprobs"`
		Experts      string   `json:"routed_experts"`
		TopK         string   `json:"indexer_topk"`
		Layers       int      `json:"indexer_topk_num_layers"`
	} `json:"meta_info"`
}

// SGLang's endpoint accepts and returns token ids. It also returns arrays of the experts and keys that rows chose, and
// these agree with our own records of the same tokens.
func TestTrainersGetWhatRowsChose(t *testing.T) {
	s := start(t, sparrow.Config{Policy: plan.Policy{Deterministic: true}}, server.Options{})
	info := s.engine.Info()
	shape := info.Config.Model.Choices()
	prompt := make([]int32, 300) // the prompt is longer than the number of keys that a row selects
	for i := range prompt {
		prompt[i] = int32(10 + i*7%400)
	}
	ids, _ := json.Marshal(prompt)
	var got native
	for range 2 { // the second request does not use the cached pages of the first
		got = native{}
		if status := s.postJSON(t, "/generate", fmt.Sprintf(`{"input_ids": %s, "sampling_params": {"max_new_tokens": 5,
			"temperature": 0, "ignore_eos": true, "top_k": -1}, "return_logprob": true, "logprob_start_len": 0,
			"return_routed_experts": true, "return_indexer_topk": true, "rid": "x"}`, ids), &got); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	rows := len(prompt) + 5 - 1
	if len(got.OutputIDs) != 5 || got.Meta.FinishReason.Type != "length" || got.Meta.FinishReason.Length != 5 ||
		got.Meta.PromptTokens != 300 || got.Meta.Cached != 0 || len(got.Meta.Input) != 300 ||
		len(got.Meta.Output) != 5 || got.Meta.Input[0][0] != nil || got.Meta.Output[4][1] != float64(got.OutputIDs[4]) {
		t.Errorf("%+v", got.Meta)
	}
	topK := int32s(t, got.Meta.TopK)
	layers := got.Meta.Layers
	if layers == 0 || len(topK)%(rows*layers) != 0 {
		t.Fatalf("%d numbers of %d rows and %d layers", len(topK), rows, layers)
	}
	width := len(topK) / rows / layers

	var own struct {
		Choices []struct {
			Sparrow *record.Rows `json:"sparrow"`
		} `json:"choices"`
	}
	whole, _ := json.Marshal(append(prompt, got.OutputIDs...))
	s.postJSON(t, "/v1/completions", fmt.Sprintf(`{"model": "sparrow-tiny", "prompt": %s, "max_tokens": 1, "cache_salt":
		"own", "sparrow": {"selections": {"tokens": "all"}, "experts": true}}`, whole), &own)
	ours, n, w, err := own.Choices[0].Sparrow.SelectionArray(&shape, rows)
	if err != nil || n != layers || w != width || !slices.Equal(ours, topK) {
		t.Errorf("selections differ from our own record: %d of %d layers, %d of %d keys, %v", n, layers, w, width, err)
	}
	last := topK[len(topK)-width:]
	if last[0] < 0 || !slices.IsSorted(last[:min(width, shape.TopK)]) || slices.Max(last) >= int32(rows) {
		t.Errorf("the last row selects %v", last)
	}
	experts := int32s(t, got.Meta.Experts)
	oursToo, err := own.Choices[0].Sparrow.ExpertArray(&shape, rows)
	if err != nil || len(experts) != rows*len(shape.Layers)*shape.Chosen || !slices.Equal(oursToo, experts) {
		t.Errorf("experts differ from our own record: %d numbers, %v", len(experts), err)
	}

	var part native
	s.postJSON(t, "/generate", fmt.Sprintf(`{"input_ids": %s, "sampling_params": {"max_new_tokens": 5, "temperature": 0,
		"ignore_eos": true}, "return_routed_experts": true, "routed_experts_start_len": 300}`, ids), &part)
	if tail := int32s(t, part.Meta.Experts); !slices.Equal(tail, experts[300*len(shape.Layers)*shape.Chosen:]) {
		t.Errorf("%d numbers from row 300 on", len(tail))
	}
}

// Completions and chats return the chosen experts in the fields of vLLM and of SGLang.
func TestTrainersGetExpertsOfCompletions(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	info := s.engine.Info()
	shape := info.Config.Model.Choices()
	for path, prompt := range map[string]string{"/v1/completions": `"prompt": "What is your name?"`,
		"/v1/chat/completions": `"messages": [{"role": "user", "content": "What is your name?"}]`} {
		var got struct {
			PromptTokenIDs []int32 `json:"prompt_token_ids"`
			Choices        []struct {
				TokenIDs       []int32         `json:"token_ids"`
				PromptTokenIDs []int32         `json:"prompt_token_ids"`
				RoutedExperts  []byte          `json:"routed_experts"`
				Sparrow        json.RawMessage `json:"sparrow"`
			}
			SGLExt struct {
				RoutedExperts string `json:"routed_experts"`
			} `json:"sglext"`
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
		}
		if status := s.postJSON(t, path, `{"model": "sparrow-tiny", "max_tokens": 4, "ignore_eos": true,
			"return_token_ids": true, "return_routed_experts": true, `+prompt+`}`, &got); status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		c := got.Choices[0]
		ids := append(got.PromptTokenIDs, c.PromptTokenIDs...)
		if len(ids) != got.Usage.Prompt || len(c.TokenIDs) != 4 || c.Sparrow != nil {
			t.Errorf("%s: %d ids of the prompt, %d of the answer, %s", path, len(ids), len(c.TokenIDs), c.Sparrow)
		}
		rows := len(ids) + 3
		want := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", rows,
			len(shape.Layers), shape.Chosen)
		head := 10 + int(binary.LittleEndian.Uint16(c.RoutedExperts[8:]))
		if string(c.RoutedExperts[:8]) != "\x93NUMPY\x01\x00" || head%64 != 0 ||
			strings.TrimSpace(string(c.RoutedExperts[10:head])) != want {
			t.Errorf("%s: %q, want %s", path, c.RoutedExperts[:head], want)
		}
		array := int32s(t, got.SGLExt.RoutedExperts)
		if len(array) != rows*len(shape.Layers)*shape.Chosen || len(c.RoutedExperts)-head != len(array) {
			t.Fatalf("%s: %d and %d numbers", path, len(array), len(c.RoutedExperts)-head)
		}
		for i, x := range array {
			if x != int32(c.RoutedExperts[head+i]) {
				t.Fatalf("%s: number %d is %d and %d", path, i, x, c.RoutedExperts[head+i])
			}
		}
	}
	for more, says := range map[string]string{
		`"return_token_ids": true, "stream": true`:                                     "omit stream",
		`"return_routed_experts": true, "n": 2`:                                        "one choice",
		`"return_routed_experts": true, "max_tokens": 9, "sparrow": {"experts": true}`: "one of them",
	} {
		var got struct {
			Error struct{ Message string } `json:"error"`
		}
		body := `{"model": "sparrow-tiny", "prompt": "a", ` + more + `}`
		if status := s.postJSON(t, "/v1/completions", body, &got); status != 400 ||
			!strings.Contains(got.Error.Message, says) {
			t.Errorf("%s: %d %s", body, status, got.Error.Message)
		}
	}
}

func TestWhatGenerateRefuses(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	for body, says := range map[string]string{
		`{"sampling_params": {}}`:                              "input_ids",
		`{"text": "a", "input_ids": [1]}`:                      "one of them",
		`{"input_ids": [[1], [2]]}`:                            "several prompts",
		`{"text": "a", "stream": true}`:                        "/v1/completions",
		`{"text": "a", "sampling_params": {"temperature": 9}}`: "temperature",
		`{"text": "a", "model": "other"}`:                      "not served",
	} {
		var got struct {
			Error struct{ Message string } `json:"error"`
		}
		if status := s.postJSON(t, "/generate", body, &got); status < 400 ||
			!strings.Contains(got.Error.Message, says) {
			t.Errorf("%s: %d %s", body, status, got.Error.Message)
		}
	}
	var got native
	if s.postJSON(t, "/generate", `{"text": "What", "sampling_params": {"max_new_tokens": 3}}`, &got); got.Text == "" {
		t.Errorf("%+v", got)
	}
}
