package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawConfig returns a random legal configuration. Its index_topk is small, so that short batches reach every path.
func drawConfig(rt *rapid.T) Config {
	hws, kvs := []string{"cpu", "sm90"}, []string{"", "bf16", "fp8", "fp8-576"}
	names := []string{"deepseek_v32", "glm-5", "glm-5.2", "deepseek_v4"}
	for range 50 {
		hw, err := HardwareFor(rapid.SampledFrom(hws).Draw(rt, "hw"))
		if err != nil {
			rt.Fatal(err)
		}
		m, err := ModelFor(rapid.SampledFrom(names).Draw(rt, "model"))
		if err != nil {
			rt.Fatal(err)
		}
		m.Heads = rapid.SampledFrom([]int{1, 16, 64, 128}).Draw(rt, "heads")
		m.K = rapid.SampledFrom([]int{128, 256, 2048}).Draw(rt, "K")
		p := Policy{
			KV: rapid.SampledFrom(kvs).Draw(rt, "kv"),
			Prefill: rapid.SampledFrom([]string{"", "", "auto", "flashmla_sparse", "flashmla_kv",
				"trtllm"}).Draw(rt, "prefill"),
			Deterministic:  rapid.IntRange(0, 3).Draw(rt, "deterministic") == 0,
			Dense:          rapid.SampledFrom([]Switch{SwitchUnset, SwitchUnset, SwitchOff}).Draw(rt, "dense"),
			DenseThreshold: rapid.SampledFrom([]int{0, 0, 40, 300, 4096}).Draw(rt, "T"),
			MaxTransient:   rapid.SampledFrom([]int64{0, 0, 200 << 20, 2 << 30}).Draw(rt, "reserve"),
			Speculation:    Speculation{Tokens: rapid.IntRange(0, 5).Draw(rt, "n")},
		}
		cfg, _, err := Resolve(hw, m, p)
		if err == nil {
			return cfg
		}
		var refusal *Error
		if !errors.As(err, &refusal) {
			rt.Fatalf("unexpected kind of error: %v", err)
		}
	}
	rt.Skip("no legal configuration drawn")
	return Config{}
}

func drawLength(rt *rapid.T, label string) int {
	return rapid.OneOf(rapid.IntRange(0, 70),
		rapid.SampledFrom([]int{63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 2047, 2048, 2049, 2051, 2052}),
		rapid.IntRange(0, 6000)).Draw(rt, label)
}

func drawRequest(rt *rapid.T, kind Mode) Request {
	switch kind {
	case ModeExtend:
		return ExtendRequest(1+drawLength(rt, "extend"), drawLength(rt, "prefix"))
	case ModeVerify, ModeDraft:
		return Request{Kind: kind, Seq: drawLength(rt, "seq"), N: rapid.IntRange(1, 5).Draw(rt, "rows")}
	default:
		return DecodeRequest(drawLength(rt, "seq"))
	}
}

func drawBatch(rt *rapid.T) Batch {
	kinds := []Mode{ModeExtend, ModeDecode, ModeVerify, ModeDraft}
	mode := rapid.SampledFrom([]Mode{ModeExtend, ModeDecode, ModeVerify, ModeDraft, ModeMixed}).Draw(rt, "mode")
	b := Batch{Mode: mode, NeedSeed: rapid.Bool().Draw(rt, "seed"),
		FreeBytes: rapid.SampledFrom([]int64{0, 1 << 20, 1 << 34}).Draw(rt, "free")}
	for range rapid.IntRange(1, 8).Draw(rt, "requests") {
		kind := mode
		if mode == ModeMixed {
			kind = rapid.SampledFrom(kinds).Draw(rt, "kind")
		}
		b.Requests = append(b.Requests, drawRequest(rt, kind))
	}
	return b
}

// mustBuild returns the plan of a batch. It skips the case if the reserve of memory refuses the batch.
func mustBuild(rt *rapid.T, cfg Config, b Batch) *Plan {
	p, err := Build(cfg, b)
	if errors.Is(err, E17) && cfg.MaxTransient > 0 {
		rt.Skip("a row does not fit the reserve")
	}
	if err != nil {
		rt.Fatalf("build: %v", err)
	}
	return p
}

// viaJSON encodes a value as JSON and returns the decoded value and the text.
func viaJSON[T any](rt *rapid.T, v T) (back T, text string) {
	data, err := json.Marshal(v)
	if err != nil {
		rt.Fatal(err)
	}
	if err := json.Unmarshal(data, &back); err != nil {
		rt.Fatalf("%v: %s", err, data)
	}
	return back, string(data)
}

func TestPlansDependOnNoHistoryAndWriteNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		a, b := drawBatch(rt), drawBatch(rt)
		_, before := viaJSON(rt, cfg)
		kept := append([]Request(nil), a.Requests...)
		first := mustBuild(rt, cfg, a)
		mustBuild(rt, cfg, b)
		if again := mustBuild(rt, cfg, a); !reflect.DeepEqual(first, again) {
			rt.Fatalf("a plan changed after another batch was planned")
		}
		if _, after := viaJSON(rt, cfg); before != after || !reflect.DeepEqual(kept, a.Requests) {
			rt.Fatalf("planning wrote to its arguments")
		}
	})
}

func TestLaunchesCoverRowsOnceWithinEveryLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt)
		p := mustBuild(rt, cfg, b)
		for i := range p.Segments {
			s := &p.Segments[i]
			limit := s.KernelRows
			if e := sparrowCatalogue.Entry(s.Kernel); e.Rows != nil {
				if n, _ := e.Rows(&cfg.Hardware, s.KernelHeads); n > 0 {
					limit = n
				}
			}
			next, chunks := 0, 0
			for _, l := range s.Launches {
				if l.FirstRow != next || l.Rows < 1 || l.Rows > limit || l.Rows > s.RowsPerLaunch {
					rt.Fatalf("launch %+v after row %d with limit %d", l, next, limit)
				}
				next += l.Rows
				if s.Scores() {
					chunks += (l.Rows + s.Indexer.RowsPerChunk - 1) / s.Indexer.RowsPerChunk
				}
				checkLaunchSpans(rt, &cfg, &b, s, l)
			}
			if next != s.KernelRows {
				rt.Fatalf("launches cover %d of %d rows", next, s.KernelRows)
			}
			if chunks != s.Indexer.Chunks {
				rt.Fatalf("%d chunks planned, %d needed", s.Indexer.Chunks, chunks)
			}
			if s.NextN == 0 && s.Scores() && s.Indexer.RowsPerChunk > 1 &&
				int64(s.KernelRows)*int64(s.Indexer.ScoreWidth) >= smallScores {
				if bytes := int64(s.Indexer.RowsPerChunk) * int64(s.Indexer.ScoreWidth) * 4; bytes > cfg.ScoreCap {
					rt.Fatalf("a chunk of %d bytes exceeds the cap %d", bytes, cfg.ScoreCap)
				}
			}
			if bytes := int64(s.Indexer.RowsPerChunk) * int64(s.Indexer.ScoreWidth) * 4; cfg.MaxTransient > 0 &&
				bytes > cfg.MaxTransient {
				rt.Fatalf("a chunk of %d bytes exceeds the reserve %d", bytes, cfg.MaxTransient)
			}
			if cfg.MaxTransient > 0 && s.TransientBytes > cfg.MaxTransient {
				rt.Fatalf("%d transient bytes exceed the reserve %d", s.TransientBytes, cfg.MaxTransient)
			}
			if s.TransientBytes > p.TransientBytes {
				rt.Fatalf("the plan needs %d bytes, its segment %d", p.TransientBytes, s.TransientBytes)
			}
		}
	})
}

// checkLaunchSpans checks that a launch names exactly the spans that its rows belong to.
func checkLaunchSpans(rt *rapid.T, cfg *Config, b *Batch, s *Segment, l Launch) {
	keys := 0
	for i := range s.Spans {
		sp := &s.Spans[i]
		touches := sp.FirstRow < l.FirstRow+l.Rows && sp.FirstRow+sp.Rows() > l.FirstRow
		named := i >= l.FirstSpan && i < l.FirstSpan+l.Spans
		if touches != named {
			rt.Fatalf("launch %+v and span %d %+v", l, i, *sp)
		}
		if touches && s.NextN == 0 {
			keys += spanKeys(cfg, b, sp)
		}
	}
	if l.Keys != keys {
		rt.Fatalf("launch %+v sees %d keys", l, keys)
	}
	if s.Form == FormDenseMHA && l.Spans > 1 && keys > cfg.C {
		rt.Fatalf("a dense launch over %d keys exceeds the capacity %d", keys, cfg.C)
	}
}

func TestSpansCoverEveryNewTokenOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt)
		p := mustBuild(rt, cfg, b)
		seen := make([][]bool, len(b.Requests))
		for i := range seen {
			seen[i] = make([]bool, b.Rows(&cfg, i))
		}
		rows := 0
		for i := range p.Segments {
			s := &p.Segments[i]
			if s.FirstRow != rows {
				rt.Fatalf("segment %d starts at row %d, want %d", i, s.FirstRow, rows)
			}
			inside := 0
			for _, sp := range s.Spans {
				if sp.FirstRow != inside || sp.From >= sp.To {
					rt.Fatalf("span %+v after row %d", sp, inside)
				}
				inside += sp.Rows()
				for tok := sp.From; tok < sp.To; tok++ {
					if seen[sp.Request][tok] {
						rt.Fatalf("token %d of request %d appears twice", tok, sp.Request)
					}
					seen[sp.Request][tok] = true
				}
			}
			if inside != s.Rows {
				rt.Fatalf("segment %d has %d rows in spans, %d in all", i, inside, s.Rows)
			}
			rows += s.Rows
		}
		prompts := 0
		for i := range b.Requests {
			if !b.KindOf(i).DecodeLike() {
				prompts += b.Rows(&cfg, i)
			}
		}
		if p.PromptRows() != prompts {
			rt.Fatalf("%d rows of prompts, %d in the batch", p.PromptRows(), prompts)
		}
		for i := range seen {
			for tok := range seen[i] {
				if !seen[i][tok] {
					rt.Fatalf("token %d of request %d appears nowhere", tok, i)
				}
			}
		}
		if rows != p.Rows {
			rt.Fatalf("%d rows in segments, %d in the plan", rows, p.Rows)
		}
	})
}

// treatment holds every property of a plan that may influence the bits of a row.
type treatment struct {
	row       RowKind
	form      Form
	kernel    Kernel
	heads     int
	layout    Layout
	convert   Convert
	transform Transform
	indexer   IndexerKind
	nextN     int
	fixed     bool
	need      bool
}

// treatments returns how the plan treats each position of one request.
func treatments(cfg *Config, b *Batch, p *Plan, request int) map[int]treatment {
	m := map[int]treatment{}
	for i := range p.Segments {
		s := &p.Segments[i]
		for _, sp := range s.Spans {
			if sp.Request != request {
				continue
			}
			for tok := sp.From; tok < sp.To; tok++ {
				m[b.FirstPosition(cfg, request)+tok] = treatment{s.Row, s.Form, s.Kernel, s.KernelHeads, s.Layout,
					s.Convert, s.Transform, s.Indexer.Kind, s.Indexer.NextN, s.SplitsFixed, s.NeedIndices}
			}
		}
	}
	return m
}

// TestRowsAreTreatedAlikeAloneBatchedAndChunked checks that a row is treated the same alone, in a batch and in chunks
// (rule 4 of section 2 of the design).
func TestRowsAreTreatedAlikeAloneBatchedAndChunked(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		seed := rapid.Bool().Draw(rt, "seed")
		total := 1 + drawLength(rt, "prompt")
		alone := Batch{Mode: ModeExtend, Requests: []Request{ExtendRequest(total, 0)}, NeedSeed: seed}
		whole := treatments(&cfg, &alone, mustBuild(rt, cfg, alone), 0)
		if len(whole) != total {
			rt.Fatalf("%d of %d rows planned", len(whole), total)
		}
		for done := 0; done < total; {
			n := min(total-done, 1+drawLength(rt, "chunk"))
			b := drawBatch(rt)
			b.NeedSeed = seed
			for i := range b.Requests {
				b.Requests[i].Kind = b.KindOf(i)
			}
			b.Mode = ModeMixed
			b.Requests = append(b.Requests, ExtendRequest(n, done))
			for pos, got := range treatments(&cfg, &b, mustBuild(rt, cfg, b), len(b.Requests)-1) {
				if got != whole[pos] {
					rt.Fatalf("position %d: %+v in a chunk of %d among %d requests, %+v alone", pos, got, n,
						len(b.Requests), whole[pos])
				}
			}
			done += n
		}
	})
}

func TestDecodeRowsAreTreatedAlikeInAnyBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		kind := rapid.SampledFrom([]Mode{ModeDecode, ModeVerify, ModeDraft}).Draw(rt, "kind")
		r := drawRequest(rt, kind)
		alone := NewBatch(kind, r)
		single := treatments(&cfg, &alone, mustBuild(rt, cfg, alone), 0)
		b := drawBatch(rt)
		for i := range b.Requests {
			b.Requests[i].Kind = b.KindOf(i)
		}
		b.Mode, b.Requests = ModeMixed, append(b.Requests, r)
		if got := treatments(&cfg, &b, mustBuild(rt, cfg, b), len(b.Requests)-1); !reflect.DeepEqual(got, single) {
			rt.Fatalf("%+v in a batch, %+v alone", got, single)
		}
	})
}

// TestEqualShapesGiveEqualPlans checks that batches of equal shape have equal plans. The second batch has other lengths
// in tables of the same width, so decode plans do not depend on lengths.
func TestEqualShapesGiveEqualPlans(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		a := drawBatch(rt)
		b := a
		b.Requests = append([]Request(nil), a.Requests...)
		for i := range b.Requests {
			if b.KindOf(i).DecodeLike() {
				b.Requests[i].Seq = max(0, b.Requests[i].Seq-rapid.IntRange(0, 40).Draw(rt, "shorter"))
			}
		}
		first, err1 := ShapeOf(cfg, a)
		second, err2 := ShapeOf(cfg, b)
		if err1 != nil || err2 != nil {
			rt.Fatal(err1, err2)
		}
		if first != second {
			return
		}
		if p, q := mustBuild(rt, cfg, a), mustBuild(rt, cfg, b); !reflect.DeepEqual(p, q) {
			rt.Fatalf("shape %+v has two plans", first)
		}
	})
	t.Run("lengths within one table width share a shape", func(t *testing.T) {
		cfg := newSetup(t, "sm90", kv("fp8")).resolve(t)
		a, err := ShapeOf(cfg, decode(70, 1000, 3))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := ShapeOf(cfg, decode(513, 1024, 900))
		c, _ := ShapeOf(cfg, decode(70, 1025, 3))
		want(t, "other lengths", b, a)
		if c == a {
			t.Error("a wider table has the same shape")
		}
	})
}

func TestPaddedBatchesOfOneSizeShareAKey(t *testing.T) {
	cfg := newSetup(t, "sm90", kv("fp8"), drafts(2)).resolve(t)
	key := func(mode Mode, n int, padded int) Key {
		b := Batch{Mode: mode, Graph: GraphReplay, Requests: repeat(n, Request{Seq: 1000}), PaddedRows: padded}
		return build(t, cfg, b).Key
	}
	want(t, "50 decodes in a graph of 64", key(ModeDecode, 50, 64), key(ModeDecode, 64, 64))
	want(t, "25 verifies in a graph of 64 rows", key(ModeVerify, 25, 64), key(ModeVerify, 32, 0))
	if key(ModeDecode, 64, 0) == key(ModeDecode, 63, 0) {
		t.Error("graphs of two sizes share a key")
	}
	if key(ModeDecode, 64, 0) == key(ModeVerify, 32, 0) {
		t.Error("decode and verify of as many rows share a key")
	}
}

func TestPlansAndConfigsSurviveJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt)
		p := mustBuild(rt, cfg, b)
		roundTrip(rt, *p)
		roundTrip(rt, b)
		roundTrip(rt, cfg)
		roundTrip(rt, cfg.Asked)
	})
}

func roundTrip[T any](rt *rapid.T, v T) {
	back, text := viaJSON(rt, v)
	if _, again := viaJSON(rt, back); again != text {
		rt.Fatalf("%T changed:\n%s\n%s", v, text, again)
	}
}

// A batch that does not fit the reserve of memory is refused with the reserve that its row needs: with that much the
// row is planned, and with one byte less it is refused again.
func TestRowsFitTheReserveThatTheirRefusalNames(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt)
		cfg.MaxTransient = 1
		for need := int64(1); ; {
			_, err := Build(cfg, b)
			if err == nil {
				if cfg.MaxTransient--; cfg.MaxTransient == 0 {
					return
				}
				if _, err := Build(cfg, b); !errors.Is(err, E17) {
					rt.Fatalf("%d bytes were needed, but one less is enough: %v", need, err)
				}
				return
			}
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != E17 {
				rt.Fatal(err)
			}
			var more int64
			if _, err := fmt.Sscanf(refused.Try, "--reserve %d,", &more); err != nil || more <= need {
				rt.Fatalf("%d bytes are not enough, and %q", need, refused.Try)
			}
			need, cfg.MaxTransient = more, more
		}
	})
}
