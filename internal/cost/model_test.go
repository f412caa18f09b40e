package cost

import (
	"math"
	"testing"
)

// Invariants of this file: the work of a batch is counted by kind of row, each kind has its own times, and every
// measurement changes only what it measured.

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// A row may attend to the tokens before it. Rows before the threshold are counted apart from those after it.
func TestRowsOfAPromptAreDividedAtTheThreshold(t *testing.T) {
	for _, c := range []struct {
		n, cached, threshold int
		near, far            Rows
	}{
		{10, 0, 100, Rows{10, 10 * 5.0 / 1000}, Rows{}},
		{10, 90, 100, Rows{10, 10 * 95.0 / 1000}, Rows{}},
		{10, 94, 100, Rows{6, 6 * 97.0 / 1000}, Rows{4, 4 * 102.0 / 1000}},
		{10, 100, 100, Rows{}, Rows{10, 10 * 105.0 / 1000}},
		{10, 300, 100, Rows{}, Rows{10, 10 * 305.0 / 1000}},
		{10, 20, 0, Rows{}, Rows{10, 10 * 25.0 / 1000}},
		{0, 20, 50, Rows{}, Rows{}},
	} {
		w := Work{Near: Rows{1, 2}, Far: Rows{3, 4}}
		w.AddPrompt(c.n, c.cached, c.threshold)
		got := []float64{w.Near.N - 1, w.Near.Seen - 2, w.Far.N - 3, w.Far.Seen - 4, w.Prompts() - 4}
		for i, want := range []float64{c.near.N, c.near.Seen, c.far.N, c.far.Seen, float64(c.n)} {
			if !near(got[i], want) {
				t.Errorf("%d tokens after %d, threshold %d: added %v", c.n, c.cached, c.threshold, got)
				break
			}
		}
	}
}

// Before any measurement, the estimated time of a batch is the guessed time of its decodes plus a guessed time for each
// kind of prompt rows in it.
func TestGuessedTimes(t *testing.T) {
	m := NewModel()
	for _, c := range []struct {
		work Work
		want float64
	}{
		{Work{}, 1e-3},
		{Work{Decode: Rows{3, 5}}, 1e-3 + 3e-3 + 5e-4},
		{Work{Near: Rows{3, 5}}, 1e-3 + 1e-3 + 6e-3 + 1e-3},
		{Work{Decode: Rows{1, 0}, Near: Rows{1, 0}, Far: Rows{2, 10}}, 2e-3 + 3e-3 + 1e-3 + 4e-3 + 2e-3},
	} {
		if got := m.Predict(&c.work); !near(got, c.want) {
			t.Errorf("%+v takes %v, want %v", c.work, got, c.want)
		}
	}
}

// After batches of all kinds were measured, the times of new batches are predicted from rows and keys of each kind.
func TestTimesOfEachKindAreLearned(t *testing.T) {
	m := NewModel()
	rows := func(r Rows, each, row, keys float64) float64 {
		if r.N == 0 {
			return 0
		}
		return each + row*r.N + keys*r.Seen
	}
	takes := func(w *Work) float64 {
		return rows(w.Decode, 2e-3, 3e-4, 5e-3) + rows(w.Near, 1e-3, 5e-4, 1e-3) + rows(w.Far, 1e-3, 9e-4, 7e-3)
	}
	for i := range 400 {
		var w Work
		n, seen := float64(1+i*7%40), float64(i*13%30)/10
		switch i % 4 {
		case 0, 1:
			w.Decode = Rows{n, n * seen}
		case 2:
			w.Decode, w.Near = Rows{20, 20}, Rows{n, n * seen}
		case 3:
			w.Decode, w.Far = Rows{20, 20}, Rows{n, n * seen}
		}
		m.Observe(&w, takes(&w))
	}
	for _, w := range []Work{{Decode: Rows{8, 4}}, {Decode: Rows{30, 60}}, {Decode: Rows{4, 4}, Near: Rows{30, 20}},
		{Decode: Rows{4, 4}, Far: Rows{30, 60}}, {Decode: Rows{4, 4}, Near: Rows{10, 2}, Far: Rows{20, 30}}} {
		if got, want := m.Predict(&w), takes(&w); math.Abs(got-want) > 0.1*want {
			t.Errorf("%+v takes %v, predicted %v", w, want, got)
		}
	}
	if n := m.Prompts(); n != 200 {
		t.Errorf("%d batches with prompts, want 200", n)
	}
}

// A measurement without time is ignored, and one that is far too long counts as three times the prediction. A batch
// without decodes changes neither the time of decodes nor the allowed lateness of batches with decodes.
func TestWhatAMeasurementChanges(t *testing.T) {
	prompt, mixed := Work{Near: Rows{5, 1}}, Work{Decode: Rows{4, 4}, Near: Rows{5, 1}}
	decodes := Work{Decode: Rows{4, 4}}
	for _, w := range []Work{prompt, mixed, decodes} {
		before := NewModel()
		for _, seconds := range []float64{0, -1} {
			m := before
			if m.Observe(&w, seconds); m != before {
				t.Errorf("%+v: a time of %v changed the model", w, seconds)
			}
		}
		long, limit := before, before
		long.Observe(&w, 1000*before.Predict(&w))
		limit.Observe(&w, Outlier*before.Predict(&w))
		if !near(long.Predict(&w), limit.Predict(&w)) || long.Predict(&w) <= before.Predict(&w) {
			t.Errorf("%+v: predicted %v, then %v after a time that is a thousand times as long, %v after three times",
				w, before.Predict(&w), long.Predict(&w), limit.Predict(&w))
		}
	}
	m := NewModel()
	m.Observe(&prompt, 1e-6)
	if got, late := m.Decoding(&decodes), m.Late(); !near(got, 1e-3+4e-3+4e-4) || late != firstLate {
		t.Errorf("a short prompt alone: decodes take %v, late %v", got, late)
	}
	m.Observe(&mixed, 1e-4)
	if got, late := m.Decoding(&mixed), m.Late(); got > 3e-3 || late >= firstLate {
		t.Errorf("a batch shorter than its decodes: decodes take %v, late %v", got, late)
	}
	m = NewModel()
	m.Observe(&mixed, 10)
	if m.Late() <= firstLate {
		t.Errorf("a late batch with decodes: late %v", m.Late())
	}
	m = NewModel()
	m.Observe(&decodes, 10)
	if m.Late() != firstLate || m.Prompts() != 0 {
		t.Errorf("a batch of decodes: late %v, %d batches with prompts", m.Late(), m.Prompts())
	}
}

// The time of decodes is known up to the largest batch of decodes that was observed alone; before, all time is that of
// the prompts.
func TestKnownDecodes(t *testing.T) {
	m := NewModel()
	w := Work{Decode: Rows{8, 16}, Near: Rows{5, 1}}
	if got := m.knownDecoding(&w); got != 0 {
		t.Errorf("%v s of decodes are known before any was observed", got)
	}
	m.Observe(&w, 0.02)
	if got := m.knownDecoding(&w); got != 0 {
		t.Errorf("%v s of decodes are known after a batch with prompts", got)
	}
	for _, rows := range []float64{4, 2} { // a smaller batch does not reduce it
		m.Observe(&Work{Decode: Rows{rows, rows}}, 0.01)
		half := Work{Decode: Rows{4, 8}}
		if got := m.knownDecoding(&w); got != m.Decoding(&half) {
			t.Errorf("after a batch of %v decodes %v s are known, want %v", rows, got, m.Decoding(&half))
		}
	}
}

// Predictions are trusted up to one and a half times the rows of each kind that were observed lately, or up to the
// given number.
func TestTrustFades(t *testing.T) {
	m := NewModel()
	m.Observe(&Work{Near: Rows{100, 1}, Far: Rows{40, 1}}, 1)
	for i := range 12 {
		for _, c := range []struct {
			kind     func(n float64) Work
			observed float64
		}{{func(n float64) Work { return Work{Near: Rows{N: n}} }, 100},
			{func(n float64) Work { return Work{Far: Rows{N: n}} }, 40}} {
			limit := 1.5 * c.observed * math.Pow(0.9, float64(i))
			if few, many := c.kind(limit*0.999), c.kind(limit*1.001); !m.Trusts(&few, 1) || m.Trusts(&many, 1) {
				t.Errorf("%d batches after %v rows: %v are trusted %t, %v %t", i, c.observed, few, m.Trusts(&few, 1),
					many, m.Trusts(&many, 1))
			}
			least, more := c.kind(500), c.kind(501)
			if !m.Trusts(&least, 500) || m.Trusts(&more, 500) {
				t.Errorf("not all of 500 rows are trusted, or more")
			}
		}
		m.Observe(&Work{Decode: Rows{200, 1}, Near: Rows{1, 0}}, 1)
	}
}
