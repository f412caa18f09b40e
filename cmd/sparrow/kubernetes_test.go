package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/builtin"
)

// The Kubernetes manifests start commands that exist, and agree in ports, times and names. `make cluster` checks them
// against the schemas.
func TestKubernetesManifests(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../deploy/kubernetes/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	servers, picker, monitor := read("sparrow.yaml"), read("llm-d.yaml"), read("monitoring.yaml")
	all := func(text, pattern string) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		return found
	}
	one := func(text, pattern string) string {
		t.Helper()
		found := all(text, pattern)
		if len(found) != 1 {
			t.Fatalf("%q is there %d times, want once", pattern, len(found))
		}
		return found[0]
	}

	words := append([]string{"serve"}, all(servers, `(?m)^            - (--\S+)$`)...)
	checkInvocation(t, "sparrow.yaml", words)
	flag := func(name string) string {
		t.Helper()
		return one(strings.Join(words, "\n"), `(?m)^--`+name+`=(\S+)$`)
	}
	port := func(name string) string {
		t.Helper()
		return one(servers, `name: `+name+`, containerPort: (\d+)`)
	}
	for what, pair := range map[string][2]string{
		"the port":                    {flag("port"), port("http")},
		"the pool's port":             {one(picker, `(?m)^    - number: (\d+)`), port("http")},
		"where prompts are rendered":  {one(picker, `url: http://sparrow-any:(\d+)`), port("http")},
		"the port of events":          {strings.TrimPrefix(flag("kv-events"), "tcp://*:"), port("kv-events")},
		"the port of replays":         {strings.TrimPrefix(flag("kv-events-replay"), "tcp://*:"), port("kv-replay")},
		"the picker's port of events": {one(picker, `socketPort: (\d+)`), port("kv-events")},
		"its port of replays":         {one(picker, `replaySocketPort: (\d+)`), port("kv-replay")},
		"the picker's own port": {one(picker, `endpointPickerRef:\n.*\n    port: \{number: (\d+)`),
			one(picker, `name: grpc, containerPort: (\d+)`)},
		"the model's name": {one(picker, `modelName: (\S+)`), builtin.Name},
		"a page":           {one(picker, `blockSize: (\d+)`), "64"},
		"metrics":          {one(monitor, `port: (\S+)`), "http"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %s here and %s there", what, pair[0], pair[1])
		}
	}

	names := all(picker, `kind: InferenceObjective\nmetadata:\n  name: (\S+)`)
	priorities := all(picker, `(?m)^  priority: (\S+)`)
	var objectives []string
	for i := range names {
		objectives = append(objectives, names[i]+"="+priorities[i])
	}
	if known := all(servers, `--objective=(\S+)`); !slices.Equal(objectives, known) || len(known) == 0 {
		t.Errorf("the picker knows the objectives %v, the servers %v", objectives, known)
	}

	seconds := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	delay, grace := seconds(flag("drain-delay")), seconds(flag("grace"))
	if limit := seconds(one(servers, `terminationGracePeriodSeconds: (\d+)`) + "s"); limit <= delay+grace {
		t.Errorf("a pod may take %v to end, and %v of draining and %v for answers need more", limit, delay, grace)
	}
	if probe := seconds(one(servers, `readinessProbe:\n.*\n +periodSeconds: (\d+)`) + "s"); delay < 3*probe {
		t.Errorf("%v of draining are too little for a probe every %v", delay, probe)
	}
}
