package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An administrator can put a server to sleep, wake it up and replace its weights; clients with other keys cannot.
func TestAdministratorsPutTheServerToSleep(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"step1", "bad"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("boss\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{AdminKeys: keys, WeightsRoot: root})
	boss := []string{"Authorization", "Bearer boss"}
	if got := post(t, hs.URL+"/sleep", ""); got.status != 401 {
		t.Errorf("without a key: %d", got.status)
	}
	sleeping := func(want string, ready int) {
		t.Helper()
		if got := get(t, hs.URL+"/is_sleeping", boss...); got.body != want {
			t.Errorf("is_sleeping: %s", got.body)
		}
		if got := get(t, hs.URL+"/ready"); got.status != ready {
			t.Errorf("ready: %d %s", got.status, got.body)
		}
		if got := get(t, hs.URL+"/health"); got.status != 200 {
			t.Errorf("health: %d", got.status)
		}
	}
	sleeping(`{"is_sleeping":false}`, 200)
	if got := post(t, hs.URL+"/sleep?level=1&mode=abort", "", boss...); got.status != 200 {
		t.Errorf("sleep: %d %s", got.status, got.body)
	}
	sleeping(`{"is_sleeping":true}`, 503)
	if got := post(t, hs.URL+"/wake_up?tags=weights", "", boss...); got.status != 200 {
		t.Errorf("wake_up: %d %s", got.status, got.body)
	}
	sleeping(`{"is_sleeping":false}`, 200)
	for _, query := range []string{"level=3", "mode=now"} {
		if got := post(t, hs.URL+"/sleep?"+query, "", boss...); got.status != 400 {
			t.Errorf("%s: %d", query, got.status)
		}
	}
	for path, want := range map[string]int{"step1": 200, filepath.Join(root, "step1"): 200, "bad": 400, "none": 400,
		"../" + filepath.Base(outside): 400, outside: 400, "link": 400, "": 400} {
		body := `{"model_path":"` + path + `","abort_all_requests":true,"load_format":null,"flush_cache":true}`
		got := post(t, hs.URL+"/update_weights_from_disk", body, boss...)
		if got.status != want || want == 200 && !strings.Contains(got.body, `"success":true`) {
			t.Errorf("%q: %d %s", path, got.status, got.body)
		}
	}
	for path, reason := range map[string]string{"none": "does not exist", outside: "is not below",
		"link": "is not below", filepath.Join(outside, "none"): "is not below"} {
		got := post(t, hs.URL+"/update_weights_from_disk", `{"model_path":"`+path+`"}`, boss...)
		if !strings.Contains(got.body, reason) || !strings.Contains(got.body, root) {
			t.Errorf("%q: %s", path, got.body)
		}
	}
	slices.Sort(e.orders)
	const want = "sleep true, update bad true, update step1 true, update step1 true, wake"
	if got := strings.Join(e.orders, ", "); got != want {
		t.Errorf("the engine was told: %s", got)
	}
}

// If the root folder of weights is a relative path, absolute paths below it are also accepted.
func TestWeightsRootMayBeRelative(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "weights", "step1"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	s, _ := start(t, newFake(saying("x")), Options{WeightsRoot: "weights"})
	want := filepath.Join(root, "weights", "step1")
	for _, path := range []string{"step1", want} {
		if got, err := (adminAPI{s.service}).weightsFolder(path); err != nil || got != want {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}
