package server

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/batch"
)

// A share is accepted as a fraction or as a percentage, above 0 and up to 1.
func TestSharesInPercent(t *testing.T) {
	for text, want := range map[string]float64{"0.5": 0.5, "50%": 0.5, "1": 1, "100%": 1, "1%": 0.01, "0.5%": 0.005,
		"0": 0, "0%": 0, "101%": 0, "1.5": 0, "-1": 0, "x%": 0, "NaN": 0} {
		if got, err := parseShare(text); got != want || (err != nil) != (want == 0) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// A line of a batch starts only while half of the tenant's tokens per minute are left, and while its own prompt fits
// into what is left.
func TestLinesLeaveRoomForRequests(t *testing.T) {
	for _, c := range []struct {
		used, prompt int
		ok           bool
	}{{0, 10, true}, {300, 10, true}, {301, 10, false}, {0, 500, true}, {101, 500, false}, {0, 9000, true}} {
		q, _ := quotaOf(t, "a tokens=600")
		u, err := q.begin("a", true)
		if err != nil {
			t.Fatal(err)
		}
		u.output(c.used)
		if err := u.prompt(c.prompt); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if len(u.quota.running) != 0 {
			t.Error("a line counts as a request")
		}
	}
}

// Cancelled and expired lines of a batch count as failed.
func TestCountsOfABatch(t *testing.T) {
	store := batchStore(t, batch.Options{})
	b := &batch.Batch{ID: "b", Lines: 20, State: batch.Expired, Created: time.Unix(100, 0), Expires: time.Unix(200, 0),
		Ended: time.Unix(300, 0), Cancel: time.Unix(250, 0),
		Counts: batch.Counts{Succeeded: 1, Errored: 2, Cancelled: 4, Expired: 8}}
	got := batchesAPI{}.object(store, b)
	if got.RequestCounts != (openai.BatchCounts{Total: 20, Completed: 1, Failed: 14}) || got.CreatedAt != 100 ||
		*got.ExpiresAt != 200 || *got.ExpiredAt != 300 || *got.CancellingAt != 250 || got.CompletedAt != nil ||
		got.CancelledAt != nil || got.FinalizingAt != nil || got.OutputFileID != nil {
		t.Errorf("%+v", got)
	}
}

// An item is found only by its complete id.
func TestItemsAreFoundByTheirId(t *testing.T) {
	s := newResponseStore(1 << 20)
	s.put("a", &stored{response: &openai.Response{ID: "resp_N", Output: []openai.Item{{ID: "msg_N_0"},
		{ID: "fc_N_1"}}}})
	for id, want := range map[string]bool{"msg_N_0": true, "fc_N_1": true, "fc_N_0": false, "msg_N_1": false,
		"msg_N_2": false, "msg_N_-1": false, "msg_M_0": false, "msg_N": false, "msg_N_0_0": false, "": false} {
		if got := s.item("a", id); (got != nil) != want || got != nil && got.ID != id {
			t.Errorf("%s: %+v", id, got)
		}
		if s.item("b", id) != nil {
			t.Errorf("another tenant has %s", id)
		}
	}
}

// When a request stops waiting for memory, the requests behind it can proceed.
func TestMemoryAfterOneGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1 << 20)
		defer m.idle.Stop()
		if err := m.take(t.Context(), 600<<10, time.Second); err != nil {
			t.Fatal(err)
		}
		large := make(chan error, 1)
		go func() { large <- m.take(context.Background(), 700<<10, time.Second) }()
		synctest.Wait()
		behind := make(chan error, 1)
		go func() { behind <- m.take(context.Background(), 100<<10, time.Hour) }()
		synctest.Wait()
		m.mu.Lock()
		waiting := len(m.queue)
		m.mu.Unlock()
		if waiting != 2 {
			t.Fatalf("%d requests wait, want 2", waiting)
		}
		began := time.Now()
		if err := <-large; err == nil {
			t.Error("the large one got memory that is not there")
		}
		if err := <-behind; err != nil || time.Since(began) > time.Minute {
			t.Errorf("the one behind it: %v after %v", err, time.Since(began))
		}
	})
}

// The data of a NumPy array begins at a multiple of 64 bytes for every shape.
func TestArraysAreAligned(t *testing.T) {
	for _, shape := range [][]int{{1, 1, 1}, {10, 10, 10}, {1000, 61, 8}, {123456, 61, 8}, {12, 3, 4}} {
		for _, most := range []int{256, 257} {
			text := encodeNPY([]int32{5, 255}, shape, most)
			data, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			head := int(data[8]) | int(data[9])<<8
			body := data[10+head:]
			want := "\x05\xff"
			if most > 256 {
				want = "\x05\x00\xff\x00"
			}
			if (10+head)%64 != 0 || string(body) != want || data[10+head-1] != '\n' ||
				!strings.HasPrefix(string(data[10:]), "{'descr': '") {
				t.Errorf("%v up to %d: a head of %d bytes, then %q", shape, most, head, body)
			}
		}
	}
}

// The expiry time of a file may be between one hour and thirty days.
func TestHowLongFilesAreKept(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{Batches: batchStore(t, batch.Options{})})
	for seconds, want := range map[string]int{"3600": 200, "2592000": 200, "3599": 400, "2592001": 400, "-1": 400,
		"": 400, "1e4": 400} {
		got := uploadForm(t, hs.URL, map[string]string{"purpose": "batch", "expires_after[seconds]": seconds}, "{}\n")
		if got.status != want {
			t.Errorf("%q seconds: %d %s", seconds, got.status, got.body)
		}
	}
}
