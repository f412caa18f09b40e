package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/testflag"
)

// For every released checkpoint, inspecting its folder, a dry run of its download and serving it agree: if one of them
// refuses the checkpoint, all refuse it with the same words, and none of them reads weights for that.
func TestCommandsAgreeOnReleases(t *testing.T) {
	files, err := filepath.Glob("../../internal/model/config/testdata/released/*.json")
	if err != nil || len(files) < 31 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	accepted, named := 0, maps.Clone(namesOfReleases)
	if !*testflag.Long { // one name of each family and type of weights
		maps.DeleteFunc(named, func(release, _ string) bool {
			return !slices.Contains([]string{"deepseek-v4-flash-base", "deepseek-v3.1", "glm-5-fp8", "glm-5.3-flash",
				"kimi-k2.5"}, release)
		})
	}
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
			status, losses, why := invoke("inspect", dir, "--json")
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
			served, _, against2 := invoke("serve", "--port", "0", "--model", dir)
			// serving never starts without weights
			if served != 1 || strings.Contains(against2, "safetensors") == refused {
				t.Errorf("inspect refuses: %v; serve: status %d, %s", refused, served, against2)
			}
			if !refused {
				accepted++
				if known := named[name]; known != "" {
					delete(named, name)
					if got, want := sizeOfRelease(t, known), parsedSize(t, losses); got != want {
						t.Errorf("inspect %s: %+v, its config.json %+v", known, got, want)
					}
				}
				if strings.Contains(losses, "run on the CPU alone (--kernels cpu)\"") {
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
	if accepted < 12 || len(named) > 0 {
		t.Errorf("%d releases are accepted; not those with the names %v", accepted, named)
	}
}

// namesOfReleases maps the name of a release to the file with its config.json; the named shape has the sizes in that
// file.
var namesOfReleases = map[string]string{"deepseek-v4-flash-base": "deepseek-ai/DeepSeek-V4-Flash-Base",
	"deepseek-v4-flash-dspark": "DeepSeek-V4-Flash-DSpark", "deepseek-r1": "DeepSeek-R1",
	"deepseek-v3.1": "DeepSeek-V3.1", "deepseek-v3.2-exp": "DeepSeek-V3.2-Exp", "glm-5-fp8": "zai-org/GLM-5-FP8",
	"glm-5": "GLM-5", "glm-5.2-fp8": "GLM-5.2-FP8", "glm-5.3": "GLM-5.3", "glm-5.3-flash": "GLM-5.3-Flash",
	"kimi-k2-instruct": "moonshotai/Kimi-K2-Instruct", "kimi-k2.5": "Kimi-K2-Thinking"}

// releaseSize holds the fields of `inspect --json` that must be equal for a name and for its config.json.
type releaseSize struct {
	Bytes  int64  `json:"total_bytes"`
	Format string `json:"format"`
}

func parsedSize(t *testing.T, stdout string) (s releaseSize) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func sizeOfRelease(t *testing.T, name string) releaseSize {
	t.Helper()
	status, stdout, stderr := invoke("inspect", name, "--json")
	if status != 0 {
		t.Fatalf("%s: %s", name, stderr)
	}
	return parsedSize(t, stdout)
}

func TestANameThatIsNoRelease(t *testing.T) {
	if status, _, stderr := invoke("inspect", "nvidia/DeepSeek-V3.2-NVFP5"); status == 0 ||
		!strings.Contains(stderr, "there is no such folder") {
		t.Errorf("a name that is not known: status %d, %s", status, stderr)
	} else if !strings.Contains(stderr, "'sparrow pull --dry-run nvidia/DeepSeek-V3.2-NVFP5', which reads its") {
		t.Errorf("no way to describe the model without its weights: %s", stderr)
	}
	for name, want := range map[string]string{ // copies whose types only the name states
		"sgl-project/DeepSeek-V4-Flash-FP8": "is not a known release of deepseek-ai; this is the built-in " +
			"description of deepseek-v4-flash with FP8 weights in blocks of 128 x 128. ",
		"unsloth/DeepSeek-V3.2": "description of deepseek-v3.2 with weights in the types of that release. ",
		"deepseek-v3.2-bf16":    "give 'sparrow pull --dry-run' the name with its owner",
		"zai-org/GLM-5-BF16":    "'sparrow pull --dry-run zai-org/GLM-5-BF16' reads it",
	} {
		machines := [][]string{nil}
		if strings.Contains(name, "V4-Flash") { // machines do not depend on the name; this model has the fewest tensors
			machines = [][]string{nil, {"--hw", "cpu,4T"}, {"--hw", "cpu,16G"}, {"--hw", "h200,2T"}}
		}
		for _, hw := range machines {
			status, stdout, stderr := invoke(append([]string{"inspect", name}, hw...)...)
			if status != 0 || !strings.HasPrefix(stdout, "sizes are assumed: "+name) ||
				!strings.Contains(stdout, want) {
				t.Errorf("inspect %s %v: status %d, %s%s", name, hw, status, stdout, stderr)
			}
		}
	}
	for _, name := range []string{"deepseek-ai/DeepSeek-V4-Flash-Base", "zai-org/GLM-5.1-FP8", "glm-5-fp8", "v32-tiny",
		"moonshotai/Kimi-K2-Thinking"} {
		src, shape, assumed, err := inspected(name)
		if err != nil || !shape || assumed != "" {
			t.Fatalf("inspect %s: a shape %v, %q, %v", name, shape, assumed, err)
		}
		src.Close()
	}
}
