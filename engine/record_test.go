package engine

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testkit/strict"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// Requests with records are refused by an estimate of their bytes, which is a close upper bound of the bytes that they
// return. Passes record only the requested rows, and plans of batches without such rows record nothing.
func TestRecordedBytesAreBounded(t *testing.T) {
	if raceEnabled {
		t.Skip("one request at a time: TestSharedSelectionsName uses the same goroutines")
	}
	var passes, plain int
	e := start(t, tinyGLM, Config{}, after(func(works []step.Work, res step.Result) {
		want := 0
		for i := range works {
			want += works[i].RecordTo - works[i].RecordFrom
		}
		if p := res.Plan; p.Recorded != want || (want == 0) != (p.Record == plan.Record{}) {
			t.Errorf("a plan records %d rows (%+v), want %d", p.Recorded, p.Record, want)
		}
		if passes++; want == 0 {
			plain++
		}
	}))
	for _, r := range []Record{{Selections: true}, {Experts: true}, {Selections: true, Tokens: RecordAll},
		{Selections: true, Scores: true, Experts: true, Tokens: RecordAll},
		{Selections: true, Layers: []int{2}, Tokens: RecordRange, From: 140, To: 155}} {
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			ask := Request{Prompt: tokens(4, 150), MaxTokens: 10, Sampling: greedy(), IgnoreEOS: true, Record: &r,
				Tenant: fmt.Sprintf("%+v", r)} // each request has its own tenant, so that no row is cached
			ask.Sampling.N = 1
			j := open(t, e, ask)
			sent := 0
			for ev := range j.events() {
				if ev.Err != nil {
					t.Fatal(ev.Err)
				}
				if ev.Recorded != nil {
					sent += len(ev.Recorded.AppendJSON(nil))
				}
			}
			bound := e.intake.recordedBytes(&ask, 10)
			if sent == 0 || int64(sent) > bound || bound > 3*int64(sent) {
				t.Errorf("%d bytes are sent, the estimate is %d", sent, bound)
			}
		})
	}
	generate(t, e, Request{Prompt: tokens(4, 150), MaxTokens: 3, Sampling: greedy()})
	if plain == 0 || plain == passes {
		t.Errorf("%d of %d passes record no row", plain, passes)
	}
}

// longestRow returns a row of the maximum size for its position: selected positions are so far apart that as many
// differences as possible take more than one byte.
func longestRow(k *step.Recording, position int) record.Row {
	s, row := &k.Shape, record.Row{Position: position}
	spread := func(n, of, unit int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[n-1-i] = int32(max(of-1-i*((128+unit-1)/unit), n-1-i))
		}
		return out
	}
	for l := range s.Layers {
		group := max(s.Layers[l].Group, 1)
		x := record.Layer{Layer: l, Keys: position + 1, Group: s.Layers[l].Group, Window: s.Layers[l].Window}
		visible := s.Visible(l, position+1)
		switch {
		case !s.Selects(l) && s.Layers[l].As >= 0:
			x.As = &s.Layers[l].As
		case !s.Selects(l) || visible <= s.TopK:
			x.All = true
		default:
			x.Selected = record.AppendPositions(nil, spread(s.TopK, visible, group), group)
			if k.What.Scores {
				x.Scores = make([]byte, 4*s.TopK)
			}
		}
		if s.Blocks > 0 && l == s.BlockLayer && visible > s.Blocks*s.BlockKeys {
			x.Block = s.BlockKeys
			x.Candidates = record.AppendPositions(nil, spread(s.Blocks, visible/x.Block, x.Block*group), x.Block*group)
		}
		if k.Layers[l] {
			row.Layers = append(row.Layers, x)
		}
		if k.What.Experts && s.Layers[l].Experts {
			row.Experts = append(row.Experts, record.Experts{Layer: l, IDs: make([]byte, 2*s.Chosen),
				Weights: make([]byte, 4*s.Chosen)})
		}
	}
	return row
}

// The estimate of the bytes of a request is an upper bound for the longest possible rows. The bytes of such a row are
// its data and 80 bytes for the field names of each row, layer and list. The bound is tested for every kind of record,
// number of choices and family, at the context length where rows begin to select and at much greater lengths.
func TestTheBoundOfRecordsHoldsForTheLongestRows(t *testing.T) {
	type span struct{ from, to int }
	for name, dir := range map[string]string{"glm": tinyGLM, "v4": testmodel.V4(t), "v4.1": testmodel.V41(t)} {
		in := *still(t, dir, Config{CacheTokens: 1024}).intake
		setup := *in.setup
		setup.info.Config.Model.Experts.Chosen = 8
		in.setup = &setup
		last := setup.info.Config.Model.Layers - 1
		for _, what := range []Record{{Selections: true}, {Experts: true}, {Selections: true, Scores: true},
			{Selections: true, Layers: []int{last}},
			{Selections: true, Scores: true, Experts: true, Layers: []int{0}}} {
			for _, c := range []struct {
				kind          RecordTokens
				at            span // requested range of rows (RecordRange)
				prompt, given int  // number of prompt tokens, number of given tokens
				n, answer     int
				rows          span // half-open range of rows that are recorded
			}{
				{RecordOutput, span{}, 40_000, 0, 1, 10, span{39_999, 40_009}},
				{RecordOutput, span{}, 40_000, 0, 3, 1, span{39_999, 40_000}},
				{RecordOutput, span{}, 100, 60, 2, 5, span{159, 164}},
				{RecordAll, span{}, 700, 0, 1, 0, span{0, 700}},
				{RecordAll, span{}, 700, 20, 2, 3, span{0, 722}},
				{RecordRange, span{120, 140}, 700, 0, 1, 1, span{120, 140}},
				{RecordRange, span{690, 800}, 700, 0, 1, 5, span{690, 704}},
				{RecordRange, span{800, 900}, 700, 0, 1, 5, span{}},
				{RecordRange, span{699, 700}, 700, 0, 1, 5, span{699, 700}},
			} {
				what.Tokens, what.From, what.To = c.kind, c.at.from, c.at.to
				ask := Request{Prompt: make([]int32, c.prompt), Record: &what, Sampling: greedy()}
				if ask.Sampling.N = c.n; c.given > 0 {
					ask.Score = &Score{Continuations: slices.Repeat([][]int32{make([]int32, c.given)}, c.n)}
				}
				rows, names, data := &record.Rows{}, 0, 0
				for p := c.rows.from; p < c.rows.to; p++ {
					row := longestRow(in.newRecording(&what), p)
					rows.Rows = append(rows.Rows, row)
					names += 1 + len(row.Layers) + len(row.Experts)
					for _, l := range row.Layers {
						names += min(len(l.Candidates), 1)
						data += len(l.Selected) + len(l.Scores) + len(l.Candidates)
					}
					for _, x := range row.Experts {
						data += len(x.IDs) + len(x.Weights)
					}
				}
				sent := 0
				if len(rows.Rows) > 0 {
					sent = c.n * (len(rows.AppendJSON(nil)) - len(`{"rows":[]}`))
				}
				least := c.n * (80*names + data*4/3)
				// The bound counts all rows with the length of the last row and rounds each list to whole bytes.
				most := least + least/100 + c.n*2*names
				least -= c.n * 2 * names
				if got := int(in.recordedBytes(&ask, c.answer)); got < sent || got < least || got > most {
					t.Errorf("%s, %+v of %+v: %d bytes are sent, the estimate is %d; want an estimate of %d to %d",
						name, what, c, sent, got, least, most)
				}
			}
		}
	}
}

// Every token has the row that produced it, also if several tokens come from one pass because drafts were right.
func TestRowsOfAcceptedDrafts(t *testing.T) {
	const prompt, answer = 10, 14
	dir := testmodel.V32Draft(t)
	r := Request{Prompt: tokens(1, prompt), Sampling: greedy(), MaxTokens: answer, IgnoreEOS: true}
	logits, _ := targetLogits(t, dir, r)
	for _, kind := range []RecordTokens{RecordOutput, RecordAll} {
		e := start(t, dir, Config{Draft: drafts(t, 3)}, checked(t), func(e *Engine) { e.cfg.EOS = nil },
			drafting(func(w *step.Draft, row []float32) { copy(row, logits[w.Cached+len(w.Tokens)+1-prompt]) }))
		r.Record = &Record{Experts: true, Tokens: kind}
		made := 0
		for ev := range open(t, e, r).events() {
			if ev.Token < 0 {
				if ev.Recorded != nil {
					t.Errorf("%d rows have no token", len(ev.Recorded.Rows))
				}
				continue
			}
			first, end := prompt-1+made, prompt+made
			if kind == RecordAll && made == 0 {
				first = 0
			}
			var got, want []int
			for _, row := range ev.Recorded.Rows {
				got = append(got, row.Position)
			}
			for at := first; at < end; at++ {
				want = append(want, at)
			}
			if !slices.Equal(got, want) {
				t.Errorf("token %d has the rows %v, want %v", made, got, want)
			}
			made++
		}
		if st := e.Stats(); made != answer || st.Accepted < 9 {
			t.Errorf("%d tokens, %d drafts were accepted", made, st.Accepted)
		}
	}
}

// If a recorded layer shares another layer's selection, the other layer is recorded too.
func TestSharedSelectionsName(t *testing.T) {
	e := start(t, tinyGLM, Config{})
	var rows []record.Row
	j := open(t, e, Request{Prompt: tokens(4, 150), MaxTokens: 2, Sampling: greedy(), IgnoreEOS: true,
		Record: &Record{Selections: true, Layers: []int{2}}})
	for ev := range j.events() {
		if ev.Recorded != nil {
			rows = append(rows, ev.Recorded.Rows...)
		}
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if len(r.Layers) != 2 || r.Layers[0].Layer != 1 || len(r.Layers[0].Selected) == 0 || r.Layers[1].As == nil ||
			*r.Layers[1].As != 1 || r.Layers[1].Selected != nil {
			t.Errorf("row %+v, want layer 1, and layer 2 with As set to 1", r)
		}
	}
}

// Selections, their scores and experts are recorded and replayed under the rules of a GPU.
func TestRecordingOnAGPU(t *testing.T) {
	alone(t, "the test uses a single device with the rules of a GPU")
	if raceEnabled {
		t.Skip("one request at a time: TestSharedSelectionsName uses the same goroutines")
	}
	// The cache layout and shapes of this engine are supported by the CUDA operations.
	built, err := buildOver(t, tinyGLM, Config{CacheTokens: 1024, Policy: plan.Policy{KV: "fp8"}}, kernel.Options{},
		func(d kernel.Device) kernel.Device {
			s, err := strict.Open(d)
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	if err != nil {
		t.Fatal(err)
	}
	e, run := running(t, built)
	run()
	if e.info.Config.Hardware.Arch == plan.CPU {
		t.Fatal("the plans are for a CPU, want a GPU")
	}
	ask := Request{Prompt: tokens(4, 150), MaxTokens: 3, Sampling: greedy(), IgnoreEOS: true,
		Record: &Record{Selections: true, Scores: true, Experts: true, Tokens: RecordAll}}
	recorded := func(r Request) (rows []record.Row, out []int32) {
		for ev := range open(t, e, r).events() {
			if ev.Err != nil {
				t.Fatal(ev.Err)
			}
			if ev.Recorded != nil {
				rows = append(rows, ev.Recorded.Rows...)
			}
			if ev.Token >= 0 {
				out = append(out, ev.Token)
			}
		}
		return rows, out
	}
	rows, out := recorded(ask)
	if n := len(rows); n != 152 || len(rows[151].Layers[0].Selected) == 0 || len(rows[151].Experts) == 0 {
		t.Fatalf("%d rows", n)
	}
	if l := rows[151].Layers[0]; len(l.Scores) != 4*record.CountPositions(l.Selected) {
		t.Errorf("%d bytes of scores for %d positions", len(l.Scores), record.CountPositions(l.Selected))
	}
	ask.Replay = rows
	again, same := recorded(ask)
	if !slices.Equal(out, same) || len(again) != len(rows) {
		t.Fatalf("with replay: %d rows and tokens %v; want %d and %v", len(again), same, len(rows), out)
	}
	for i := range rows {
		for l := range rows[i].Layers {
			if !bytes.Equal(again[i].Layers[l].Selected, rows[i].Layers[l].Selected) {
				t.Fatalf("with replay: the selection of row %d in layer %d differs", i, l)
			}
		}
		if !reflect.DeepEqual(again[i].Experts, rows[i].Experts) {
			t.Fatalf("with replay: the experts of row %d differ", i)
		}
	}
}
