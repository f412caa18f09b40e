package sparrow

import (
	"context"
	"errors"
	"testing"

	"sparrow/internal/testmodel"
	"sparrow/sample"
)

// tinyFP8 is a small random checkpoint from the reference outputs; it has no tokenizer.
const tinyFP8 = "testdata/oracle/deepseek_v32-fp8-1"

func TestMain(m *testing.M) { testmodel.Run(m) }

// start opens an engine. When the test ends, it closes the engine and checks that everything is released.
func start(t *testing.T, c Config) *Engine {
	t.Helper()
	if c.Workers == 0 {
		c.Workers = 1 // results do not depend on the number of workers, and with small models more of them only spin
	}
	if c.CacheTokens == 0 {
		c.CacheTokens = 256 * 64 // clearing the default cache of four contexts takes long
	}
	e, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		checkEmpty(t, e)
	})
	return e
}

// notUnderRace skips tests of results, one request at a time, under the race detector: they take ten times as long
// there, and the tests of streams and cancellation use the same goroutines.
func notUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one request at a time")
	}
}

// checkEmpty checks that a stopped engine has no page in use and no request without an answer.
func checkEmpty(t *testing.T, e *Engine) {
	t.Helper()
	st := e.Stats()
	if st.KV.Used != 0 || st.KV.Sequences != 0 || st.Running != 0 || st.Waiting != 0 {
		t.Errorf("still held: %d pages, %d sequences, %d running, %d waiting", st.KV.Used, st.KV.Sequences, st.Running,
			st.Waiting)
	}
	if done := st.Finished + st.Aborted + st.Failed; done != st.Requests {
		t.Errorf("%d requests were accepted, %d ended: %d finished, %d aborted, %d failed",
			st.Requests, done, st.Finished, st.Aborted, st.Failed)
	}
}

// tokens returns a prompt of n tokens that depends on the seed.
func tokens(seed, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*i*7 + i*31*seed + seed*977 + 2) % 640)
	}
	return out
}

// greedy returns parameters that choose the most probable token; seeded returns parameters that sample with a seed.
func greedy() sample.Params {
	p := sample.Default()
	p.Temperature = 0
	return p
}

func seeded(seed int64) sample.Params {
	p := sample.Default()
	p.Seed = seed
	return p
}

// generate runs a request to its end and returns the response.
func generate(t *testing.T, e *Engine, r Request) *Response {
	t.Helper()
	out, err := e.Generate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, e *Engine, r Request) *Stream {
	t.Helper()
	s, err := e.Stream(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ids returns the tokens of an answer.
func ids(a Answer) []int32 {
	out := make([]int32, len(a.Tokens))
	for i := range a.Tokens {
		out[i] = a.Tokens[i].ID
	}
	return out
}

// errCause is the cause with which tests cancel.
var errCause = errors.New("the test's own cause")
