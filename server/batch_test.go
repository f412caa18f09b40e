package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/api/anthropic"
	"sparrow/api/openai"
	"sparrow/internal/batch"
	"sparrow/internal/testkit/await"
)

func batchStore(t *testing.T, o batch.Options) *batch.Store {
	t.Helper()
	o.Dir = t.TempDir()
	s, err := batch.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// uploadFile uploads a text as a file and returns the response.
func uploadFile(t *testing.T, url, text string, header ...string) reply {
	t.Helper()
	return uploadForm(t, url, map[string]string{"purpose": "batch"}, text, header...)
}

func uploadForm(t *testing.T, url string, fields map[string]string, text string, header ...string) reply {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "lines.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	part.Write([]byte(text))
	for name, value := range fields {
		form.WriteField(name, value)
	}
	form.Close()
	return send(t, http.MethodPost, url+filesPath, body.String(),
		append([]string{"Content-Type", form.FormDataContentType()}, header...)...)
}

func decoded[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.status != http.StatusOK {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return v
}

// makeBatch uploads lines and creates a batch of them.
func makeBatch(t *testing.T, url, endpoint, lines string, header ...string) openai.Batch {
	t.Helper()
	f := decoded[openai.FileObject](t, uploadFile(t, url, lines, header...))
	return decoded[openai.Batch](t, post(t, url+batchesPath, fmt.Sprintf(`{"input_file_id": %q, "endpoint": %q,
		"completion_window": "24h", "metadata": {"a": "b"}}`, f.ID, endpoint), header...))
}

func endedBatch(t *testing.T, url, id string, header ...string) (b openai.Batch) {
	t.Helper()
	await.True(t, "the batch ends", func() bool {
		b = decoded[openai.Batch](t, get(t, url+batchPrefix+id, header...))
		return b.Status != openai.BatchInProgress && b.Status != openai.BatchCancelling
	})
	return b
}

// results returns the lines of a file of results by their custom ids.
func results(t *testing.T, url, id string, header ...string) map[string]openai.BatchResult {
	t.Helper()
	got := get(t, url+filePrefix+id+"/content", header...)
	all := map[string]openai.BatchResult{}
	for lines := bufio.NewScanner(strings.NewReader(got.body)); lines.Scan(); {
		var r openai.BatchResult
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		all[r.CustomID] = r
	}
	return all
}

func chatLine(id, question string) string {
	return fmt.Sprintf(`{"custom_id": %q, "method": "POST", "url": "/v1/chat/completions", "body": {"model":
		"sparrow-test", "messages": [{"role": "user", "content": %q}]}}`, id, question)
}

// In a batch of good and bad lines each bad line fails by itself. Lines that are temporarily refused are sent again,
// and the engine receives all lines as background requests.
func TestABatchOfChats(t *testing.T) {
	refused := false
	e := newFake(func(r sparrow.Request) ([]sparrow.Event, error) {
		if r.Chat.Messages[0].Content == "busy" && !refused {
			refused = true
			return nil, sparrow.ErrQueueFull
		}
		if r.Chat.Messages[0].Content == "broken" {
			return nil, errors.New("internal detail")
		}
		return say("Hello"), nil
	})
	_, url, stop := listen(t, e, Options{Batches: batchStore(t, batch.Options{}), RetryAfter: 1})
	oneLine := strings.NewReplacer("\n", " ", "\t", "")
	lines := []string{chatLine("one", "hi"),
		`{"custom_id": "no body", "method": "POST", "url": "/v1/chat/completions"}`,
		`{"custom_id": "elsewhere", "method": "POST", "url": "/v1/completions", "body": {}}`,
		strings.Replace(chatLine("other", "hi"), "sparrow-test", "nobody", 1), chatLine("one", "again"),
		strings.Replace(chatLine("streams", "hi"), `"model"`, `"stream": true, "model"`, 1), chatLine("busy", "busy"),
		chatLine("broken", "broken"), "nonsense"}
	for i := range lines {
		lines[i] = oneLine.Replace(lines[i])
	}
	b := makeBatch(t, url, "/v1/chat/completions", strings.Join(lines, "\n"))
	if b.Object != "batch" || b.RequestCounts.Total != len(lines) || b.Metadata["a"] != "b" || *b.ExpiresAt == 0 {
		t.Errorf("%+v", b)
	}
	b = endedBatch(t, url, b.ID)
	if want := (openai.BatchCounts{Total: 9, Completed: 2, Failed: 7}); b.RequestCounts != want ||
		b.Status != openai.BatchCompleted || b.CompletedAt == nil {
		t.Errorf("%+v", b)
	}
	good, bad := results(t, url, *b.OutputFileID), results(t, url, *b.ErrorFileID)
	var answer openai.ChatResponse
	one := good["one"]
	if err := json.Unmarshal(one.Response.Body, &answer); err != nil || one.Response.StatusCode != 200 ||
		*answer.Choices[0].Message.Content != "Hello" || one.Error != nil || good["busy"].Response == nil {
		t.Errorf("%+v: %v", good, err)
	}
	for id, status := range map[string]int{"other": 404, "broken": 500} {
		if r := bad[id].Response; r == nil || r.StatusCode != status {
			t.Errorf("%s: %+v", id, bad[id])
		}
	}
	for id, code := range map[string]string{"no body": openai.BatchLineInvalid, "elsewhere": openai.BatchLineInvalid,
		"one": openai.BatchLineDuplicate, "streams": openai.BatchLineInvalid, "": openai.BatchLineInvalid} {
		if r := bad[id]; r.Error == nil || r.Error.Code != code || r.Response != nil {
			t.Errorf("%q: %+v", id, r)
		}
	}
	if r := e.last(t); !r.Background {
		t.Error("the engine is not told that a line is of the background")
	}
	list := decoded[openai.List[openai.Batch]](t, get(t, url+batchesPath+"?limit=5"))
	if len(list.Data) != 1 || list.HasMore || *list.FirstID != b.ID {
		t.Errorf("%+v", list)
	}
	text := get(t, url+"/metrics").body
	for _, want := range []string{`sparrow_batch_lines_total{outcome="succeeded"} 2`, "sparrow_batch_lines_left 0",
		`sparrow_batch_lines_total{outcome="errored"} 7`, `sparrow_batch_batches{state="completed"} 1`,
		"sparrow_time_to_first_token_seconds_count 0"} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics have no %s", want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Tenants see only their own files and batches.
func TestBatchesOfTenants(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("ka a\nkb b\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := listen(t, newFake(saying("x")), Options{Keys: keys, Batches: batchStore(t, batch.Options{})})
	a, b := []string{"Authorization", "Bearer ka"}, []string{"Authorization", "Bearer kb"}
	made := makeBatch(t, url, "/v1/chat/completions", strings.ReplaceAll(chatLine("one", "hi"), "\n", ""), a...)
	made = endedBatch(t, url, made.ID, a...)
	for _, path := range []string{batchPrefix + made.ID, filePrefix + made.InputFileID,
		filePrefix + *made.OutputFileID + "/content"} {
		if got := get(t, url+path, b...); got.status != http.StatusNotFound {
			t.Errorf("%s of another tenant: %d %s", path, got.status, got.body)
		}
		if got := get(t, url+path, a...); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if list := decoded[openai.List[openai.FileObject]](t, get(t, url+filesPath, b...)); len(list.Data) != 0 {
		t.Errorf("%+v", list)
	}
	got := send(t, http.MethodDelete, url+filePrefix+made.InputFileID, "", a...)
	if d := decoded[openai.Deleted](t, got); !d.Deleted || d.ID != made.InputFileID {
		t.Errorf("%s", got.body)
	}
}

// A batch of Anthropic's interface is created in one request, cancelled, read line by line, and deleted.
func TestMessageBatches(t *testing.T) {
	e := newFake(func(r sparrow.Request) ([]sparrow.Event, error) {
		if r.Chat.Messages[0].Content == "wait" {
			return nil, nil // the request runs until it is cancelled
		}
		return say("Hello"), nil
	})
	_, url, _ := listen(t, e, Options{Batches: batchStore(t, batch.Options{Workers: 2})})
	item := func(id, content string) string {
		return fmt.Sprintf(`{"custom_id": %q, "params": {"model": "sparrow-test", "max_tokens": 5,
			"messages": [{"role": "user", "content": %q}]}}`, id, content)
	}
	var b anthropic.MessageBatch
	ended := func() bool {
		b = decoded[anthropic.MessageBatch](t, get(t, url+messageBatchPrefix+b.ID))
		return b.ProcessingStatus == anthropic.BatchEnded
	}
	types := func() (list []string) {
		for lines := bufio.NewScanner(strings.NewReader(get(t, *b.ResultsURL).body)); lines.Scan(); {
			var r anthropic.BatchResult
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			list = append(list, r.CustomID+" "+r.Result.Type)
		}
		slices.Sort(list)
		return list
	}
	b = decoded[anthropic.MessageBatch](t, post(t, url+messageBatches, `{"requests": [`+item("a", "hi")+`,
		{"custom_id": "b", "params": {"model": "sparrow-test"}}]}`))
	if b.Type != "message_batch" || b.RequestCounts.Processing+b.RequestCounts.Succeeded+b.RequestCounts.Errored != 2 {
		t.Errorf("%+v", b)
	}
	await.True(t, "the batch ends", ended)
	if got := types(); !slices.Equal(got, []string{"a succeeded", "b errored"}) || b.EndedAt == nil ||
		b.RequestCounts != (anthropic.BatchCounts{Succeeded: 1, Errored: 1}) {
		t.Errorf("%v, %+v", got, b)
	}
	b = decoded[anthropic.MessageBatch](t, post(t, url+messageBatches, `{"requests": [`+item("a", "wait")+`,`+
		item("b", "wait")+`,`+item("c", "hi")+`]}`))
	await.True(t, "lines run", func() bool { return e.opened() == 2 })
	if got := send(t, http.MethodDelete, url+messageBatchPrefix+b.ID, ""); got.status != http.StatusConflict {
		t.Errorf("a batch that runs is deleted: %d %s", got.status, got.body)
	}
	b = decoded[anthropic.MessageBatch](t, post(t, url+messageBatchPrefix+b.ID+"/cancel", ""))
	await.True(t, "the batch ends", ended)
	if got := types(); !slices.Equal(got, []string{"a canceled", "b canceled", "c canceled"}) {
		t.Errorf("%v", got)
	}
	if got := decoded[anthropic.DeletedBatch](t, send(t, http.MethodDelete, url+messageBatchPrefix+b.ID, "")); got.ID !=
		b.ID {
		t.Errorf("%+v", got)
	}
	if list := decoded[anthropic.BatchList](t, get(t, url+messageBatches)); len(list.Data) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestWhatIsRefusedOfFilesAndBatches(t *testing.T) {
	_, off, _ := listen(t, newFake(saying("x")), Options{})
	_, url, _ := listen(t, newFake(saying("x")), Options{Batches: batchStore(t, batch.Options{Budget: 1 << 20})})
	page := append([]string{}, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	for name, c := range map[string]struct {
		got    reply
		status int
		says   string
	}{
		"off":              {get(t, off+filesPath), 403, "--batch-dir"},
		"off, Anthropic's": {get(t, off+messageBatches), 403, "--batch-dir"},
		"unknown file": {post(t, url+batchesPath, `{"input_file_id": "file-x", "endpoint": "/v1/completions",
			"completion_window": "24h"}`), 404, "file-x"},
		"endpoint": {post(t, url+batchesPath, `{"input_file_id": "file-x", "endpoint": "/v1/embeddings",
			"completion_window": "24h"}`), 400, "/v1/completions"},
		"window": {post(t, url+batchesPath, `{"input_file_id": "file-x", "endpoint": "/v1/completions",
			"completion_window": "1h"}`), 400, "24h"},
		"purpose": {uploadForm(t, url, map[string]string{"purpose": "vision"}, "x"), 400, "vision"},
		"a long field": {uploadForm(t, url, map[string]string{"purpose": strings.Repeat("x", maxFormText+1)}, "x"), 400,
			"has more than 4096 bytes"},
		"too large":    {uploadFile(t, url, strings.Repeat("x", 1<<20)), 507, "delete files"},
		"no form":      {post(t, url+filesPath, `{}`), 415, "multipart/form-data"},
		"a page":       {uploadFile(t, url, "x", page...), 415, "another origin"},
		"no requests":  {post(t, url+messageBatches, `{"requests": []}`), 400, "requests"},
		"same name":    {post(t, url+messageBatches, `{"requests": [{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}]}`), 400, "earlier"},
		"no such path": {post(t, url+batchPrefix+"x/y", ``), 404, "this server has no"},
	} {
		if c.got.status != c.status || !strings.Contains(c.got.body, c.says) {
			t.Errorf("%s: %d %s", name, c.got.status, c.got.body)
		}
	}
	if used := get(t, url+"/metrics").body; !strings.Contains(used, "sparrow_batch_store_bytes 0\n") {
		t.Error("refused files are left")
	}
	kept := decoded[openai.FileObject](t, uploadForm(t, url, map[string]string{"purpose": "batch",
		"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}, "x"))
	if kept.ExpiresAt != kept.CreatedAt+3600 {
		t.Errorf("%+v", kept)
	}
}

// Lines of a batch do not count as concurrent requests of the tenant, and leave half of its tokens to other requests.
func TestQuotasOfLines(t *testing.T) {
	l, err := ReadLimits(strings.NewReader("* requests=1 tokens=1000"))
	if err != nil {
		t.Fatal(err)
	}
	q := &quotas{limits: l, places: 4, now: func() time.Time { return time.Unix(0, 0) }}
	line, err := q.begin("a", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.begin("a", false); err != nil {
		t.Errorf("a line takes the place of a request: %v", err)
	}
	if err := line.prompt(600); err != nil {
		t.Error(err)
	}
	next, _ := q.begin("a", true)
	if err := next.prompt(10); err == nil {
		t.Error("a line begins with 400 of 1000 tokens left")
	}
	line.end()
	next.end()
}
