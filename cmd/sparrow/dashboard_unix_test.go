//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/await"
)

var prometheusDir = flag.String("prometheus", "", "folder with prometheus and promtool, to evaluate dashboards with")

// dashboardQueries returns the queries of the dashboard's panels by the titles of the panels, with variables replaced
// by values.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/sparrow.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	list := map[string]string{}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
		for i, q := range p.Targets {
			list[fmt.Sprintf("%s, %d", p.Title, i+1)] = fill.Replace(q.Expr)
		}
	}
	return list
}

// alertQueries returns the expressions of the alerts by their names.
func alertQueries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	rule := regexp.MustCompile(`(?m)- alert: (\w+)\n        expr: >-\n((?:          .*\n)+)        for: \w+\n`)
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = strings.Join(strings.Fields(m[2]), " ")
	}
	if n := strings.Count(string(text), "- alert:"); n != len(list) || n < 10 {
		t.Fatalf("%d of %d alerts were read", len(list), n)
	}
	return list
}

// liveServer starts a server that has answered chats, run a batch, and refused a file because its folder is full, with
// status 507.
func liveServer(t *testing.T) *replica {
	t.Helper()
	r := startReplica(t, "--name", "m", "--cache-tokens", "16384", "--batch-dir", t.TempDir(), "--batch-budget", "1M")
	for range 3 {
		r.fetch(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(`{"model": "m",
			"messages": [{"role": "user", "content": "What are you called?"}], "max_tokens": 20, "temperature": 0}`))
	}
	b := r.fetch(t, http.MethodPost, "/v1/messages/batches", "application/json", strings.NewReader(`{"requests":
		[{"custom_id": "a", "params": {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}}]}`))
	var made struct{ ID string }
	if err := json.Unmarshal(b, &made); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the batch ends", func() bool {
		return bytes.Contains(r.fetch(t, http.MethodGet, "/v1/messages/batches/"+made.ID, "", nil), []byte(`"ended"`))
	})
	kind, form := batchForm(t, bytes.Repeat([]byte("{}\n"), 1<<19))
	got, err := http.Post(r.URL+"/v1/files", kind, form)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusInsufficientStorage {
		t.Fatalf("a file beyond the budget is answered with %s", got.Status)
	}
	return r
}

// A running server has every metric that the dashboard and the alerts use, with its labels, and docs/alerts.md states
// what to do for each alert. If -prometheus names a folder, the programs in that folder evaluate the queries.
func TestDashboardsAndAlerts(t *testing.T) {
	r := liveServer(t)
	series := map[string][]string{} // labels of each metric
	label := regexp.MustCompile(`(\w+)="`)
	for line := range strings.Lines(string(r.fetch(t, http.MethodGet, "/metrics", "", nil))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		name, labels, ok := strings.Cut(name, "{")
		if ok {
			labels, _, _ = strings.Cut(labels+" "+rest, "} ")
		}
		series[name] = append(series[name], "job", "instance")
		for _, m := range label.FindAllStringSubmatch(labels, -1) {
			series[name] = append(series[name], m[1])
		}
	}
	series["up"] = []string{"job", "instance"} // Prometheus adds this metric itself
	metric := regexp.MustCompile(`\b((?:sparrow|process|go|promhttp)_\w+|up)\b(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	panels, alerts := dashboardQueries(t), alertQueries(t)
	check := func(what, query string) {
		names := metric.FindAllStringSubmatch(query, -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric: %s", what, query)
		}
		var all []string
		for _, m := range names {
			labels := series[m[1]]
			if labels == nil {
				t.Errorf("%s: the server has no %s", what, m[1])
			}
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: %s has no label %s", what, m[1], l[1])
				}
			}
			all = append(all, labels...)
		}
		for _, m := range by.FindAllStringSubmatch(query, -1) {
			for l := range strings.SplitSeq(m[1], ",") {
				if !slices.Contains(all, strings.TrimSpace(l)) {
					t.Errorf("%s: no metric has the label %s", what, l)
				}
			}
		}
	}
	for what, query := range panels {
		check(what, query)
	}
	guide, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, query := range alerts {
		check(what, query)
		if !strings.Contains(string(guide), "\n## "+what+"\n") {
			t.Errorf("docs/alerts.md does not say what to do for %s", what)
		}
	}
	if n := strings.Count(string(guide), "\n## Sparrow"); n != len(alerts) {
		t.Errorf("docs/alerts.md has %d alerts, there are %d", n, len(alerts))
	}
	if *prometheusDir != "" {
		evaluate(t, r, panels, alerts)
	}
}

// comparison matches a comparison operator in the expression of an alert.
var comparison = regexp.MustCompile(` (?:==|<|>) `)

// evaluate runs a Prometheus that scrapes the server. It checks that every panel and every comparison of an alert has
// data, and that an alert becomes pending after the server has stopped.
func evaluate(t *testing.T, r *replica, panels, alerts map[string]string) {
	t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command(filepath.Join(*prometheusDir, "promtool"), "check", "rules", rules)
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: sparrow, static_configs: [{targets: [%q]}]}]\n", rules,
		strings.TrimPrefix(r.URL, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "p.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:" + freePort(t)
	cmd := exec.Command(filepath.Join(*prometheusDir, "prometheus"), "--config.file="+filepath.Join(dir, "p.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	api := func(path string, into any) bool {
		got, err := http.Get("http://" + at + path)
		if err != nil {
			return false
		}
		defer got.Body.Close()
		return json.NewDecoder(got.Body).Decode(into) == nil
	}
	queries := maps.Clone(panels)
	// with + instead of the comparison, the query has data whenever the alert could fire
	for what, query := range alerts {
		queries[what] = comparison.ReplaceAllString(query, " + ")
		if queries[what] == query {
			t.Errorf("%s compares nothing: %s", what, query)
		}
	}
	for what, query := range queries {
		await.True(t, what+" has data: "+query, func() bool {
			var got struct {
				Status string
				Error  string
				Data   struct{ Result []any }
			}
			ok := api("/api/v1/query?query="+url.QueryEscape(query), &got)
			if got.Status == "error" {
				t.Fatalf("%s: %s: %s", what, query, got.Error)
			}
			return ok && len(got.Data.Result) > 0
		})
	}
	states := func() map[string]string {
		var got struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, State, Health, LastError string }
				}
			}
		}
		list := map[string]string{}
		if !api("/api/v1/rules", &got) || len(got.Data.Groups) != 1 {
			return nil
		}
		for _, rule := range got.Data.Groups[0].Rules {
			if rule.Health == "err" {
				t.Fatalf("%s: %s", rule.Name, rule.LastError)
			}
			if rule.Health == "ok" {
				list[rule.Name] = rule.State
			}
		}
		return list
	}
	await.True(t, "alerts are evaluated", func() bool { return len(states()) == len(alerts) })
	if down := states()["SparrowDown"]; down != "inactive" {
		t.Errorf("SparrowDown is %s", down)
	}
	r.Kill()
	await.True(t, "the alert of a server that is gone", func() bool { return states()["SparrowDown"] == "pending" })
	t.Logf("%d queries of panels and %d of alerts have data", len(panels), len(alerts))
}
