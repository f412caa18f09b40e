package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sparrow/plan"
	"sparrow/plan/explain"
	"sparrow/plan/public"
)

// explained serves a fake engine with a real configuration, and returns its address.
func explained(t *testing.T) string {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ModelFor("glm-5")
	if err != nil {
		t.Fatal(err)
	}
	e := newFake(saying("x"))
	if e.info.Config, _, err = plan.Resolve(hw, m, plan.Policy{}); err != nil {
		t.Fatal(err)
	}
	_, hs := start(t, e, Options{})
	return hs.URL + "/debug/explain"
}

// The HTTP endpoint returns the planner's own result for the same input.
func TestExplainEqualsThePlanner(t *testing.T) {
	url := explained(t)
	hw, err := plan.HardwareFor("sm100")
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ModelFor("deepseek_v32")
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan.ParseBatch("mixed:extend:3000/decode:4000")
	if err != nil {
		t.Fatal(err)
	}
	want, err := explain.Ask{Model: m, Hardware: hw, Batch: &b, Question: explain.Question{Layer: 2},
		Public: &public.Policy{KV: "fp8"}}.Answer()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := post(t, url, `{"family":"deepseek_v32","catalog":"public","hw":"sm100","kv":"fp8","layer":2,
		"batch":"mixed:extend:3000/decode:4000"}`)
	if got.status != http.StatusOK || compactJSON(t, got.body) != compactJSON(t, string(text)) {
		t.Errorf("%d %.2000s\nwant %.2000s", got.status, got.body, text)
	}
}

// For a GPU, the endpoint uses the defaults of a server on a GPU, such as a cache in FP8, as the command line does.
func TestExplainHasTheDefaultsOfAGPU(t *testing.T) {
	url := explained(t)
	for body, want := range map[string]plan.Layout{
		`{"hw":"h200"}`:                     plan.FP8Row656,
		`{"hw":"h200","kv":"bf16"}`:         plan.BF16Row1152,
		`{"hw":"cpu"}`:                      plan.BF16Row1152,
		`{"hw":"h200","family":"v4-flash"}`: plan.V4Row584,
		`{"hw":"h200","catalog":"public"}`:  plan.BF16Row1152,
	} {
		got := post(t, url, body)
		var a explain.Answer
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || a.Config.Layout != want {
			t.Errorf("%s: %d, %v, layout %v, want %v", body, got.status, err, a.Config.Layout, want)
		}
	}
}

func compactJSON(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	out, err := json.Marshal(v) // marshalling sorts the members
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// If the request names no model family and no hardware, the plan for the served model is returned.
func TestExplainOfTheServedModel(t *testing.T) {
	got := post(t, explained(t), `{"batch":"decode:100"}`)
	var a struct {
		Config struct {
			Model    struct{ Family string }
			Hardware struct{ Arch string }
		}
		Plan struct{ Mode string }
	}
	if err := json.Unmarshal([]byte(got.body), &a); err != nil {
		t.Fatalf("%v: %.300s", err, got.body)
	}
	if a.Config.Model.Family != "glm_moe_dsa" || a.Config.Hardware.Arch != "cpu" || a.Plan.Mode != "decode" {
		t.Errorf("%+v", a)
	}
}

func TestExplainRefusals(t *testing.T) {
	url := explained(t)
	for body, want := range map[string][2]string{
		`{"batch":"walk:3"}`:           {"batch", "extend:LEN"},
		`{"hw":"abacus"}`:              {"hw", "a device such as h200; try hw cpu"},
		`{"family":"gpt"}`:             {"family", "deepseek_v32"},
		`{"catalog":"secret"}`:         {"catalog", "public"},
		`{"dense":"maybe"}`:            {"dense", "on"},
		`{"kv":"int3"}`:                {"", "E05"},
		`{"layer":999}`:                {"layer", "layers 0 to"},
		`{"batch":"decode:2000x9"}`:    {"batch", "at most 1024 requests"},
		`{"batch":"extend:9000000"}`:   {"batch", "4194304 tokens"},
		`{"batch":"decode:1000000"}`:   {"", "context holds"},
		`{"heads":0}`:                  {"heads", "[1, 1024]"},
		`{"batch":7}`:                  {"batch", "a string"},
		`{"batch":"decode:9","x":[1}`:  {"", ""},
		`{"draft_tokens":99,"hw":"x"}`: {"draft_tokens", "[0, 16]"},
	} {
		got := post(t, url, body)
		var e struct {
			Error struct {
				Message string
				Param   *string
			}
		}
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %.300s", body, got.status, got.body)
			continue
		}
		if param := e.Error.Param; want[0] != "" && (param == nil || *param != want[0]) ||
			!strings.Contains(e.Error.Message, want[1]) {
			t.Errorf("%s: %.400s, want %v", body, got.body, want)
		}
	}
}

func TestExplainChoices(t *testing.T) {
	got := get(t, explained(t))
	var c struct {
		Model              string
		Families, Hardware []string
		Catalogs           []string
		BatchSyntax        string `json:"batch_syntax"`
		IndexTopK          int    `json:"index_topk"`
		Devices            map[string][]string
	}
	if err := json.Unmarshal([]byte(got.body), &c); err != nil {
		t.Fatal(err)
	}
	if c.Model != "sparrow-test" || len(c.Families) < 4 || len(c.Hardware) < 10 || len(c.Catalogs) != 2 ||
		c.BatchSyntax != plan.BatchSyntax || c.IndexTopK == 0 || !slices.Contains(c.Devices["sm90"], "h200") {
		t.Errorf("%+v", c)
	}
}
