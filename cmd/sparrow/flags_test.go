package main

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/internal/bench/load"
	"sparrow/internal/eval"
	"sparrow/internal/spec"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// addFields adds the fields of a struct as text.
func addFields(all map[string]string, prefix string, v any) {
	x := reflect.ValueOf(v)
	for i := range x.NumField() {
		field := x.Type().Field(i)
		if !field.IsExported() || field.Name == "Policy" || field.Name == "Tiers" || field.Name == "Log" {
			continue
		}
		text := fmt.Sprintf("%+v", x.Field(i))
		switch x.Field(i).Kind() {
		case reflect.Pointer, reflect.Interface:
			text = fmt.Sprint(!x.Field(i).IsNil())
		case reflect.Slice:
			if x.Field(i).IsNil() {
				text = "nil"
			}
		}
		all[prefix+field.Name] = text
	}
}

// changed returns the fields whose text differs, with their new text.
func changed(before, now map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != before[name] {
			list = append(list, name+"="+now[name])
		}
	}
	return strings.Join(list, " ")
}

// selected returns the fields that arguments of serve select: those of the engine's configuration, of its policy and
// tiers, of the server's options and of the listener.
func selected(t *testing.T, args []string) map[string]string {
	t.Helper()
	var f serveFlags
	c := f.command()
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := f.listenFlags.check(c.Flags()); err != nil {
		t.Fatal(err)
	}
	o, err := f.options(c.Flags(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	o.Transfer.ID = strings.Repeat("*", len(o.Transfer.ID)) // a random name
	config, err := f.config()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	all := map[string]string{}
	add := func(prefix string, v any) { addFields(all, prefix, v) }
	add("", config)
	add("Policy.", config.Policy)
	add("Tiers.", config.Tiers)
	add("Server.", o)
	all["Listen"] = fmt.Sprintf("%q", []string{f.listenFlags.host, fmt.Sprint(f.port), f.socket, f.socketMode, f.cert,
		f.key})
	all["Batches"] = fmt.Sprintf("%s %d", f.batchDir, f.budget)
	all["Spans"] = fmt.Sprintf("%s %v %v %s", f.traceTo, f.traceSample, f.traceHeader, f.traceName)
	all["Events"] = fmt.Sprintf("%s %s %s", f.endpoint, f.replay, f.id)
	return all
}

// refused returns the error of flags of serve.
func refused(args []string) error {
	var f serveFlags
	c := f.command()
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	if err := f.listenFlags.check(c.Flags()); err != nil {
		return err
	}
	if _, err := f.options(c.Flags(), slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	_, err := f.config()
	if err == nil {
		err = f.tierFlags.effects(c.Flags())
	}
	if err == nil {
		_, err = f.spanFlags.open(nil)
	}
	if err == nil {
		_, err = f.eventFlags.open(nil)
	}
	if err == nil {
		_, err = requestMemory(f.requestMemory)
	}
	return err
}

// Flags of serve with wrong values, or without the flags that they need, are refused with a reason.
func TestFlagsOfServeAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--batch-budget 5G", "--batch-budget limits the folder of batches"},
		{"--batch-dir b --batch-budget x", "--batch-budget: "},
		{"--batch-dir b --batch-budget 1048575", "want at least 1M"},
		{"--batch-dir b --batch-budget 1M", ""},
		{"--store-bytes x", "--store-bytes: "},
		{"--weights-root w", "--weights-root is for administrators"},
		{"--api-keys nowhere", "--api-keys: "},
		{"--admin-keys nowhere", "--admin-keys: "},
		{"--tenant-limits nowhere", "--tenant-limits: "},
		{"--objective a", `--objective "a": want NAME=PRIORITY`},
		{"--objective =1", `--objective "=1"`},
		{"--objective a=1,a=2", `--objective "a=2"`},
		{"--watchdog -1s", "--watchdog -1s: want a positive time"},
		{"--rank-timeout -1s", "--rank-timeout -1s: want a positive time"},
		{"--max-stall soon", "--max-stall soon: want a time"},
		{"--max-stall -1ms", "--max-stall -1ms: want a time"},
		{"--self-test maybe", "self-test"},
		{"--control-tokens maybe", "--control-tokens maybe: want text or allow"},
		{"--dense maybe", "--dense: "},
		{"--split-keys 3", "--split-keys: "},
		{"--draft 99", "--draft: "},
		{"--record-bytes -2", "--record-bytes -2: want"},
		{"--record-bytes -1", ""},
		{"--host-cache x", "--host-cache: "},
		{"--host-cache 4096T", "of memory are available; choose less"},
		{"--disk-cache d --disk-cache-size x", "--disk-cache-size: "},
		{"--disk-cache-size 1G", "--disk-cache-size has no effect without --disk-cache"},
		{"--page-store http://h", "--page-store: "},
		{"--tier-wait 1s", "--tier-wait has no effect without --host-cache"},
		{"--host-cache 1M --tier-wait -1s", "--tier-wait is negative"},
		{"--role both", "--role both: want prefill or decode"},
		{"--role decode --transfer-from 10.0.0.1", "--transfer-from 10.0.0.1: want a network"},
		{"--role decode --transfer-host h", "--transfer-host has no effect without --role prefill"},
		{"--experts maybe", "--experts"},
		{"--gpu-memory x", "--gpu-memory: "},
		{"--gpu-memory 1048575", "--gpu-memory: "},
		{"--experts device --gpu-memory 1G", "--gpu-memory 1G limits the memory of experts"},
		{"--experts host --gpu-memory 1G", "--gpu-memory 1G limits the memory of experts"},
		{"--experts move --gpu-memory 1M", ""},
		{"--trace-sample 0.5", "--trace-sample applies to spans"},
		{"--trace-service s", "--trace-service applies to spans"},
		{"--trace-header a=b", "--trace-header applies to spans"},
		{"--trace-endpoint http://h --trace-sample 1.1", "--trace-sample is 1.1, want 0 to 1"},
		{"--trace-endpoint http://h --trace-sample -0.1", "--trace-sample is -0.1, want 0 to 1"},
		{"--trace-endpoint http://h --trace-header a", `--trace-header "a": want NAME=VALUE`},
		{"--trace-endpoint http://h --trace-header =b", `--trace-header "=b": want NAME=VALUE`},
		{"--trace-endpoint h", "--trace-endpoint"},
		{"--kv-events-id n", "--kv-events-replay and --kv-events-id need --kv-events"},
		{"--kv-events-replay tcp://*:1", "--kv-events-replay and --kv-events-id need --kv-events"},
		{"--kv-events h --kv-events-id a@b", `--kv-events-id "a@b": want a name without @`},
		{"--kv-events h", "--kv-events: "},
		{"--request-memory x", `--request-memory "x"`},
		{"--request-memory 63M", `--request-memory "63M": want 64.0 MiB or more`},
		{"--request-memory 64M", ""},
	} {
		err := refused(strings.Fields(c.args))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// Every flag of serve sets exactly the fields that the golden table lists.
func TestEveryFlagSetsItsFields(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.txt")
	if err := os.WriteFile(keys, []byte("0123456789abcdef0123456789abcdef team\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// These flags are used only when the server starts.
	used := map[string]bool{"log-level": true, "log-json": true, "request-memory": true}
	before := selected(t, nil)
	var lines []string
	for line := range strings.Lines(`--host 127.0.0.3
--port 81
--listen localhost:82
--listen unix:/s --socket-mode 0600
--tls-cert c --tls-key k
--allow-host a,b
--allow-host *
--api-keys KEYS
--admin-keys KEYS
--admin-keys KEYS --weights-root w
--tenant-limits *_requests=2
--max-wait 3s
--cors https://example.org
--alias a,b
--model DIR
--model DIR --name other
--chat-format glm-5
--kernels ref
--kernels cuda --gpu 3
--kernels cuda --pretend rtx4090
--kernels cuda --limit-memory 20G
--kernels cuda --limit-smem 99K
--kernels cuda --limit-sms 50
--kernels cuda --limit-bus 25G
--workers 3
--pack
--numa
--precise
--ranks 2
--ranks 2 --attention dp
--gpus 0,2
--rank-timeout 4s
--rank-timeout 0
--cache-tokens 640
--context 65
--step-tokens 66
--no-prefix-cache
--control-tokens allow
--kv f32
--prefill sparse-flat
--decode sparse-block
--dense off
--split-keys 512
--fp4-index
--deterministic
--draft 3
--draft off
--no-graphs
--no-overlap
--pad-states
--experts host
--experts split --gpu-memory 5G
--expert-usage u
--self-test off
--watchdog 7s
--watchdog 0
--max-running 67
--max-stall 8ms
--max-stall 0
--max-queue 68
--plan-history 69
--record-bytes 70
--host-cache 71M
--disk-cache d
--disk-cache d --disk-cache-size 72M
--page-store redis://h
--page-store redis://h --tier-wait 9s
--role prefill
--role prefill --host-cache 1M --transfer-listen h:1 --transfer-host g
--role decode
--role decode --transfer-from 10.0.0.0/8,fd00::/8
--strict
--vllm-metrics
--kv-events tcp://*:1 --kv-events-replay tcp://*:2 --kv-events-id n
--objective a=1,b=-2
--no-page
--store-bytes 73M
--store-bytes 0
--batch-dir b
--batch-dir b --batch-budget 74M
--trace-endpoint http://h --trace-sample 0.5 --trace-header a=b --trace-service s
--grace 10s
--grace 0
--drain-delay 11s
--request-timeout 12s
`) {
		args := strings.Fields(line)
		for i, a := range args {
			if name, ok := strings.CutPrefix(a, "--"); ok {
				used[name] = true
			}
			args[i] = strings.NewReplacer("KEYS", keys, "DIR", dir, "_", " ").Replace(a)
		}
		text := strings.TrimSpace(line) + ": " + strings.ReplaceAll(changed(before, selected(t, args)), dir, "DIR")
		lines = append(lines, text)
	}
	table.Check(t, "flags.txt", lines)
	var f serveFlags
	f.command().Flags().VisitAll(func(x *pflag.Flag) {
		if !used[x.Name] {
			t.Errorf("--%s is not in the list", x.Name)
		}
	})
}

// Every flag of bench serve sets exactly the fields of the loads that the golden table lists.
func TestEveryFlagOfALoadSetsItsFields(t *testing.T) {
	loads := func(args []string) []map[string]string {
		var f benchServeFlags
		c := f.command()
		err := c.ParseFlags(args)
		if err == nil {
			err = f.apply(c.Flags())
		}
		var list []load.Options
		if err == nil {
			list, err = f.options()
		}
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		all := make([]map[string]string, len(list))
		for i := range list {
			all[i] = map[string]string{}
			addFields(all[i], "", list[i])
		}
		return all
	}
	used := map[string]bool{"json": true, "dummy": true}
	before := loads(nil)[0]
	empty := map[string]string{"OnDone": before["OnDone"]}
	lines := []string{"without flags: " + changed(empty, before)}
	for line := range strings.Lines(`--url http://h
--key k
--allow-remote
--name m
--workload chat
--workload chat --turns 3 --shared-prefix 9
--workload long-prefix
--workload long-prefix --groups 2 --output-tokens 5
--requests 3
--rate 0.5
--rate 1,2.5
--concurrency 4
--concurrency 1,8,64
--turns uniform:2-5
--goal ttft=1s
--prompt-tokens uniform:3-4
--output-tokens 6
--shared-prefix 7 --groups 8
--streams 9 --stream-choices 10 --stream-key s
--duration 11s
--timeout 12s
--seed 13
--temperature 0.5
--top-p 0.25
--stop-at-eos
`) {
		args := strings.Fields(line)
		for _, a := range args {
			if name, ok := strings.CutPrefix(a, "--"); ok {
				used[name] = true
			}
		}
		for _, each := range loads(args) {
			lines = append(lines, strings.TrimSpace(line)+": "+changed(before, each))
		}
	}
	table.Check(t, "loads.txt", lines)
	var engine engineFlags
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	engine.add(own)
	engine.addServing(own)
	new(benchServeFlags).command().Flags().VisitAll(func(x *pflag.Flag) {
		if !used[x.Name] && own.Lookup(x.Name) == nil {
			t.Errorf("--%s is not in the list", x.Name)
		}
	})
}

// A plan of eval --compare replaces the settings that it names.
func TestPlansReplaceSettings(t *testing.T) {
	three, err := spec.Fixed(3)
	if err != nil {
		t.Fatal(err)
	}
	base := sparrow.Config{Kernels: "cpu", Draft: three, Workers: 2, Policy: plan.Policy{KV: "bf16"}}
	for _, c := range []struct {
		text, kernels, kv string
		draft             spec.Setting
	}{
		{"kv=fp8", "cpu", "fp8", three}, {"kernels=ref", "ref", "bf16", three},
		{"draft=off", "cpu", "bf16", spec.Off()},
		{"draft=auto+kv=f32+kernels=ref", "ref", "f32", spec.Auto()},
	} {
		plans, err := eval.ParsePlans(c.text, base.Policy)
		if err != nil {
			t.Fatal(err)
		}
		got, err := planned(base, plans[0])
		if err != nil || got.Kernels != c.kernels || got.Policy.KV != c.kv || got.Draft != c.draft || got.Workers != 2 {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
	}
	if _, err := planned(base, eval.Plan{Draft: "many"}); err == nil {
		t.Error("a plan with an unknown setting of drafts was accepted")
	}
}
