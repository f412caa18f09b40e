// Package tree tests the structure of the repository, such as the import order of its packages.
package tree

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// order lists the packages of the module from top to bottom: a package may import those below it, never those above.
// Packages on one line do not import each other. docs/architecture.md describes each package, in the same order.
var order = []string{
	"internal/tree/testrun", // testrun imports no package of the module
	"cmd/sparrow cmd/simulate cmd/kernelc " +
		"cmd/dist examples/ask examples/batch internal/tree/plots internal/tree/width internal/tree/platforms",
	// These packages test programs of other projects with a server.
	"server/clienttest/matrix server/clienttest/cluster server/clienttest/agents",
	"server/hostile", // run by make torture
	"internal/calibrate",
	"verify internal/eval internal/bench/load " +
		"internal/bench/kernels internal/bench/model internal/sim/fleet internal/sim/script",
	"internal/bench/pause internal/bench/peak internal/bench/plot", // package peak starts its own workers
	"server",
	"server/internal/metric server/internal/page internal/otlp",
	"internal/batch",
	"examples",
	"internal/hub",
	"api/openai/client api/anthropic api/ollama api/sglang",
	"api/openai",
	"internal/wire",
	".",
	"internal/testkit/kept",
	"internal/device",
	"builtin engine",
	"toolcall",
	"chat",
	"internal/jinja",
	"grammar",
	"tokenizer",
	"internal/sched internal/spec",
	"internal/step",
	"internal/model/inspect",
	"internal/model/synth internal/model/estimate internal/sim/formula",
	"internal/model/family",
	"internal/model/dsa internal/model/v4 internal/model/v41 " +
		"internal/model/next internal/model/llamacpp internal/model/shard",
	"internal/model/spark",
	"internal/model/nn internal/model/spelling",
	"internal/model internal/model/placement",
	"internal/model/usage",
	"internal/model/config",
	"internal/model/engram",
	"internal/attn/mla internal/attn/dual internal/attn/hybrid",
	"internal/attn",
	"plan/explain",
	"plan/public",
	"plan",
	"internal/kv record",
	"internal/kv/event",
	"internal/kv/event/zmtp",
	"internal/kv/tier",
	"internal/kv/tier/resp",
	"internal/kv/prefix",
	"internal/bench/cuda internal/cuda/op",
	"internal/bench/harness",
	"internal/cuda/expect",
	"internal/cuda/compile",
	"kernel/cuda",
	"internal/cuda/image",
	"internal/cuda/cubin",
	"kernel/cpu kernel/ref internal/testkit/rounded " +
		"internal/testkit/pair internal/device/group internal/device/offload internal/cost/probe",
	"internal/pool internal/vec",
	"internal/device/host",
	"kernel",
	"sample weight",
	"weight/gguf",
	"layout",
	"internal/block",
	"internal/cost",
	"internal/textfile",
	"internal/filelock internal/footprint internal/jsonscan internal/mark internal/num internal/mmap",
	"internal/background internal/machine internal/numa " +
		"internal/pinned internal/process internal/sysmem internal/unit",
	"internal/sim/clock",
}

// testOnly lists packages that only tests may import.
var testOnly = []string{
	"engine/losttest", "engine/gputest", "internal/testkit", "internal/testkit/archive",
	"internal/testkit/astray", "internal/testkit/memnet", "internal/testkit/placed", "internal/testkit/planread",
	"internal/testkit/gpu", "internal/testkit/respserver", "internal/testkit/steps",
	"internal/testkit/strict", "internal/testkit/turns", "internal/testmodel", "internal/sim",
	"bench/compare", "internal/tree", "server/browsertest", "server/clienttest", "server/soak",
	"internal/testkit/await", "internal/testkit/cputime", "internal/testkit/heap",
	"internal/testkit/wiretable", "internal/testkit/launches", "internal/testkit/ops",
	"internal/testkit/plantable", "internal/testkit/table", "internal/testkit/testflag",
}

func TestImportsPointDown(t *testing.T) {
	level := map[string]int{}
	for i, line := range order {
		for _, p := range strings.Fields(line) {
			level[p] = i
		}
	}
	for _, p := range listPackages(t) {
		name := place(p.ImportPath)
		if slices.Contains(testOnly, name) {
			continue
		}
		from, known := level[name]
		if !known {
			t.Errorf("package %s has no place in the order; put it where its imports allow", name)
			continue
		}
		for _, imp := range p.Imports {
			if imp != "sparrow" && !strings.HasPrefix(imp, "sparrow/") {
				continue
			}
			to := place(imp)
			if slices.Contains(testOnly, to) {
				t.Errorf("%s imports %s, which is for tests", name, to)
			} else if below, ok := level[to]; ok && below <= from {
				t.Errorf("%s imports %s, which lies above or beside it", name, to)
			}
		}
	}
}

// docs/architecture.md lists every package, in the order of this test from top to bottom.
func TestThePageListsThePackages(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "## Packages")
	list, tests, _ := strings.Cut(list, "For tests only")
	inQuotes := regexp.MustCompile("`([a-z0-9/]+)`")
	var named []string
	for _, m := range inQuotes.FindAllStringSubmatch(list, -1) {
		named = append(named, m[1])
	}
	at := 0
	for _, line := range order {
		first := at
		for range strings.Fields(line) {
			at++
		}
		for _, p := range strings.Fields(line) {
			if p == "." {
				p = "sparrow"
			}
			if i := slices.Index(named, p); i < first || i >= at {
				t.Errorf("docs/architecture.md: package %s has place %d of its list, want one of %d to %d", p, i, first,
					at-1)
			}
		}
	}
	for _, p := range testOnly {
		if !strings.HasPrefix(p, "internal/testkit/") && !strings.Contains(tests, "`"+p+"`") {
			t.Errorf("docs/architecture.md: package %s is missing among those for tests", p)
		}
	}
}

// place returns a package's name as in order; the module's root is ".".
func place(path string) string {
	if path == "sparrow" {
		return "."
	}
	return strings.TrimPrefix(path, "sparrow/")
}

type listed struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "sparrow", "sparrow/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}
