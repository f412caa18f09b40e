package event

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"sparrow/internal/testkit/heap"
)

// Invariant of this file: data that is kept for subscribers stays within its memory bound, whatever clients send.

// If each request has its own root with the longest salt, many more than the bound allows, the stored salts stay within
// the bound.
func TestSaltsAreBoundedInBytes(t *testing.T) {
	grown := heap.Kept(func() any {
		s := newState()
		var out encoder
		s.apply([]change{{kind: rooted, page: page{root: 1}}}, &out)
		for i := range uint64(100_000) {
			salt := fmt.Sprint(i, strings.Repeat("s", 250))
			for id := range uint64(2) { // the second page has the salt of the first page in the same memory
				s.apply([]change{{kind: stored, medium: GPU, page: page{id: 2*i + id, root: i + 2, salt: salt}},
					{kind: removed, medium: GPU, page: page{id: 2*i + id}}}, &out)
			}
			out = encoder{}
		}
		if _, known := s.roots[1]; !known {
			t.Error("the root of prompts without a salt is no longer known")
		}
		return s
	})
	if grown > maxRootBytes*5/4 {
		t.Errorf("salts take %d bytes of the heap, want at most %d", grown, maxRootBytes)
	}
	if grown < maxRootBytes/8 {
		t.Errorf("salts take %d bytes of the heap, too few to test a limit of %d", grown, maxRootBytes)
	}
}

func TestPagesOfARootShareItsSalt(t *testing.T) {
	const pages = 20_000
	grown := heap.Kept(func() any {
		s := newState()
		for i := range uint64(pages) {
			var out encoder
			salted := page{id: i, root: 7, salt: strings.Repeat("s", 250)}
			s.apply([]change{{kind: stored, medium: GPU, page: salted}}, &out)
		}
		return s
	})
	if each := grown / pages; each > 400 {
		t.Errorf("a page takes %d bytes of the heap", each)
	}
}

func TestBatchesForReplaysAreBoundedInBytes(t *testing.T) {
	for name, size := range map[string]int{"large": 3 << 20, "odd": 33_000, "small": 40} {
		grown := heap.Kept(func() any {
			h := &history{}
			for i := range 3 * maxKept {
				if size > 1<<20 && i > 60 {
					break
				}
				h.add(frame{seq: uint64(i), payload: make([]byte, size)})
			}
			return h
		})
		if grown > maxKeptBytes*9/8 {
			t.Errorf("%s: batches take %d bytes of the heap, want at most %d", name, grown, maxKeptBytes)
		}
	}
}

// The memory of a snapshot, which holds every page, is not kept for the next batch.
func TestSnapshotsLeaveNoMemory(t *testing.T) {
	s := newState()
	for i := range uint64(5000) {
		var out encoder
		s.apply([]change{{kind: stored, medium: GPU, page: page{id: i, root: 7, tokens: make([]int32, 256)}}}, &out)
	}
	var out encoder
	s.whole(&out)
	if n := len(out.batch(time.Unix(5, 0))); n < maxEncoded {
		t.Fatalf("a snapshot of %d bytes is too small for this test", n)
	}
	if cap(out.events) > maxEncoded {
		t.Errorf("%d bytes are kept for the next batch after a snapshot", cap(out.events))
	}
}

// A subscriber gets a batch of any size if its queue is empty. A batch that does not fit after other batches, in bytes
// or in number, is dropped and counted.
func TestTheQueueOfASubscriber(t *testing.T) {
	memory := make([]byte, maxQueuedSize+1)
	for _, c := range []struct {
		what    string
		length  int
		sizes   []int
		dropped int64
	}{
		{"one batch larger than the limit", 4, []int{maxQueuedSize + 1}, 0},
		{"batches of exactly the limit", 4, []int{1, maxQueuedSize - 1}, 0},
		{"one byte above the limit", 4, []int{1, maxQueuedSize}, 1},
		{"batches after a large batch", 4, []int{maxQueuedSize + 1, 1, 1}, 2},
		{"too many", 2, []int{1, 1, 1, 1}, 2},
	} {
		p, s := &Publisher{}, newPeer(nil, c.length)
		held := int64(0)
		for i, n := range c.sizes {
			s.push(p, frame{seq: uint64(i), payload: memory[:n]})
		}
		taken := len(s.queue)
		for range taken {
			held += int64(len((<-s.queue).payload))
		}
		if got := p.count.dropped.Load(); got != c.dropped || taken != len(c.sizes)-int(c.dropped) ||
			s.bytes.Load() != held {
			t.Errorf("%s: %d batches dropped, want %d; %d queued with %d bytes, counted as %d", c.what, got, c.dropped,
				taken,
				held, s.bytes.Load())
		}
	}
}

// The host * means all addresses. Ports are at most 65535, also the port for replays that follows from the other.
func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint, host string
		port           int
		refused        bool
	}{
		{"tcp://*:5557", "", 5557, false},
		{"tcp://localhost:0", "localhost", 0, false},
		{"tcp://[::1]:65535", "::1", 65535, false},
		{"tcp://*:65536", "", 0, true},
		{"tcp://*:-1", "", 0, true},
		{"tcp://*:x", "", 0, true},
		{"tcp://:5557", "", 0, true},
		{"tcp://*", "", 0, true},
		{"udp://*:5557", "", 0, true},
		{"", "", 0, true},
	} {
		host, port, err := parse(c.endpoint)
		if (err != nil) != c.refused || host != c.host || port != c.port {
			t.Errorf("%q: host %q, port %d, error %v", c.endpoint, host, port, err)
		}
	}
	if _, err := New(Config{Endpoint: "tcp://127.0.0.1:0", Replay: "127.0.0.1:0"}); !errors.Is(err, ErrEndpoint) {
		t.Errorf("a bad address for replays: %v", err)
	}
	if l, err := listen("127.0.0.1", 65536); !errors.Is(err, ErrEndpoint) || l != nil {
		t.Errorf("the port after 65535: %v", err)
	}
	p, err := New(Config{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Addr().String() == p.ReplayAddr().String() {
		t.Error("both listeners have the same address")
	}
	if _, err := New(Config{Endpoint: "tcp://" + p.Addr().String()}); !errors.Is(err, ErrEndpoint) {
		t.Errorf("a port that is in use: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A publisher has at most 256 connections, and accepts another one when one has ended, but none after it was closed.
func TestConnectionsAreBounded(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	p := &Publisher{peers: map[*peer]bool{}}
	var last *peer
	for i := range 256 {
		if last = newPeer(near, 1); !p.enter(last) {
			t.Fatalf("connection %d was refused", i)
		}
	}
	if p.enter(newPeer(near, 1)) {
		t.Error("connection 257 was accepted")
	}
	if p.leave(last); !p.enter(last) {
		t.Error("no connection was accepted after another one had ended")
	}
	p.leave(last)
	p.closed = true
	if p.enter(last) {
		t.Error("a closed publisher accepted a connection")
	}
}

// A subscriber has joined when the first of its topics matches, and has left when no topic does.
func TestTopicsOfASubscriber(t *testing.T) {
	topic := []byte("kv@a@m")
	s := newPeer(nil, 1)
	for i, c := range []struct {
		message       string
		joined, wants bool
	}{
		{"", false, false}, {"\x02kv", false, false}, {"\x01x", false, false}, {"\x01kv@a@m2", false, false},
		{"\x01kv@", true, true}, {"\x01", false, true}, {"\x00kv@", false, true}, {"\x00kv@", false, true},
		{"\x00", false, false}, {"\x01kv@a@m", true, true}, {"\x00x", false, true},
	} {
		if joined := s.filter(topic, [][]byte{[]byte(c.message)}); joined != c.joined || s.wants(topic) != c.wants {
			t.Errorf("message %d: joined %v, wants %v", i, joined, s.wants(topic))
		}
	}
	if s.filter(topic, [][]byte{{1}, {1}}) || len(s.filters) != 2 || !s.subscribed() {
		t.Errorf("the topics are %q", s.filters)
	}
	for range 2 * maxFilters {
		s.filter(topic, [][]byte{{1, 'x'}})
	}
	if len(s.filters) != 64 {
		t.Errorf("%d topics are kept, want 64", len(s.filters))
	}
}

// Changes that were taken from the queue and applied are not kept in its memory.
func TestAppliedChangesAreForgotten(t *testing.T) {
	applied := []change{{page: page{salt: "s", tokens: []int32{1}}}}
	newQueue(nil).take(applied)
	if applied[0].tokens != nil || applied[0].salt != "" {
		t.Errorf("%+v", applied[0])
	}
}
