package plantable

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"sparrow/plan"
)

// Sum returns a short hash of lines.
func Sum(lines []string) string {
	h := fnv.New32a()
	for _, line := range lines {
		fmt.Fprintln(h, line)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// Draw has the random choices of a table of many plans. The choices of a seed are the same in every run.
type Draw struct{ *rand.Rand }

// NewDraw returns the choices of a seed.
func NewDraw(seed uint64) Draw { return Draw{rand.New(rand.NewPCG(seed, 8))} }

// OneOf returns one of the given values.
func OneOf[T any](d Draw, list ...T) T { return list[d.IntN(len(list))] }

// Rarely returns one of the given values in a third of the calls, otherwise the zero value.
func Rarely[T any](d Draw, list ...T) (v T) {
	if d.IntN(3) == 0 {
		v = OneOf(d, list...)
	}
	return v
}

// Hardware returns the hardware of one of the names.
func (d Draw) Hardware(t testing.TB, names ...string) plan.Hardware {
	t.Helper()
	hw, err := plan.HardwareFor(OneOf(d, names...))
	if err != nil {
		t.Fatal(err)
	}
	hw.Portable = hw.Arch.CUDA() && d.IntN(3) == 0
	hw.NoTiles = hw.Arch == plan.CPU && d.IntN(2) == 0
	return hw
}

// Model returns a released model, some of whose sizes may be smaller, and whose heads may be divided among ranks.
func (d Draw) Model(t testing.TB) plan.Model {
	t.Helper()
	m, err := plan.ModelFor(OneOf(d, plan.UsualModelNames()...))
	if err != nil {
		t.Fatal(err)
	}
	if n := Rarely(d, 128, 256, 1024); n > 0 && m.K > 0 {
		m.K = n
	}
	if d.IntN(3) == 0 {
		if divided, err := m.Divide(OneOf(d, 2, 4, 8), OneOf(d, plan.ByHeads, plan.ByRequests)); err == nil {
			m = divided
		}
	}
	return m
}

// Length returns a number of tokens at or near a boundary, or any.
func (d Draw) Length() int {
	return OneOf(d, 0, 1, 63, 64, 65, 127, 128, 129, 511, 512, 513, 2047, 2048, 2049, d.IntN(300), d.IntN(9000),
		d.IntN(90000))
}

// Batch returns a batch of requests of one kind or of several.
func (d Draw) Batch(m *plan.Model) plan.Batch {
	b := plan.Batch{NeedSeed: d.IntN(4) == 0, Draws: d.IntN(3) == 0, FreeBytes: Rarely(d, int64(1<<20), 1<<34),
		Record: plan.Record{Hidden: d.IntN(3) == 0, Selections: d.IntN(2) == 0, Experts: d.IntN(2) == 0},
		Replay: plan.Replay{Selections: d.IntN(2) == 0, Experts: d.IntN(2) == 0}}
	kinds := []plan.Mode{plan.ModeExtend, plan.ModeDecode, plan.ModeVerify, plan.ModeDraft}
	kind := OneOf(d, kinds...)
	if d.IntN(4) == 0 {
		b.Pass = OneOf(d, plan.PassDraft, plan.PassChain, plan.PassPick)
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
			r = plan.ExtendRequest(1+d.Length(), d.Length())
		case plan.ModeDecode:
			r = plan.DecodeRequest(d.Length())
		default:
			r = plan.Request{Kind: kind, Seq: d.Length(), N: n}
		}
		r.Padding = kind.DecodeLike() && r.Seq == 0
		r.Logits, r.Best = d.IntN(2), d.IntN(2) == 0
		if m.ByRequests() {
			r.Rank = d.IntN(m.Ranks)
		}
		if b.Pass == plan.PassTarget {
			r.Records, r.Replays = d.IntN(2), d.IntN(2)
			if d.IntN(3) == 0 {
				kind = OneOf(d, kinds...)
			}
		}
		b.Add(r)
	}
	if b.Mode.DecodeLike() && d.IntN(3) == 0 {
		b.PaddedRows = 32
	}
	return b
}

// Contradict changes a field of a batch so that most batches contradict themselves.
func (d Draw) Contradict(b *plan.Batch) {
	r := &b.Requests[d.IntN(len(b.Requests))]
	n := OneOf(d, -1, 1, 2, 6, 1<<31)
	for _, field := range []*int{OneOf(d, &b.PaddedRows, &b.TablePages), OneOf(d, &r.Seq, &r.Prefix, &r.Extend, &r.N),
		OneOf(d, &r.Logits, &r.Rank), OneOf(d, &r.Records, &r.RecordFrom), OneOf(d, &r.Replays, &r.ReplayFrom)} {
		if d.IntN(3) == 0 {
			*field = n
		}
	}
	if d.IntN(3) == 0 {
		b.FreeBytes = -b.FreeBytes
	}
	if d.IntN(4) == 0 {
		b.Mode = OneOf(d, plan.ModeUnset, plan.ModeIdle, plan.ModeExtend, plan.ModeDecode)
		r.Padding = !r.Padding
	}
	if d.IntN(4) == 0 {
		b.Graph, b.Pass = OneOf(d, plan.GraphCapture, plan.GraphReplay, 9), OneOf(d, b.Pass, plan.PassDraft, 9)
	}
}

// Asked writes the fields of a struct that are not zero in the table's notation.
func Asked(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"`, "", "true", "yes").Replace(string(data))
}

// Brief writes a batch; its requests are written without the names of their fields.
func Brief(t testing.TB, b plan.Batch) string {
	t.Helper()
	text := fmt.Sprintf("%v pass %d graph %d", b.Mode, b.Pass, b.Graph)
	for _, r := range b.Requests {
		text += fmt.Sprintf(" %v", []any{r.Kind, r.Seq, r.Prefix, r.Extend, r.N, r.Rank, r.Logits, r.Best, r.RecordFrom,
			r.Records, r.ReplayFrom, r.Replays})
	}
	b.Mode, b.Pass, b.Graph, b.Requests = plan.ModeIdle, 0, 0, nil
	return strings.NewReplacer("false", "0", "true", "1", "mode:idle,requests:null,", "", ",graph:none", "").
		Replace(text + " " + Asked(t, b))
}
