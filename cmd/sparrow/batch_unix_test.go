//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"testing"

	"sparrow/internal/testkit/await"
)

var batchLines = flag.Int("batch-lines", 1000, "lines of the test of a batch whose server is killed")

// fetch sends a request and returns the body of the response.
func (r *replica) fetch(t *testing.T, method, path, kind string, body io.Reader) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s, %v", method, path, got.Status, text, err)
	}
	return text
}

// batchState holds the fields of a batch that the test reads.
type batchState struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Output string `json:"output_file_id"`
	Errors string `json:"error_file_id"`
	Counts struct {
		Total     int `json:"total"`
		Completed int `json:"completed"`
		Failed    int `json:"failed"`
	} `json:"request_counts"`
}

func (r *replica) batch(t *testing.T, id string) (b batchState) {
	t.Helper()
	if err := json.Unmarshal(r.fetch(t, http.MethodGet, "/v1/batches/"+id, "", nil), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// batchForm returns the form that uploads the lines of a batch, and its content type.
func batchForm(t *testing.T, lines []byte) (kind string, body *bytes.Buffer) {
	t.Helper()
	body = new(bytes.Buffer)
	w := multipart.NewWriter(body)
	w.WriteField("purpose", "batch")
	part, err := w.CreateFormFile("file", "lines.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	part.Write(lines)
	w.Close()
	return w.FormDataContentType(), body
}

// A server that runs a batch is killed twice. The results then contain each line once, and no finished line ran again.
func TestABatchSurvivesKills(t *testing.T) {
	n := *batchLines
	if testing.Short() {
		n = min(n, 100)
	}
	args := []string{"--name", "m", "--cache-tokens", "16384", "--batch-dir", t.TempDir(), "--batch-budget", "256M"}
	r := startReplica(t, args...)
	var lines []byte
	bad := 0
	for i := range n {
		heat := 1
		if i%50 == 7 { // the server refuses this line, and only this line
			heat, bad = 9, bad+1
		}
		lines = fmt.Appendf(lines, `{"custom_id": "line-%d", "method": "POST", "url": "/v1/completions", "body": {"model": `+
			`"m", "prompt": [%d, 20, 30], "max_tokens": %d, "seed": %d, "temperature": %d}}`+"\n", i, 10+i%400, 1+i%3,
			i, heat)
	}
	kind, form := batchForm(t, lines)
	var file, b batchState
	err := json.Unmarshal(r.fetch(t, http.MethodPost, "/v1/files", kind, form), &file)
	if err != nil {
		t.Fatal(err)
	}
	err = json.Unmarshal(r.fetch(t, http.MethodPost, "/v1/batches", "application/json", bytes.NewReader(
		fmt.Appendf(nil, `{"input_file_id": %q, "endpoint": "/v1/completions", "completion_window": "24h"}`, file.ID))),
		&b)
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for kill := range 2 {
		await.True(t, "lines end", func() bool {
			now := r.batch(t, b.ID)
			done = now.Counts.Completed + now.Counts.Failed
			return done >= (kill+1)*n/4
		})
		r.Kill()
		r = startReplica(t, args...)
		now := r.batch(t, b.ID)
		if after := now.Counts.Completed + now.Counts.Failed; after < done || now.Counts.Total != n {
			t.Errorf("%d lines had ended before kill %d, %d of %d after it", done, kill+1, after, now.Counts.Total)
		}
		if now.Status != "in_progress" {
			t.Errorf("the batch is %s at kill %d: the test shows nothing", now.Status, kill+1)
		}
		t.Logf("killed with %d of %d lines done", done, n)
	}
	await.True(t, "the batch ends", func() bool { b = r.batch(t, b.ID); return b.Status != "in_progress" })
	if b.Status != "completed" || b.Counts.Completed != n-bad || b.Counts.Failed != bad {
		t.Errorf("%+v, want %d failed", b, bad)
	}
	seen := map[string]int{}
	for _, id := range []string{b.Output, b.Errors} {
		lines := bufio.NewScanner(bytes.NewReader(r.fetch(t, http.MethodGet, "/v1/files/"+id+"/content", "", nil)))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l struct {
				CustomID string `json:"custom_id"`
				Response struct {
					Status int `json:"status_code"`
				} `json:"response"`
			}
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			seen[l.CustomID]++
			if ok := l.Response.Status == http.StatusOK; ok != (id == b.Output) {
				t.Errorf("%s has status %d in %s", l.CustomID, l.Response.Status, id)
			}
		}
	}
	for i := range n {
		if id := fmt.Sprint("line-", i); seen[id] != 1 {
			t.Errorf("%s is %d times in the results", id, seen[id])
		}
	}
	if len(seen) != n {
		t.Errorf("%d different lines of %d", len(seen), n)
	}
}
