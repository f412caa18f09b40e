package plan

import (
	"strings"
	"testing"
)

// TestKeyCoversEverythingAGraphDependsOn changes one field at a time and checks that the key of the plan changes.
func TestKeyCoversEverythingAGraphDependsOn(t *testing.T) {
	cfg := newSetup(t, "sm90", kv("fp8")).resolve(t)
	base := func() *Plan { return build(t, cfg, decode(100, 200)) }
	key := base().Key
	for name, change := range map[string]func(*Plan, *Segment){
		"mode":                     func(p *Plan, _ *Segment) { p.Mode = ModeVerify },
		"graph":                    func(p *Plan, _ *Segment) { p.Graph = GraphCapture },
		"table width":              func(p *Plan, _ *Segment) { p.TablePages++ },
		"row kind":                 func(_ *Plan, s *Segment) { s.Row = RowDraft },
		"form":                     func(_ *Plan, s *Segment) { s.Form = FormV4Paged },
		"kernel":                   func(_ *Plan, s *Segment) { s.Kernel = SparseRaw },
		"layout":                   func(_ *Plan, s *Segment) { s.Layout = FP8Row576 },
		"convert":                  func(_ *Plan, s *Segment) { s.Convert = ConvertRawToBlock },
		"transform":                func(_ *Plan, s *Segment) { s.Transform = TransformRagged },
		"indexer":                  func(_ *Plan, s *Segment) { s.Indexer.Kind = IndexerPagedNative },
		"variant":                  func(_ *Plan, s *Segment) { s.Variant = VariantLong },
		"fusion":                   func(_ *Plan, s *Segment) { s.FusedTopK = !s.FusedTopK },
		"indices":                  func(_ *Plan, s *Segment) { s.NeedIndices = !s.NeedIndices },
		"rope":                     func(_ *Plan, s *Segment) { s.RopeInKernel = true },
		"splits":                   func(_ *Plan, s *Segment) { s.SplitsFixed = !s.SplitsFixed },
		"kernel rows":              func(_ *Plan, s *Segment) { s.KernelRows++ },
		"requests":                 func(_ *Plan, s *Segment) { s.Requests++ },
		"rows a request":           func(_ *Plan, s *Segment) { s.NextN = 2 },
		"heads":                    func(_ *Plan, s *Segment) { s.KernelHeads = 128 },
		"head repeat":              func(_ *Plan, s *Segment) { s.HeadRepeat = 2 },
		"chunk":                    func(_ *Plan, s *Segment) { s.Indexer.RowsPerChunk++ },
		"score width":              func(_ *Plan, s *Segment) { s.Indexer.ScoreWidth++ },
		"kernel rows of a request": func(_ *Plan, s *Segment) { s.Indexer.KernelN++ },
		"schedule":                 func(_ *Plan, s *Segment) { s.Indexer.Schedule = ScheduleOwn },
		"row limit":                func(_ *Plan, s *Segment) { s.RowsPerLaunch-- },
		"launches": func(_ *Plan, s *Segment) {
			s.Launches = []Launch{{Rows: 1}, {FirstRow: 1,
				Rows: 1}}
		},
	} {
		p := base()
		change(p, &p.Segments[0])
		if keyOf(&cfg, p) == key {
			t.Errorf("the key ignores %s", name)
		}
	}
	for name, change := range map[string]func(*Plan){
		"hidden rows":         func(p *Plan) { p.Record.Hidden = true },
		"recorded selections": func(p *Plan) { p.Record.Selections = true },
		"recorded scores":     func(p *Plan) { p.Record.Scores = true },
		"recorded experts":    func(p *Plan) { p.Record.Experts = true },
		"replayed selections": func(p *Plan) { p.Replay.Selections = true },
		"replayed experts":    func(p *Plan) { p.Replay.Experts = true },
		"recorded rows":       func(p *Plan) { p.Recorded++ },
		"replayed rows":       func(p *Plan) { p.Replayed++ },
		"draws":               func(p *Plan) { p.Draws = true },
		"the rank of rows":    func(p *Plan) { p.Segments[0].Rank++ },
	} {
		with := func() *Plan {
			p := base()
			p.Recorded, p.Replayed, p.Shares = 1, 1, []Share{{}, {}}
			return p
		}
		p := with()
		change(p)
		if keyOf(&cfg, p) == keyOf(&cfg, with()) {
			t.Errorf("the key ignores %s", name)
		}
	}
	t.Run("reasons do not enter", func(t *testing.T) {
		p := base()
		p.Segments[0].Reasons, p.Segments[0].Rejected = nil, nil
		want(t, "key", keyOf(&cfg, p), key)
	})
	t.Run("the spans of prompts enter", func(t *testing.T) {
		a, b := build(t, cfg, extend(100, 300)).Key, build(t, cfg, extend(300, 100)).Key
		if a == b {
			t.Error("two orders of prompts share a key")
		}
	})
	t.Run("the configuration enters", func(t *testing.T) {
		other := newSetup(t, "sm90", kv("fp8"), heads(32)).resolve(t)
		if build(t, other, decode(100, 200)).Key == key {
			t.Error("two models share a key")
		}
	})
	t.Run("a key is stable and written as hex", func(t *testing.T) {
		want(t, "key of nothing", Key(newHash()), 0xcbf29ce484222325)
		var k Key
		if err := k.UnmarshalText([]byte(key.String())); err != nil || k != key {
			t.Errorf("%v, %v", k, err)
		}
		if err := k.UnmarshalText([]byte("xyz")); err == nil {
			t.Error("xyz was read as a key")
		}
	})
}

func TestShapeTellsBatchesApart(t *testing.T) {
	cfg := newSetup(t, "sm90", drafts(2)).resolve(t)
	shape := func(b Batch) Shape {
		sh, err := ShapeOf(cfg, b)
		if err != nil {
			t.Fatal(err)
		}
		return sh
	}
	with := func(change func(*Request), n int) Batch { // changes n of two decodes
		b := decode(5, 6)
		for i := range n {
			change(&b.Requests[i])
		}
		return b
	}
	padded := decode(5, 6)
	padded.PaddedRows = 8
	wide := decode(5, 6)
	wide.TablePages = 64
	seen := map[Shape]string{}
	for name, b := range map[string]Batch{
		"decode of 2": decode(5, 6), "decode of 3": decode(5, 6, 7), "padded": padded, "wide": wide,
		"captured": inGraph(GraphCapture, decode(5, 6)), "verify": verify(5, 6), "draft": draft(5, 6),
		"verify of 4":       NewBatch(ModeVerify, VerifyRequest(4, 5), VerifyRequest(4, 6)),
		"two widths":        NewBatch(ModeVerify, VerifyRequest(2, 5), VerifyRequest(4, 6)),
		"two widths turned": NewBatch(ModeVerify, VerifyRequest(4, 5), VerifyRequest(2, 6)), "extend": extend(5, 6),
		"extend turned": extend(6, 5), "extend with prefix": extendOver(5, 6), "longer prefix": extendOver(5, 7),
		"mixed": NewBatch(ModeMixed, ExtendRequest(5, 0), DecodeRequest(6)), "idle": {Mode: ModeIdle},
		"one recorded row":  with(func(r *Request) { r.Records = 1 }, 1),
		"two recorded rows": with(func(r *Request) { r.Records = 1 }, 2),
		"one replayed row":  with(func(r *Request) { r.Replays = 1 }, 1),
		"two replayed rows": with(func(r *Request) { r.Replays = 1 }, 2),
		"one row of logits": with(func(r *Request) { r.Logits = 1 }, 1),
		"logits of both":    with(func(r *Request) { r.Logits = 1 }, 2),
		"best of one":       with(func(r *Request) { r.Best = true }, 1),
		"best of both":      with(func(r *Request) { r.Best = true }, 2),
		"one long decode":   decode(5, 6000), "a long decode of two kinds": NewBatch(ModeVerify, VerifyRequest(2, 5),
			VerifyRequest(4, 6000)),
	} {
		sh := shape(b)
		if other, ok := seen[sh]; ok {
			t.Errorf("%s and %s share the shape %+v", name, other, sh)
		}
		seen[sh] = name
	}
}

// Padding requests do not create new shapes: a padded batch has the shape of a full batch of that size.
func TestPaddingHasNoShapeOfItsOwn(t *testing.T) {
	cfg := newSetup(t, "sm90", drafts(2)).resolve(t)
	for name, pair := range map[string][2]Batch{
		"decode": {decode(500, 60, 7), NewBatch(ModeDecode, DecodeRequest(500), DecodeRequest(60),
			Request{Padding: true})},
		"verify": {verify(500, 60), NewBatch(ModeVerify, VerifyRequest(2, 500), Request{N: 2, Padding: true})},
	} {
		full, err := ShapeOf(cfg, pair[0])
		if err != nil {
			t.Fatal(err)
		}
		padded, err := ShapeOf(cfg, pair[1])
		if err != nil || padded != full {
			t.Errorf("%s: %+v, %v; want %+v", name, padded, err, full)
		}
	}
}

func TestConfigurationExplainsItself(t *testing.T) {
	asked := newSetup(t, "sm90", kv("fp8"), kernelsOf("sparse-flat", "")).resolve(t)
	for _, r := range asked.Rejected {
		if r.Kernel == SparseBlock && r.Phase == PhasePrefill &&
			!strings.Contains(r.Reason, "sparse-flat was requested") {
			t.Errorf("sparse-block was rejected because %q", r.Reason)
		}
		if r.Kernel == SparseRaw && r.Code != E04 {
			t.Errorf("sparse-raw was rejected with %s: %s", r.Code, r.Reason)
		}
	}
	t.Run("a threshold above the capacity is lowered with a notice", func(t *testing.T) {
		s := newSetup(t, "cpu",
			wish(func(p *Policy) { p.DenseThreshold = 200000 }))
		cfg, notices, err := Resolve(s.hw, s.model, s.policy)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "T", cfg.T, DefaultChunkCapacity)
		found := false
		for _, n := range notices {
			found = found || n.Level == NoticeWarning && strings.Contains(n.Text, "lowered")
		}
		want(t, "noticed", found, true)
	})
	t.Run("a dense wish that cannot be met is noticed", func(t *testing.T) {
		s := newSetup(t, "cpu", wish(func(p *Policy) { p.Dense, p.Deterministic = SwitchOn, true }))
		_, notices, err := Resolve(s.hw, s.model, s.policy)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, n := range notices {
			found = found || strings.Contains(n.Text, "but is off")
		}
		want(t, "noticed", found, true)
	})
	t.Run("later changes to the inputs do not reach the configuration", func(t *testing.T) {
		s := newSetup(t, "sm90", family(t, "deepseek_v4"))
		s.model.Share.Types = []bool{false, true}
		s.hw.Missing = []Kernel{V4Flat}
		cfg := s.resolve(t)
		s.model.Ratios[2], s.hw.NativeNextN[0], s.hw.Missing[0], s.model.Share.Types[1] = 77, 77, FA3, false
		want(t, "ratio", cfg.Model.Ratios[2], 4)
		want(t, "native width", cfg.Hardware.NativeNextN[0], 2)
		want(t, "missing", cfg.Hardware.Missing[0], V4Flat)
		want(t, "shared", cfg.Model.Share.Types[1], true)
	})
	t.Run("index heads are padded on every path", func(t *testing.T) {
		few := func(s *setup) { s.model.IndexHeads = 4 }
		for hw, n := range map[string]int{"sm90": 32, "cpu": 4} {
			cfg := newSetup(t, hw, few).resolve(t)
			want(t, "ragged", only(t, build(t, cfg, extendOver(5, 5000))).Indexer.Heads, n)
			want(t, "paged", only(t, build(t, cfg, decode(5))).Indexer.Heads, n)
		}
	})
	t.Run("scores of a GPU begin every row at sixteen bytes", func(t *testing.T) {
		for hw, n := range map[string]int{"sm90": 5008, "cpu": 5005} {
			cfg := newSetup(t, hw).resolve(t)
			want(t, hw, only(t, build(t, cfg, extendOver(5, 5000))).Indexer.ScoreWidth, n)
		}
	})
	t.Run("a dense plan holds nothing that a selection needs", func(t *testing.T) {
		selects := []ArrayName{Kept, PageTable, IndexSlots, IndexStart, ConvertPages, ConvertTables}
		for _, hw := range []string{"cpu", "sm90"} {
			cfg := newSetup(t, hw, kv("fp8")).resolve(t)
			dense, mixed := build(t, cfg, extend(100, cfg.T)), build(t, cfg, NewBatch(ModeMixed, ExtendRequest(100, 0),
				DecodeRequest(9)))
			want(t, "selects", dense.Selects(), false)
			want(t, "a decode beside it selects", mixed.Selects(), true)
			s := only(t, dense)
			if s.NeedIndices || s.FusedTopK || s.Scores() || s.Indexer != (Indexer{Kind: IndexerKOnly,
				Heads: s.Indexer.Heads}) {
				t.Errorf("%s: %+v", hw, s.Indexer)
			}
			for _, name := range selects {
				want(t, hw+" "+name.String(), dense.Input(name).Rows, 0)
			}
			if mixed.Input(Kept).Rows == 0 || mixed.Input(PageTable).Rows == 0 {
				t.Error("the decode has no table")
			}
		}
	})
}
