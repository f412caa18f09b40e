package sched

import (
	"testing"
	"time"

	"sparrow/internal/kv"
)

// divided returns a scheduler whose batches are divided, with pages of 16 tokens, and with streams that decode.
func divided(t *testing.T, pages, streams int) (*Scheduler, []*Sequence) {
	t.Helper()
	pool, err := kv.New(kv.Config{Pages: pages, PageTokens: 16, Main: "rows", Index: "keys"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New([]*kv.Pool{pool}, Limits{BatchTokens: 512, MaxRunning: 8, MaxStall: time.Millisecond, Divides: true})
	if err != nil {
		t.Fatal(err)
	}
	var list []*Sequence
	for range streams {
		q := &Sequence{Tokens: make([]int32, 15)}
		if err := s.Add(q); err != nil {
			t.Fatal(err)
		}
		list = append(list, q)
	}
	for _, q := range list {
		for !q.decoding() {
			finish(t, s, s.Schedule())
		}
	}
	return s, list
}

// finish commits a batch and samples a token for every sequence whose last known token was computed.
func finish(t *testing.T, s *Scheduler, items []Item) {
	t.Helper()
	for i := range items {
		if err := s.Done(&items[i]); err != nil {
			t.Fatal(err)
		}
		if items[i].Last {
			items[i].Seq.Tokens = append(items[i].Seq.Tokens, 1)
		}
	}
}

// A prompt that would delay streams too long gets its own batch, and the streams run between its operations. A shorter
// prompt is computed in one batch with the streams.
func TestLongPromptsAreDivided(t *testing.T) {
	s, streams := divided(t, 1000, 2)
	long := &Sequence{Tokens: make([]int32, 300)}
	if err := s.Add(long); err != nil {
		t.Fatal(err)
	}
	items := append([]Item(nil), s.Schedule()...)
	if len(items) != 1 || items[0].Seq != long || !s.Load().Divided() || !s.Load().Apart() {
		t.Fatalf("%d items, divided %v; want only the prompt", len(items), s.Load().Divided())
	}
	served := streams[0].request.served
	for i := range int64(3) {
		inner, load := s.Between()
		// Served counts batches between operations like other batches.
		if got := streams[0].request.served; got != served+i+1 {
			t.Fatalf("%d tokens of a stream were scheduled after %d batches between operations, want %d", got, i+1,
				served+i+1)
		}
		if len(inner) != 2 || inner[0].Seq != streams[0] || inner[1].Seq != streams[1] || load.Divided() ||
			!s.Load().Divided() {
			t.Fatalf("%d items between operations, want the streams", len(inner))
		}
		finish(t, s, inner)
	}
	finish(t, s, items)
	if len(streams[0].Tokens) != 15+1+3 || long.cache.Len() != len(items[0].Tokens) {
		t.Errorf("a stream has %d tokens, the prompt has %d cached tokens", len(streams[0].Tokens), long.cache.Len())
	}

	s, _ = divided(t, 1000, 2)
	s.roster.limits.MaxStall = time.Hour
	if err := s.Add(&Sequence{Tokens: make([]int32, 30)}); err != nil {
		t.Fatal(err)
	}
	if items := s.Schedule(); len(items) != 3 || s.Load().Divided() {
		t.Errorf("%d items, divided %v; want one batch with all sequences", len(items), s.Load().Divided())
	}
	// This case has an equal prompt, but the streams have already waited for nearly the maximum time.
	s, _ = divided(t, 1000, 2)
	s.roster.limits.MaxStall = time.Hour
	if err := s.Add(&Sequence{Tokens: make([]int32, 30)}); err != nil {
		t.Fatal(err)
	}
	s.Waited(time.Hour - time.Nanosecond)
	if items := s.Schedule(); len(items) != 1 || !s.Load().Divided() {
		t.Errorf("%d items, divided %v; want only the prompt", len(items), s.Load().Divided())
	}
}

// Between takes no page from the prompts of the batch in progress: a stream that finds no free page waits until the
// batch ends.
func TestBetweenTakesNoPages(t *testing.T) {
	s, streams := divided(t, 6, 2) // each stream needs a page for its second next token
	long := &Sequence{Tokens: make([]int32, 30)}
	if err := s.Add(long); err != nil {
		t.Fatal(err)
	}
	items := append([]Item(nil), s.Schedule()...)
	if len(items) != 1 || items[0].Seq != long {
		t.Fatalf("%d items, want only the prompt", len(items))
	}
	ran := 0
	for range 40 {
		inner, _ := s.Between()
		ran += len(inner)
		finish(t, s, inner)
	}
	if long.state != stateRunning || ran == 0 || ran >= 80 {
		t.Errorf("the prompt is in state %d, streams got %d of 80 tokens", long.state, ran)
	}
	for _, q := range streams {
		if q.Preempted > 0 {
			t.Error("a stream was preempted")
		}
	}
	if err := s.roster.pools[0].Check(); err != nil {
		t.Error(err)
	}
	finish(t, s, items)
}

// If pages are missing for every prompt, streams continue alone, and no sequence is preempted.
func TestDividedBatchesWithoutPages(t *testing.T) {
	s, streams := divided(t, 40, 2)
	long := &Sequence{Tokens: make([]int32, 300)}
	if err := s.Add(long); err != nil {
		t.Fatal(err)
	}
	for long.end()%16 != 0 || long.end() == 0 {
		finish(t, s, s.Schedule())
	}
	pool := s.roster.pools[0]
	other, _, err := pool.Open(make([]int32, 1), kv.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, q := range streams {
		if err := q.reserve(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Reserve(pool.Available() * 16); err != nil {
		t.Fatal(err)
	}
	if items := s.Schedule(); len(items) != 2 || !items[0].Decode || !items[1].Decode || s.Load().Divided() ||
		s.Preemptions() > 0 {
		t.Errorf("%d items, divided %v, %d preemptions; want only the streams", len(items), s.Load().Divided(),
			s.Preemptions())
	}
}
