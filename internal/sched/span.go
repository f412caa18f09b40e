package sched

// Span is a half-open range of positions.
type Span struct{ From, To int }

func (s Span) bad() bool { return s.From < 0 || s.To < s.From }

// in returns the part of the span that lies in the n positions from at on, relative to at.
func (s Span) in(at, n int) Span {
	from, to := max(s.From-at, 0), min(s.To-at, n)
	if from >= to {
		return Span{}
	}
	return Span{from, to}
}

func (s Span) len() int { return s.To - s.From }

// room holds the numbers of rows of a batch that may still be recorded and replayed.
type room struct{ record, replay int }

// most returns how many of the n positions of a sequence, from at on, a batch can take without recording or replaying
// too many rows.
func (r *room) most(q *Sequence, at, n int) int {
	for _, x := range [...]struct {
		span Span
		rows int
	}{{q.Record, r.record}, {q.Replay, r.replay}} {
		if s := x.span.in(at, n); s.len() > x.rows {
			n = s.From + x.rows
		}
	}
	return n
}

// take subtracts the rows to record and to replay of n positions from the room.
func (r *room) take(q *Sequence, at, n int) {
	r.record -= q.Record.in(at, n).len()
	r.replay -= q.Replay.in(at, n).len()
}
