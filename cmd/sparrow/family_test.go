package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sparrow/plan"
)

// A model that --family names has the properties that its released config.json describes.
func TestFamiliesDescribeTheirReleases(t *testing.T) {
	described := func(flags ...string) (m plan.Model, shared []bool) {
		t.Helper()
		status, stdout, stderr := invoke(append([]string{"explain", "--json"}, flags...)...)
		var a struct {
			Config struct {
				Model  plan.Model `json:"model"`
				Shared []bool     `json:"shared"`
			} `json:"config"`
		}
		if err := json.Unmarshal([]byte(stdout), &a); err != nil || status != 0 {
			t.Fatalf("%s: status %d, %v: %s", strings.Join(flags, " "), status, err, stderr)
		}
		m, shared = a.Config.Model, a.Config.Shared
		m.Share = plan.LayerShare{} // names of released models do not state which layers share
		for n := len(m.Experts.Dense); n > 0 && !m.Experts.Dense[n-1]; n-- {
			m.Experts.Dense = m.Experts.Dense[:n-1] // layers that are not named have experts
		}
		return m, shared
	}
	for family, release := range map[string]string{"v3.2": "deepseek-v3.2", "glm-5": "glm-5", "glm-5.1": "glm-5.1",
		"glm-5.2": "glm-5.2", "v4-flash": "deepseek-v4-flash", "v4-pro": "deepseek-v4-pro",
		"v4-flash-0731": "deepseek-v4-flash-0731", "v4.1": "deepseek-v4.1-flash", "v3": "deepseek-v3",
		"r1": "deepseek-r1", "kimi-k2": "kimi-k2-instruct", "kimi-k2.5": "kimi-k2.5",
		"glm-5.3-flash": "glm-5.3-flash"} {
		text, err := os.ReadFile("../../internal/model/config/testdata/released/" + release + ".json")
		var r struct {
			Config json.RawMessage `json:"config"`
		}
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		dir := t.TempDir()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "config.json"), r.Config, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, shared := described("--family", family)
		want, wantShared := described("--model", dir)
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(shared, wantShared) {
			t.Errorf("%s is\n%+v, its release\n%+v; shared layers %v, %v", family, got, want, shared, wantShared)
		}
	}
}
