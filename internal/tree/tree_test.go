// Package tree holds the test that keeps the packages in their order.
package tree

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// order lists the packages of the module from top to bottom: a package may import those below it, never those above.
// Packages on one line do not import each other. docs/architecture.md describes each package.
var order = []string{
	"internal/tree/testrun", // imports nothing of the module
	"cmd/sparrow cmd/simulate cmd/kernelc cmd/dist examples/ask internal/tree/width internal/tree/platforms",
	// What others make, in front of servers.
	"server/clienttest/matrix server/clienttest/cluster server/clienttest/agents",
	"server/hostile sim/torture", // what make torture runs
	"verify eval bench/load bench/kernels bench/model sim/fleet sim/script",
	"bench/pause bench/peak bench/plot", // what benchmarks share; peak starts workers of its own
	"server",
	"server/metric server/page server/otlp",
	"server/batch",
	"examples",
	"hub",
	"api/openai/client api/anthropic api/ollama api/sglang",
	"api/openai",
	"api/wire",
	".",
	"sim",
	"internal/testkit/kept",
	"internal/device",
	"builtin engine",
	"toolcall",
	"chat",
	"chat/jinja",
	"grammar",
	"tokenizer",
	"sched spec",
	"step",
	"model/inspect model/synth model/estimate sim/formula",
	"model/family",
	"model/dsa model/v4 model/v41 model/next model/llamacpp model/shard",
	"model/nn model/spelling",
	"model model/placement",
	"model/usage",
	"model/config",
	"model/engram",
	"attn/mla attn/dual attn/hybrid",
	"attn",
	"plan/explain",
	"plan/public",
	"plan",
	"kv record",
	"kv/event",
	"kv/event/zmtp",
	"kv/tier",
	"kv/tier/resp",
	"kv/prefix",
	"kernel/cuda/bench kernel/cuda/op",
	"bench/harness",
	"kernel/cuda/expect",
	"kernel/cuda/compile",
	"kernel/cuda",
	"kernel/cuda/image",
	"kernel/cuda/cubin",
	"kernel/cpu kernel/ref kernel/rounded kernel/twin kernel/group kernel/offload cost/probe",
	"kernel/cpu/pool kernel/cpu/vec",
	"kernel/host",
	"kernel",
	"sample weight",
	"weight/gguf",
	"layout",
	"internal/block",
	"cost",
	"internal/textfile",
	"internal/filelock internal/footprint internal/jsonscan internal/mark internal/num internal/mmap",
	"internal/background internal/machine internal/numa internal/pinned internal/process internal/sysmem internal/unit",
	"sim/clock",
}

// testOnly lists packages that only tests may import.
var testOnly = []string{
	"engine/losttest", "engine/gputest", "internal/testkit", "internal/testkit/archive",
	"internal/testkit/memnet", "internal/testkit/placed",
	"internal/testkit/record",
	"internal/testkit/respserver", "internal/testkit/strict", "internal/testkit/turns", "internal/testmodel",
	"bench/compare", "internal/tree", "server/browsertest", "server/clienttest", "server/soak",
	"internal/testkit/await", "internal/testkit/cputime", "internal/testkit/heap",
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

// place is a package's name in the order; "." is the module's root.
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
