package plan

import "encoding/binary"

// Shape holds everything that a plan depends on in addition to the configuration. Equal shapes give identical plans, so
// a caller may
// keep plans, and graphs captured with them, in a map keyed by Shape. The shape of a batch of decode, verify or draft
// requests has no lengths.
type Shape struct {
	Mode       Mode
	Pass       Pass
	Graph      GraphMode
	NeedSeed   bool
	Record     Record
	Recorded   int // recorded rows of all requests
	Replay     Replay
	Replayed   int // replayed rows of all requests
	Requests   int
	NextN      int // rows per request, if all requests have the same number; else 0
	Logits     int // logit rows per request if all requests have the same number
	Best       bool
	Draws      bool
	TablePages int
	PaddedRows int
	Short      bool // no request of a decode, verify or draft batch has more than index_topk keys
	FreeBytes  int64
	// Ranks encodes the rank of every request, and whether its segment needs
	// scores, if ranks share attention by requests.
	Ranks string
	// Lengths encodes every request of a batch that is not uniform.
	Lengths string
}

// ShapeOf returns the shape of a batch, or the error of Build if it does not accept the batch.
func ShapeOf(cfg Config, b Batch) (Shape, error) {
	var s Shaper
	return s.Of(&cfg, &b)
}

// Shaper computes the shapes of batches of one configuration. It stores the strings of shapes, so that a shape that
// occurred before needs no allocation.
type Shaper struct {
	buf   []byte
	kept  map[string]string
	bytes int
}

// mostKept is the maximum number of bytes of the strings that a Shaper keeps; keptBytes is the overhead of each
// string in bytes.
const (
	mostKept  = 1 << 20
	keptBytes = 96
)

// Of is ShapeOf without allocation for a shape that occurred before.
func (s *Shaper) Of(cfg *Config, b *Batch) (Shape, error) {
	if err := b.check(cfg); err != nil {
		return Shape{}, err
	}
	return s.shape(cfg, b)
}

// keep returns the contents of buf as a string.
func (s *Shaper) keep() string {
	if text, ok := s.kept[string(s.buf)]; ok {
		return text
	}
	n := len(s.buf)*9/8 + keptBytes
	if s.kept == nil || s.bytes+n > mostKept {
		s.kept, s.bytes = map[string]string{}, 0
	}
	text := string(s.buf)
	s.kept[text] = text
	s.bytes += n
	return text
}

func (s *Shaper) shape(cfg *Config, b *Batch) (Shape, error) {
	sh := Shape{Mode: b.Mode, Pass: b.Pass, Graph: b.Graph, Requests: len(b.Requests), PaddedRows: b.PaddedRows,
		NeedSeed: b.NeedSeed, Record: b.Record, Replay: b.Replay, Draws: b.Draws}
	if b.Mode == ModeIdle {
		return sh, nil
	}
	for i := range b.Requests {
		sh.Recorded += b.Requests[i].Records
		sh.Replayed += b.Requests[i].Replays
	}
	var err error
	if sh.TablePages, err = b.tablePages(cfg); err != nil {
		return Shape{}, err
	}
	if cfg.Model.ByRequests() {
		s.buf = s.buf[:0]
		for i := range b.Requests {
			code := byte(2 * b.Requests[i].Rank)
			if b.KindOf(i).DecodeLike() && b.shortSegment(cfg, i) {
				code++
			}
			s.buf = append(s.buf, code)
		}
		sh.Ranks = s.keep()
	}
	uniform := b.Mode.DecodeLike()
	sh.NextN, sh.Logits, sh.Best = b.Rows(cfg, 0), b.Requests[0].Logits, b.Requests[0].Best
	longest := 0
	for i := range b.Requests {
		uniform = uniform && b.Rows(cfg, i) == sh.NextN && b.Requests[i].Logits == sh.Logits &&
			b.Requests[i].Best == sh.Best
		longest = max(longest, b.KeysOf(cfg, i))
	}
	sh.Short = uniform && longest <= cfg.Model.ShortKeys()
	if uniform {
		return sh, nil
	}
	sh.NextN, sh.Logits, sh.Best, sh.FreeBytes = 0, 0, false, b.FreeBytes
	s.lengths(cfg, b)
	sh.Lengths = s.keep()
	return sh, nil
}

// lengths encodes the new tokens of each request and, if the plan depends on it, its number of keys. Of decode, verify
// and draft requests, it encodes only whether their segment needs scores.
func (s *Shaper) lengths(cfg *Config, b *Batch) {
	buf := s.buf[:0]
	for i := range b.Requests {
		r, kind := &b.Requests[i], b.KindOf(i)
		buf = append(buf, byte(kind))
		buf = binary.AppendUvarint(buf, uint64(b.Rows(cfg, i)))
		logits := 2 * uint64(r.Logits)
		if r.Best {
			logits++
		}
		buf = binary.AppendUvarint(buf, logits)
		if kind.DecodeLike() {
			short := byte(0)
			if b.shortSegment(cfg, i) {
				short = 1
			}
			buf = append(buf, short)
			continue
		}
		buf = binary.AppendUvarint(buf, uint64(r.Seq))
	}
	s.buf = buf
}

// shortSegment reports whether no request in the segment of request i, a decode, verify or draft request, has more keys
// than index_topk; then every key is selected without scores.
func (b *Batch) shortSegment(cfg *Config, i int) bool {
	kind, rows := b.KindOf(i), b.Rows(cfg, i)
	for j := range b.Requests {
		if b.KindOf(j) == kind && b.Rows(cfg, j) == rows && b.KeysOf(cfg, j) > cfg.Model.ShortKeys() &&
			(!cfg.Model.ByRequests() || b.Requests[j].Rank == b.Requests[i].Rank) {
			return false
		}
	}
	return true
}
