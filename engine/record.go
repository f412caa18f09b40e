package engine

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"sort"

	"sparrow/internal/sched"
	"sparrow/internal/step"
	"sparrow/internal/unit"
	"sparrow/plan"
	"sparrow/record"
)

// RecordTokens selects the tokens of a sequence whose rows are recorded.
type RecordTokens uint8

// Rows that are recorded.
const (
	RecordOutput RecordTokens = iota // rows that produce the answer's tokens
	RecordAll                        // rows of the prompt and of the answer
	RecordRange                      // rows at positions Record.From to Record.To
)

// Record selects the data that is recorded for a request's rows: the keys that the rows attended to, and the experts
// that computed the rows. Cached rows are not computed and not recorded.
type Record struct {
	Selections bool
	Layers     []int // layers whose selections are recorded; nil means every layer
	Scores     bool  // records the scores of the selected keys too
	Experts    bool
	Tokens     RecordTokens
	From, To   int // half-open range of positions, with RecordRange
}

// what returns the kinds of data that passes record.
func (r *Record) what() plan.Record {
	return plan.Record{Selections: r.Selections, Scores: r.Selections && r.Scores, Experts: r.Experts}
}

// span returns the positions of a sequence that are recorded; given is the number of tokens of the prompt.
func (r *Record) span(given int) sched.Span {
	switch r.Tokens {
	case RecordAll:
		return sched.Span{To: math.MaxInt}
	case RecordRange:
		return sched.Span{From: r.From, To: r.To}
	}
	return sched.Span{From: given - 1, To: math.MaxInt}
}

// recordPassBytes is the size, in bytes, of a pass's buffer for recorded rows, and also of its buffer for replayed
// rows. Longer prompts are computed in chunks of rows that fit in the buffer.
const recordPassBytes = 64 << 20

// recordRows returns how many rows of a batch may be recorded, and how many rows may be replayed; 0 if recording is
// disabled.
func (z *sizing) recordRows() int {
	if z.cfg.RecordBytes < 0 {
		return 0
	}
	facts := z.model.Facts()
	s := facts.Choices()
	return min(max(recordPassBytes/(4*max(s.Words(), 1)), 4*sched.DefaultMaxPrompts), z.cfg.StepTokens)
}

// limitRecords sets the numbers of rows that passes may record and replay in their limits.
func (z *sizing) limitRecords(l *step.Limits) {
	if l.RecordRows = z.recordRows(); l.RecordRows == 0 {
		return
	}
	l.Record = plan.Record{Selections: true, Scores: true, Experts: true}
	l.Replay = plan.Replay{Selections: true, Experts: true}
}

// checkRecord checks Request.Record and Request.Replay of a request whose choices have at most maxTokens tokens. It
// returns the replay, or an error if the request is not supported.
func (in *intake) checkRecord(r *Request, maxTokens int) (*record.Replay, error) {
	if r.Record == nil && r.Replay == nil {
		return nil, nil
	}
	bad := func(field, format string, args ...any) error {
		return &RequestError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	if in.cfg.RecordBytes < 0 {
		return nil, bad("sparrow", "requests records, but this server has disabled them; omit selections, experts "+
			"and replay, or start the server without --record-bytes -1 (Config.RecordBytes)")
	}
	if r.Record != nil {
		if err := in.checkRecorded(r, maxTokens); err != nil {
			return nil, err
		}
	}
	if r.Replay == nil {
		return nil, nil
	}
	shape := in.info.Config.Model.Choices()
	shape.Dense = in.info.Config.T
	replay, err := record.NewReplay(r.Replay, shape)
	if err != nil {
		return nil, bad("sparrow.replay", "%v", err)
	}
	if end := replay.First + replay.Len(); end > in.info.ContextTokens {
		return nil, bad("sparrow.replay", "ends at position %d, but the context holds %d tokens", end,
			in.info.ContextTokens)
	}
	return replay, nil
}

func (in *intake) checkRecorded(r *Request, maxTokens int) error {
	bad := func(field, format string, args ...any) error {
		return &RequestError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	x, layers := r.Record, in.info.Config.Model.Layers
	switch {
	case !x.Selections && !x.Experts:
		return bad("sparrow", "selects nothing: set selections or experts")
	case x.Tokens == RecordRange && (x.From < 0 || x.To <= x.From):
		return bad("sparrow.selections.tokens", "is [%d, %d]; want positions of at least 0, the second above the first",
			x.From, x.To)
	}
	for _, l := range x.Layers {
		if l < 0 || l >= layers {
			return bad("sparrow.selections.layers", "has layer %d; the model has %d layers, counted from 0", l, layers)
		}
	}
	if most, want := in.cfg.recordBytes(), in.recordedBytes(r, maxTokens); want > most {
		return bad("sparrow.selections", "would take up to %s, but %s are allowed per request; %s, select fewer "+
			"layers or rows, or start the engine with a higher limit (Config.RecordBytes, --record-bytes)",
			unit.Bytes(want), unit.Bytes(most), in.fittingAnswer(r, maxTokens))
	}
	return nil
}

// fittingAnswer returns the text that names the largest max_tokens whose recorded rows fit in the byte limit, for an
// error about a request that exceeds the limit.
func (in *intake) fittingAnswer(r *Request, maxTokens int) string {
	why := ""
	if r.MaxTokens == 0 {
		why = fmt.Sprintf("max_tokens is not set, so the estimate is for an answer of %d tokens; ", maxTokens)
	}
	fits := sort.Search(maxTokens, func(n int) bool { return in.recordedBytes(r, n+1) > in.cfg.recordBytes() })
	if fits == 0 {
		return why + "no max_tokens is small enough: the rows of the prompt are too many"
	}
	return why + fmt.Sprintf("send max_tokens of at most %d", fits)
}

// DefaultRecordBytes is the limit of recorded bytes per request if Config.RecordBytes is 0.
const DefaultRecordBytes = 64 << 20

func (c *Config) recordBytes() int64 { return cmp.Or(c.RecordBytes, DefaultRecordBytes) }

// recordedBytes returns an upper bound for the size of a request's recorded rows as JSON. Positions are stored as
// differences of one to three bytes. The sum of the differences is below n. So a list of k positions below n takes a
// byte for each position, at most n/128 second bytes and at most n/16384 third bytes. base64 adds a third.
func (in *intake) recordedBytes(r *Request, maxTokens int) int64 {
	const names = 80 // size of the JSON of a layer or row without its data, in bytes
	x := r.Record
	kept := in.newRecording(x)
	s, total := &kept.Shape, int64(0)
	for choice := range r.Sampling.N {
		given := len(r.Prompt) + len(r.given(choice))
		span := x.span(given)
		end := min(span.To, given+max(maxTokens-1, 0))
		rows := max(end-span.From, 0)
		total += int64(rows) * names
		for l := range s.Layers {
			if kept.Layers[l] {
				total += int64(rows) * names
			}
			// Rows with at most as many keys as a selection holds attend to all keys, so no list of positions is
			// recorded.
			longer := func(keys int) int64 {
				return int64(max(end-max(span.From, keys*max(s.Layers[l].Group, 1)), 0))
			}
			positions := func(n int) int { return n + min(n, end/128) + min(n, end/16384) }
			if kept.Layers[l] && s.Selects(l) {
				n := positions(s.TopK)
				if x.Scores {
					n += 4 * s.TopK
				}
				total += longer(s.TopK) * int64(n) * 4 / 3
			}
			if kept.Layers[l] && s.Blocks > 0 && l == s.BlockLayer {
				total += longer(s.Blocks*s.BlockKeys) * int64(names+positions(s.Blocks)*4/3)
			}
			if x.Experts && s.Layers[l].Experts {
				total += int64(rows) * int64(names+s.Chosen*6*4/3)
			}
		}
	}
	return total
}

// wants reports whether the selections of a layer are recorded.
func (r *Record) wants(layer int) bool { return r.Layers == nil || slices.Contains(r.Layers, layer) }

// newRecording returns the kinds of data and the layers that are recorded for a choice, or nil if nothing is recorded.
func (in *intake) newRecording(r *Record) *step.Recording {
	if r == nil {
		return nil
	}
	out := &step.Recording{What: r.what(), Shape: in.info.Config.Model.Choices()}
	out.Layers = make([]bool, len(out.Shape.Layers))
	for l := range out.Layers {
		if r.Selections && r.wants(l) {
			out.Layers[l] = true
			if as := out.Shape.Layers[l].As; as >= 0 {
				out.Layers[as] = true // layer number as is recorded too, because layer l uses its selection
			}
		}
	}
	return out
}

// replaySalt returns a unique salt, so that a request with replayed rows shares no cached pages: replayed rows differ
// from computed rows.
func replaySalt() []byte {
	salt := make([]byte, 24)
	rand.Read(salt)
	return salt
}

// keep attaches the recorded rows of an item to the events of its tokens: each row to the event of the token that was
// sampled from it, and the other rows of a prompt to the first event. If no token was sampled, a separate event holds
// the rows. A panic is returned as an error of this choice only.
func (c *choice) keep(it *sched.Item, result step.Result, work int, outs []outcome) (err error) {
	r := c.recording
	if r == nil {
		return nil
	}
	defer recoverTo(&err, c.job.setup.cfg.Log, "recording panicked")
	rows := &record.Rows{}
	if from := c.seq.Record.From; from < min(it.Cached, c.seq.Record.To) {
		rows.NotComputed = append(rows.NotComputed, record.Range{from, min(it.Cached, c.seq.Record.To)})
		c.seq.Record.From = rows.NotComputed[0][1]
	}
	// Rows of rejected drafts are dropped: an accepted row is one that produced the next token.
	plain := len(it.Tokens) - it.Drafts
	kept := plain + max(len(outs)-1, 0)
	first := result.Recorded(work)
	for t := it.Record.From; t < min(it.Record.To, kept); t++ {
		rows.Rows = append(rows.Rows, r.Row(result, first+t-it.Record.From, it.Cached+t))
		c.seq.Record.From = min(it.Cached+t+1, c.seq.Record.To)
		if at := t - (plain - 1); at >= 0 && at < len(outs) {
			outs[at].event.Recorded, rows = rows, &record.Rows{}
		}
	}
	if len(rows.Rows) == 0 && rows.NotComputed == nil {
		return nil
	}
	if len(outs) > 0 && outs[0].event.Recorded == nil {
		outs[0].event.Recorded = rows
		return nil
	}
	c.job.queue.push(Event{Choice: c.index, Token: -1, Recorded: rows})
	return nil
}
