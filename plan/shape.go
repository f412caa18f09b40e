package plan

import "encoding/binary"

// Shape is what a plan depends on besides the configuration. Equal shapes give
// identical plans, so a caller may keep plans, and graphs captured with them,
// in a map keyed by Shape. The shape of a decode-like batch holds no lengths.
type Shape struct {
	Mode       Mode
	Graph      GraphMode
	NeedSeed   bool
	Requests   int
	NextN      int // rows per request where all have as many
	TablePages int
	PaddedRows int
	Short      bool // public catalogue: no request exceeds index_topk
	FreeBytes  int64
	// Lengths encodes every request of a batch that is not uniform.
	Lengths string
}

// ShapeOf is the shape of a batch that Build accepts, and the error of Build's
// checks otherwise.
func ShapeOf(cfg Config, b Batch) (Shape, error) {
	if err := b.check(&cfg); err != nil {
		return Shape{}, err
	}
	sh := Shape{Mode: b.Mode, Graph: b.Graph, Requests: len(b.Requests), PaddedRows: b.PaddedRows, NeedSeed: b.NeedSeed}
	if b.Mode == ModeIdle {
		return sh, nil
	}
	var err error
	if sh.TablePages, err = b.tablePages(&cfg); err != nil {
		return Shape{}, err
	}
	uniform, longest := b.Mode.DecodeLike(), 0
	sh.NextN = b.rowsOf(&cfg, 0)
	for i := range b.Requests {
		uniform = uniform && b.rowsOf(&cfg, i) == sh.NextN
		longest = max(longest, b.keysOf(&cfg, i))
	}
	sh.Short = cfg.Catalog == CatalogPublic && longest <= cfg.Model.shortKeys()
	if uniform {
		return sh, nil
	}
	sh.NextN, sh.FreeBytes = 0, b.FreeBytes
	buf := make([]byte, 0, 12*len(b.Requests))
	for i := range b.Requests {
		r := &b.Requests[i]
		buf = append(buf, byte(b.KindOf(i)))
		buf = binary.AppendUvarint(buf, uint64(b.rowsOf(&cfg, i)))
		if kind := b.KindOf(i); kind.DecodeLike() && cfg.Catalog == CatalogSparrow {
			continue
		}
		buf = binary.AppendUvarint(buf, uint64(r.Seq))
	}
	sh.Lengths = string(buf)
	return sh, nil
}
