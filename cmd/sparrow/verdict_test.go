package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For every released checkpoint, inspecting a folder, a dry run of a download and serving give the same result: if one
// of them refuses, all refuse with the same words, and none needs a weight for it.
func TestCommandsAgreeOnReleases(t *testing.T) {
	files, err := filepath.Glob("../../internal/model/config/testdata/released/*.json")
	if err != nil || len(files) < 31 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	accepted := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "verdicts" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var r struct {
				Config   json.RawMessage `json:"config"`
				ModelOpt json.RawMessage `json:"hf_quant_config"`
			}
			text, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			if err != nil {
				t.Fatal(err)
			}
			hub := map[string][]byte{"config.json": r.Config, "model.safetensors": []byte("x")}
			if r.ModelOpt != nil {
				hub["hf_quant_config.json"] = r.ModelOpt
			}
			dir := t.TempDir()
			for name, text := range hub {
				if name == "model.safetensors" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			status, losses, why := invoke("inspect", dir)
			prefix := "sparrow: inspect: config: " + filepath.Join(dir, "config.json") + ": "
			reason, refused := strings.CutPrefix(why, prefix)
			if refused == (status == 0) {
				t.Fatalf("inspect: status %d, %s", status, why)
			}
			startHub(t, hub)
			pulled, _, against := invoke("pull", "acme/tiny", "--dry-run")
			if strings.Contains(against, "sparrow cannot run") != refused || refused && pulled != 1 {
				t.Errorf("inspect refuses: %v; pull: status %d, %s", refused, pulled, against)
			}
			served, _, against2 := invoke("serve", "--model", dir)
			if served != 1 || strings.Contains(against2, "safetensors") == refused { // without weights it never starts
				t.Errorf("inspect refuses: %v; serve: status %d, %s", refused, served, against2)
			}
			if !refused {
				accepted++
				if strings.Contains(losses, "run on the CPU alone (--kernels cpu)\n") {
					if status, stdout, _ := invoke("inspect", dir, "--hw", "h200,4T"); status == 0 {
						t.Errorf("an H200 is promised for weights that it does not run: %s", stdout)
					}
				}
				return
			}
			reason, _, _ = strings.Cut(reason, ";")
			for _, text := range []string{against, against2} {
				if !strings.Contains(text, reason) {
					t.Errorf("%q lacks %q", text, reason)
				}
			}
		})
	}
	if accepted < 12 {
		t.Errorf("%d releases are accepted", accepted)
	}
}
