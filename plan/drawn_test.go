package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"sparrow/internal/testkit/plantable"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// The facts of every preset and device, and of every released model, equal those in the golden table.
func TestTableOfPresets(t *testing.T) {
	var lines []string
	add := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, name+" "+string(data))
	}
	for _, name := range plan.HardwareNames() {
		hw, err := plan.HardwareFor(name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, hw)
		for _, device := range plan.DevicesOf(hw.Arch) {
			d, err := plan.HardwareFor(device)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("  %s: %d SMs, %d bytes", device, d.SMs, d.MemoryBytes))
		}
	}
	for _, name := range plan.UsualModelNames() {
		m, err := plan.ModelFor(name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, m)
	}
	table.Check(t, "presets.txt", append(lines, strings.Join(plan.ModelNames(), " ")))
}

// sum returns a short hash of lines.
func sum(lines []string) string {
	h := fnv.New32a()
	for _, line := range lines {
		fmt.Fprintln(h, line)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// draw has the random choices of a table. They are the same in every run.
type draw struct{ *rand.Rand }

func oneOf[T any](d draw, list ...T) T { return list[d.IntN(len(list))] }

// rarely returns one of the given values in a third of the calls, otherwise the zero value.
func rarely[T any](d draw, list ...T) (v T) {
	if d.IntN(3) == 0 {
		v = oneOf(d, list...)
	}
	return v
}

func (d draw) hardware(t *testing.T) plan.Hardware {
	hw, err := plan.HardwareFor(oneOf(d, append(plan.HardwareNames(), "cpu", "sm90", "sm90", "h100", "l4")...))
	if err != nil {
		t.Fatal(err)
	}
	hw.Portable = hw.Arch.CUDA() && d.IntN(3) == 0
	hw.NoTiles = hw.Arch == plan.CPU && d.IntN(2) == 0
	return hw
}

func (d draw) model(t *testing.T) plan.Model {
	m, err := plan.ModelFor(oneOf(d, plan.UsualModelNames()...))
	if err != nil {
		t.Fatal(err)
	}
	if n := rarely(d, 128, 256, 1024); n > 0 && m.K > 0 {
		m.K = n
	}
	if d.IntN(3) == 0 {
		if divided, err := m.Divide(oneOf(d, 2, 4, 8), oneOf(d, plan.ByHeads, plan.ByRequests)); err == nil {
			m = divided
		}
	}
	return m
}

func (d draw) policy() plan.Policy {
	return plan.Policy{
		KV: rarely(d, "bf16", "fp8", "fp8-576", "f32"), ExactIndex: d.IntN(12) == 0, FP4Index: d.IntN(8) == 0,
		Prefill: rarely(d, "", "sparse-flat", "sparse-block", "auto"), Decode: rarely(d, "", "", "sparse-block"),
		V4SparsePrefill: rarely(d, plan.SparsePrefillOn, plan.SparsePrefillOff),
		Dense:           rarely(d, plan.SwitchOn, plan.SwitchOff), DenseThreshold: rarely(d, 40, 300, 4096),
		Deterministic: d.IntN(4) == 0, SplitKeys: rarely(d, plan.Split256, plan.Split512),
		Running: rarely(d, 1, 7, 64, 500), Speculation: plan.Speculation{Tokens: rarely(d, 2, 3, 4, 5, 6)},
		MaxTransient: rarely(d, int64(1<<20), 60<<20, 200<<20, 2<<30),
	}
}

func (d draw) length() int {
	return oneOf(d, 0, 1, 63, 64, 65, 127, 128, 129, 511, 512, 513, 2047, 2048, 2049, d.IntN(300), d.IntN(9000),
		d.IntN(90000))
}

func (d draw) batch(m *plan.Model) plan.Batch {
	b := plan.Batch{NeedSeed: d.IntN(4) == 0, Draws: d.IntN(3) == 0, FreeBytes: rarely(d, int64(1<<20), 1<<34),
		Record: plan.Record{Hidden: d.IntN(3) == 0, Selections: d.IntN(2) == 0, Experts: d.IntN(2) == 0},
		Replay: plan.Replay{Selections: d.IntN(2) == 0, Experts: d.IntN(2) == 0}}
	kinds := []plan.Mode{plan.ModeExtend, plan.ModeDecode, plan.ModeVerify, plan.ModeDraft}
	kind := oneOf(d, kinds...)
	if d.IntN(4) == 0 {
		b.Pass = oneOf(d, plan.PassDraft, plan.PassChain, plan.PassPick)
		kind = plan.ModeDraft
		if m.Block > 0 {
			b.Pass = plan.PassBlock
		}
	}
	n := 1 + d.IntN(4) // rows of a request that verifies or drafts
	for range 1 + d.IntN(5) {
		var r plan.Request
		switch kind {
		case plan.ModeExtend:
			r = plan.ExtendRequest(1+d.length(), d.length())
		case plan.ModeDecode:
			r = plan.DecodeRequest(d.length())
		default:
			r = plan.Request{Kind: kind, Seq: d.length(), N: n}
		}
		r.Padding = kind.DecodeLike() && r.Seq == 0
		r.Logits, r.Best = d.IntN(2), d.IntN(2) == 0
		if m.ByRequests() {
			r.Rank = d.IntN(m.Ranks)
		}
		if b.Pass == plan.PassTarget {
			r.Records, r.Replays = d.IntN(2), d.IntN(2)
			if d.IntN(3) == 0 {
				kind = oneOf(d, kinds...)
			}
		}
		b.Add(r)
	}
	if b.Mode.DecodeLike() && d.IntN(3) == 0 {
		b.PaddedRows = 32
	}
	return b
}

// contradict changes a field of a batch so that most batches contradict themselves.
func (d draw) contradict(b *plan.Batch) {
	r := &b.Requests[d.IntN(len(b.Requests))]
	n := oneOf(d, -1, 1, 2, 6, 1<<31)
	for _, field := range []*int{oneOf(d, &b.PaddedRows, &b.TablePages), oneOf(d, &r.Seq, &r.Prefix, &r.Extend, &r.N),
		oneOf(d, &r.Logits, &r.Rank), oneOf(d, &r.Records, &r.RecordFrom), oneOf(d, &r.Replays, &r.ReplayFrom)} {
		if d.IntN(3) == 0 {
			*field = n
		}
	}
	if d.IntN(3) == 0 {
		b.FreeBytes = -b.FreeBytes
	}
	if d.IntN(4) == 0 {
		b.Mode = oneOf(d, plan.ModeUnset, plan.ModeIdle, plan.ModeExtend, plan.ModeDecode)
		r.Padding = !r.Padding
	}
	if d.IntN(4) == 0 {
		b.Graph, b.Pass = oneOf(d, plan.GraphCapture, plan.GraphReplay, 9), oneOf(d, b.Pass, plan.PassDraft, 9)
	}
}

func (d draw) most() plan.Most {
	rows := 1 + d.length()
	most := plan.Most{Rows: rows, Requests: 1 + d.IntN(9), Context: 1 + d.length(), Width: 1 + d.IntN(5),
		Logits: d.IntN(rows) + 1, Whole: d.IntN(3), Draws: d.IntN(2) == 0,
		Recorded: rarely(d, rows), Replayed: rarely(d, rows),
		Record: plan.Record{Selections: true}, Replay: plan.Replay{Selections: true, Experts: true},
		Joint: d.IntN(2) == 0, Prompts: d.IntN(4)}
	if d.IntN(4) == 0 {
		most.Pass = plan.PassDraft
	}
	return most
}

// Configurations, plans and bounds of many drawn settings equal those of the golden table. A line is short: what was
// asked for, a few results, and a hash of all fields. TestTableOfPlans shows fewer plans in full; to see both plans of
// a changed line in full, print the fields that are hashed here.
func TestTableOfDrawnPlans(t *testing.T) {
	d := draw{rand.New(rand.NewPCG(26, 8))}
	var lines []string
	refusal := func(err error) string {
		var refused *plan.Error
		if !errors.As(err, &refused) {
			t.Fatalf("%v is not a refusal with a code", err)
		}
		return "refused " + table.Facts(err.Error())
	}
	for legal := 0; legal < 70; {
		hw, m, policy := d.hardware(t), d.model(t), d.policy()
		name := fmt.Sprintf("%v portable %v without tiles %v: %v of %d heads, k %d, %d ranks %v, %s", hw.Arch,
			hw.Portable, hw.NoTiles, m.Family, m.Heads, m.K, m.Ranks, m.Division, asked(t, policy))
		cfg, notices, err := plan.Resolve(hw, m, policy)
		if err != nil {
			lines = append(lines, name+" => "+refusal(err))
			continue
		}
		legal++
		lines = append(lines, fmt.Sprintf("%s => %v %v %v %s", name, cfg.Prefill, cfg.Decode, cfg.Layout,
			sum(plantable.Config(t, cfg, notices))))
		for i := range 5 {
			b := d.batch(&m)
			if i == 4 {
				d.contradict(&b)
			}
			p, err := plan.Build(cfg, b)
			if err != nil {
				lines = append(lines, fmt.Sprintf("  %s => %s", brief(t, b), refusal(err)))
				continue
			}
			lines = append(lines, fmt.Sprintf("  %s => %d rows, %d segments, %d words, %d bytes, %s", brief(t, b),
				p.Rows, len(p.Segments), p.InputWords, p.TransientBytes, sum(plantable.Plan(t, p))))
		}
		most := d.most()
		p := plan.Bound(cfg, most)
		lines = append(lines, fmt.Sprintf("  at most %s => %d segments, %d words, %s", asked(t, most), len(p.Segments),
			p.InputWords, sum(plantable.Plan(t, p))))
	}
	table.Check(t, "drawn.txt", lines)
}

// asked writes the fields of a struct that are not zero in the table's notation.
func asked(t *testing.T, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"`, "", "true", "yes").Replace(string(data))
}

// brief writes a batch; its requests are written without the names of their fields.
func brief(t *testing.T, b plan.Batch) string {
	text := fmt.Sprintf("%v pass %d graph %d", b.Mode, b.Pass, b.Graph)
	for _, r := range b.Requests {
		text += fmt.Sprintf(" %v", []any{r.Kind, r.Seq, r.Prefix, r.Extend, r.N, r.Rank, r.Logits, r.Best, r.RecordFrom,
			r.Records, r.ReplayFrom, r.Replays})
	}
	b.Mode, b.Pass, b.Graph, b.Requests = plan.ModeIdle, 0, 0, nil
	return strings.NewReplacer("false", "0", "true", "1", "mode:idle,requests:null,", "", ",graph:none", "").
		Replace(text + " " + asked(t, b))
}
