package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/record"
	"sparrow/server"
)

// The selections and experts that a server sends equal those that verify compares with the independent implementation,
// for all rows of prompt and answer, all layers and every family. TestExact and TestV4Exact require them to be equal;
// here, where products may round to 17 bits, they are nearly equal.
func TestServedSelectionsAreVerified(t *testing.T) {
	for _, name := range []string{"deepseek_v32-1", "glm_moe_dsa-1", "deepseek_v4-1"} {
		t.Run(name, func(t *testing.T) {
			if name == "glm_moe_dsa-1" && !*testflag.Long {
				t.Skip("make long runs it: the rows of this family are recorded as those of DeepSeek-V3.2")
			}
			dir := "../testdata/oracle/" + name
			golden, err := ReadGolden(dir)
			if err != nil {
				t.Fatal(err)
			}
			g := &golden[slices.IndexFunc(golden, func(g Golden) bool { return g.Name == "long" })]
			src, err := family.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			m, err := src.Load(dev, nil)
			if err != nil {
				t.Fatal(err)
			}
			hw, err := plan.HardwareFor("cpu")
			if err != nil {
				t.Fatal(err)
			}
			p := plan.Policy{KV: "f32"}
			cfg, _, err := plan.Resolve(hw, m.Facts(), p)
			if err != nil {
				t.Fatal(err)
			}
			want, err := run(m, cfg, g, options{rows: true})
			if err != nil {
				t.Fatal(err)
			}
			c := compare(g, want, m.Config().Indexer.TopK, selectionRatios(&cfg.Model))
			if len(c.Overlap) == 0 || slices.Min(c.Overlap) < 0.99 {
				t.Fatalf("verify: selections overlap by %v with the golden ones", c.Overlap)
			}
			got := served(t, sparrow.Config{Model: dir, Kernels: "cpu", Workers: 1, CacheTokens: 2048, Policy: p}, g)
			if len(got) != len(want.chosen) || len(got) != len(g.Input)+len(g.Greedy)-1 {
				t.Fatalf("%d rows, want %d", len(got), len(want.chosen))
			}
			for i := range got {
				if !reflect.DeepEqual(got[i], want.chosen[i]) {
					t.Fatalf("row %d:\n%+v\nwant\n%+v", i, got[i], want.chosen[i])
				}
				if len(got[i].Layers) != m.Config().Layers {
					t.Fatalf("row %d has %d layers", i, len(got[i].Layers))
				}
			}
		})
	}
}

// served requests every row of a case from a server and returns the rows.
func served(t *testing.T, c sparrow.Config, g *Golden) []record.Row {
	t.Helper()
	e, err := sparrow.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	s, err := server.New(server.Adapt(e), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	n, cold := len(g.Greedy), 0.0
	body, err := json.Marshal(&openai.CompletionRequest{Prompt: openai.Prompt{Tokens: [][]int32{g.Input}},
		MaxTokens: &n, Options: openai.Options{Model: e.Info().Name, Temperature: &cold, IgnoreEOS: true,
			Sparrow: &openai.Extension{Experts: true,
				Selections: &openai.Selections{Tokens: openai.RecordedTokens{All: true}}}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(web.URL+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %.500s", r.StatusCode, err, text)
	}
	var answer openai.CompletionResponse
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Choices[0].Sparrow.Rows
}
