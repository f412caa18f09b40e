package public

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sparrow/plan"
)

// drawConfig returns a random legal configuration. Its index_topk is small, so that short batches reach every path.
func drawConfig(rt *rapid.T) Config {
	hws, kvs := []string{"sm90", "sm100", "gfx95", "sm120"}, []string{"", "bf16", "fp8"}
	names := []string{"deepseek_v32", "glm-5", "glm-5.2", "deepseek_v4"}
	for range 50 {
		hw, err := plan.HardwareFor(rapid.SampledFrom(hws).Draw(rt, "hw"))
		if err != nil {
			rt.Fatal(err)
		}
		m, err := plan.ModelFor(rapid.SampledFrom(names).Draw(rt, "model"))
		if err != nil {
			rt.Fatal(err)
		}
		m.Heads = rapid.SampledFrom([]int{1, 16, 64, 128}).Draw(rt, "heads")
		if hw.Arch != plan.GFX95 {
			m.K = rapid.SampledFrom([]int{128, 256, 2048}).Draw(rt, "K")
		}
		if hw.Arch.CUDA() {
			// These sizes give limits of 11622 and 100.
			hw.SmemOptin = rapid.SampledFrom([]int{232448, 2004}).Draw(rt, "smem")
		}
		p := Policy{
			KV: rapid.SampledFrom(kvs).Draw(rt, "kv"),
			Prefill: rapid.SampledFrom([]string{"", "", "auto", "flashmla_sparse", "flashmla_kv", "trtllm",
				"reference"}).Draw(rt, "prefill"),
			Dense: rapid.SampledFrom([]plan.Switch{plan.SwitchUnset, plan.SwitchUnset,
				plan.SwitchOff}).Draw(rt, "dense"),
			DenseThreshold: rapid.SampledFrom([]int{0, 0, 40, 300, 4096}).Draw(rt, "T"),
			ChunkCapacity:  rapid.SampledFrom([]int{0, 500, 5000}).Draw(rt, "C"),
			ScoreCap:       rapid.SampledFrom([]int64{0, 1 << 16}).Draw(rt, "cap"),
			MaxTransient:   rapid.SampledFrom([]int64{0, 0, 200 << 20, 2 << 30}).Draw(rt, "reserve"),
			Speculation:    plan.Speculation{Tokens: rapid.IntRange(0, 5).Draw(rt, "n")},
			DecodeSkip:     rapid.SampledFrom([]plan.Switch{plan.SwitchUnset, plan.SwitchOn}).Draw(rt, "skip"),
			Role:           rapid.SampledFrom([]Role{RoleBoth, RolePrefill}).Draw(rt, "role"),
		}
		cfg, _, err := Resolve(hw, m, p)
		if err == nil {
			return cfg
		}
		var refusal *plan.Error
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

func drawRequest(rt *rapid.T, cfg *Config, kind plan.Mode) plan.Request {
	switch kind {
	case plan.ModeExtend:
		return plan.ExtendRequest(1+drawLength(rt, "extend"), drawLength(rt, "prefix"))
	case plan.ModeVerify, plan.ModeDraft:
		return plan.Request{Kind: kind, Seq: drawLength(rt, "seq"), N: cfg.N}
	default:
		return plan.DecodeRequest(drawLength(rt, "seq"))
	}
}

func drawBatch(rt *rapid.T, cfg *Config) plan.Batch {
	kinds := []plan.Mode{plan.ModeExtend, plan.ModeDecode}
	mode := rapid.SampledFrom([]plan.Mode{plan.ModeExtend, plan.ModeDecode, plan.ModeVerify, plan.ModeDraft,
		plan.ModeMixed}).Draw(rt, "mode")
	if mode == plan.ModeMixed && !cfg.MixedAllowed {
		mode = plan.ModeExtend
	}
	b := plan.Batch{Mode: mode, NeedSeed: rapid.Bool().Draw(rt, "seed"),
		FreeBytes: rapid.SampledFrom([]int64{0, 1 << 20, 1 << 34}).Draw(rt, "free")}
	for range rapid.IntRange(1, 8).Draw(rt, "requests") {
		kind := mode
		if mode == plan.ModeMixed {
			kind = rapid.SampledFrom(kinds).Draw(rt, "kind")
		}
		b.Requests = append(b.Requests, drawRequest(rt, cfg, kind))
	}
	return b
}

// mustBuild returns the plan of a batch. It skips the case if the reserve of memory refuses the batch.
func mustBuild(rt *rapid.T, cfg Config, b plan.Batch) *plan.Plan {
	p, err := Build(cfg, b)
	if errors.Is(err, plan.E17) && cfg.MaxTransient > 0 {
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
		a, b := drawBatch(rt, &cfg), drawBatch(rt, &cfg)
		_, before := viaJSON(rt, cfg)
		kept := append([]plan.Request(nil), a.Requests...)
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
		b := drawBatch(rt, &cfg)
		p := mustBuild(rt, cfg, b)
		for i := range p.Segments {
			s := &p.Segments[i]
			limit := s.KernelRows
			if e := catalogue.Entry(s.Kernel); e.Rows != nil {
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
				checkLaunchSpans(rt, s, l)
			}
			if next != s.KernelRows {
				rt.Fatalf("launches cover %d of %d rows", next, s.KernelRows)
			}
			if chunks != s.Indexer.Chunks {
				rt.Fatalf("%d chunks planned, %d needed", s.Indexer.Chunks, chunks)
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
func checkLaunchSpans(rt *rapid.T, s *plan.Segment, l plan.Launch) {
	for i := range s.Spans {
		sp := &s.Spans[i]
		touches := sp.FirstRow < l.FirstRow+l.Rows && sp.FirstRow+sp.Rows() > l.FirstRow
		if named := i >= l.FirstSpan && i < l.FirstSpan+l.Spans; touches != named {
			rt.Fatalf("launch %+v and span %d %+v", l, i, *sp)
		}
	}
}

func TestSpansCoverEveryNewTokenOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt, &cfg)
		p := mustBuild(rt, cfg, b)
		seen := make([][]bool, len(b.Requests))
		for i := range seen {
			seen[i] = make([]bool, b.Rows(&cfg.Config, i))
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

func TestPlansAndConfigsSurviveJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt, &cfg)
		p := mustBuild(rt, cfg, b)
		roundTrip(rt, *p)
		roundTrip(rt, b)
		roundTrip(rt, cfg)
		roundTrip(rt, cfg.Wishes)
	})
}

func roundTrip[T any](rt *rapid.T, v T) {
	back, text := viaJSON(rt, v)
	if _, again := viaJSON(rt, back); again != text {
		rt.Fatalf("%T changed:\n%s\n%s", v, text, again)
	}
}

// TestPlansIgnoreWhatTheFingerprintLeavesOut checks that configurations that differ only in reasons have equal
// fingerprints and equal plans.
func TestPlansIgnoreWhatTheFingerprintLeavesOut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt, &cfg)
		bare := cfg
		bare.Wishes, bare.Reasons, bare.Rejected = Policy{}, nil, nil
		bare.DenseAgainst = slices.Repeat([]string{"a reason"}, len(cfg.DenseAgainst))
		p, q := mustBuild(rt, cfg, b), mustBuild(rt, bare, b)
		for _, x := range []*plan.Plan{p, q} {
			for i := range x.Segments {
				x.Segments[i].Reasons, x.Segments[i].Rejected = nil, nil
			}
		}
		if !reflect.DeepEqual(p, q) {
			rt.Fatalf("%+v\n%+v without reasons", p, q)
		}
	})
}
