package sparrow

import (
	"fmt"
	"maps"
	"testing"

	"sparrow/internal/device"
	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

func drafts(t *testing.T, n int) spec.Setting {
	t.Helper()
	s, err := spec.Fixed(n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Pages of the prefix cache also contain the rows of the drafting layer. Therefore the first draft is accepted as often
// after a cached prompt as after a prompt that was computed completely.
func TestReusedPagesHoldDraftRows(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{Draft: drafts(t, 1)})
	question := ask("Leo starts with 40 photos. Leo throws away 13 photos. Leo wins 9 photos in a game. " +
		"Leo collects another 4 photos. Leo wins 2 photos in a game. Leo throws away 3 photos. " +
		"How many photos does Leo have now?")
	var shares []DraftCount
	for range 2 {
		before := e.Stats().Drafts[0]
		out := generate(t, e, Request{Chat: question, Sampling: greedy()})
		after := e.Stats().Drafts[0]
		shares = append(shares, DraftCount{Judged: after.Judged - before.Judged, Right: after.Right - before.Right})
		if len(shares) == 2 && out.Usage.CachedTokens == 0 {
			t.Error("no page was reused")
		}
	}
	if shares[0] != shares[1] || shares[0].Right == 0 {
		t.Errorf("accepted drafts: %+v without reused pages, %+v with reused pages", shares[0], shares[1])
	}
}

// An engine that drafts counts each kind of row in its own counter.
func TestDraftRowsAreCounted(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{Draft: drafts(t, 2)})
	out := generate(t, e, Request{Chat: ask("Goodbye"), Sampling: greedy(), Trace: true})
	rows := map[plan.RowKind]int64{}
	for _, p := range e.Stats().Plans {
		rows[p.Row] += p.Rows
	}
	if rows[plan.RowVerify] == 0 || rows[plan.RowDraft] == 0 || rows[plan.RowDensePrefill] == 0 {
		t.Errorf("rows %v", rows)
	}
	u := out.Usage
	if st := e.Stats(); st.Drafted != int64(u.DraftedTokens) || st.Accepted != int64(u.AcceptedTokens) ||
		u.AcceptedTokens == 0 || u.AcceptedTokens > u.DraftedTokens {
		t.Errorf("usage %+v; the statistics count %d drafted and %d accepted tokens", u, st.Drafted, st.Accepted)
	}
	kinds := map[plan.Mode]bool{}
	for _, p := range out.Trace.Plans {
		kinds[p.Plan.Mode] = true
	}
	if want := map[plan.Mode]bool{plan.ModeExtend: true, plan.ModeVerify: true}; !maps.Equal(kinds, want) &&
		!kinds[plan.ModeVerify] {
		t.Errorf("the trace shows %v", kinds)
	}
}

// BenchmarkDecodeAlone decodes one sequence with the built-in model, with and without drafts.
func BenchmarkDecodeAlone(b *testing.B) {
	for _, s := range []spec.Setting{spec.Off(), must(spec.Fixed(1)), must(spec.Fixed(2)), must(spec.Fixed(4)),
		spec.Auto()} {
		b.Run(fmt.Sprint("draft ", s), func(b *testing.B) {
			e, err := Open(b.Context(), Config{Draft: s})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close(b.Context())
			question := Request{Sampling: greedy(), Trace: true,
				Chat: ask("Leo starts with 40 photos. Leo throws away " +
					"13 photos. Leo wins 9 photos in a game. How many photos does Leo have now?")}
			tokens, seconds := 0, 0.0
			for b.Loop() {
				out, err := e.Generate(b.Context(), question)
				if err != nil {
					b.Fatal(err)
				}
				tokens += out.Usage.CompletionTokens - 1
				seconds += out.Trace.Decode.Seconds()
			}
			b.ReportMetric(float64(tokens)/seconds, "tokens/s")
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// If drafts are off, a CPU reads, and a GPU stores, as many bytes of weights as for a checkpoint without drafting
// layers.
func TestDraftsOffLoadNoDraftingLayers(t *testing.T) {
	for _, c := range []struct{ drafting, plain string }{{testmodel.V4Spark(t), testmodel.V4(t)},
		{testmodel.V4Draft(t), testmodel.V4(t)}, {testmodel.V32Draft(t), testmodel.V32(t)},
		{testmodel.NextDraft(t), testmodel.Next(t)}} {
		read := func(dir string, s spec.Setting) (done int64) {
			e := start(t, Config{Model: dir, Kernels: "cpu", Workers: 1, Draft: s,
				OnLoad: func(n, _ int64) { done = n }})
			if m := e.Info().Memory.Weights; m != done {
				t.Errorf("%s: %d bytes were read, the engine states %d", dir, done, m)
			}
			return done
		}
		off, plain, all := read(c.drafting, spec.Off()), read(c.plain, spec.Off()), read(c.drafting, spec.Setting{})
		if off != plain || all <= plain {
			t.Errorf("%s: %d bytes of %d were read, %d without drafting layers", c.drafting, off, all, plain)
		}
	}
	stored := func(dir string, s spec.Setting) int64 {
		p, err := readParts(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer p.source.Close()
		cfg := Config{Kernels: "cuda", Draft: s}.withDefaults()
		cfg.leaveOut(p.source)
		dev, err := machine(80<<30, nil).Open("cuda", kernel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		n, err := device.Need(p.source, dev, kernel.Member{}, cfg.onDevice(dev, p.source.Model).engine(p))
		if err != nil {
			t.Fatal(err)
		}
		return n.Weights
	}
	off, plain := stored(testmodel.V4Spark(t), spec.Off()), stored(testmodel.V4(t), spec.Off())
	if all := stored(testmodel.V4Spark(t), spec.Setting{}); off != plain || all <= plain {
		t.Errorf("%d bytes of %d were stored, %d without drafting layers", off, all, plain)
	}
}
