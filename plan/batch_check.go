package plan

import (
	"fmt"
	"math"
	"math/bits"
)

// Rows returns the number of new tokens of request i.
func (b *Batch) Rows(cfg *Config, i int) int {
	r := &b.Requests[i]
	switch b.KindOf(i) {
	case ModeDecode:
		return 1
	case ModeVerify, ModeDraft:
		if r.N > 0 {
			return r.N
		}
		return cfg.N
	case ModeExtend, ModeSplitPrefill, ModeDLLMExtend, ModeMixed:
		return r.Extend
	case ModeUnset, ModeIdle:
		return 0
	}
	return 0
}

// firstPosition returns the position of the first new token of request i, which has the given number of rows. It is
// negative if a padding request is shorter than its rows.
func (b *Batch) firstPosition(i, rows int) int {
	r := &b.Requests[i]
	if r.Padding {
		return -rows
	}
	switch b.KindOf(i) {
	case ModeVerify:
		return r.Seq
	case ModeDecode, ModeDraft:
		return r.Seq - rows
	case ModeExtend, ModeSplitPrefill, ModeDLLMExtend, ModeMixed:
		return r.Prefix
	case ModeUnset, ModeIdle:
		return 0
	}
	return 0
}

// FirstPosition returns the sequence position of request i's first new token.
func (b *Batch) FirstPosition(cfg *Config, i int) int {
	return b.firstPosition(i, b.Rows(cfg, i))
}

// KeysOf returns the number of keys of request i after the step.
func (b *Batch) KeysOf(cfg *Config, i int) int {
	rows := b.Rows(cfg, i)
	return max(0, b.firstPosition(i, rows)+rows)
}

// ErrLengths returns an error about lengths that contradict each other.
func ErrLengths(format string, args ...any) error {
	return &Error{Code: E26, Asked: fmt.Sprintf(format, args...),
		Supported: "lengths as each mode defines them: extend has seq = prefix + extend, verify excludes its " +
			"drafts, draft includes them"}
}

// check returns an error if fields of the batch contradict each other.
func (b *Batch) check(cfg *Config) error {
	if b.Mode == ModeUnset || int(b.Mode) >= len(modes.words) {
		return &Error{Code: E20, Asked: fmt.Sprintf("a batch of mode %q", b.Mode), Supported: modes.list()}
	}
	if int(b.Graph) >= len(graphModes.words) {
		return &Error{Code: E20, Asked: fmt.Sprintf("a batch in graph mode %d", b.Graph), Supported: graphModes.list()}
	}
	if int(b.Pass) >= len(passes.words) ||
		b.Pass != PassTarget && (b.Mode == ModeIdle || b.Mode == ModeVerify || b.Mode == ModeDecode) {
		return &Error{Code: E20, Asked: fmt.Sprintf("a batch of mode %s in pass %d", b.Mode, b.Pass),
			Supported: "pass target for every mode, the others for extend and draft requests"}
	}
	if err := b.checkGraph(cfg); err != nil {
		return err
	}
	if b.Mode == ModeIdle {
		if len(b.Requests) > 0 {
			return ErrLengths("an idle batch with %d requests, want none", len(b.Requests))
		}
		return nil
	}
	if len(b.Requests) == 0 {
		return ErrLengths("a batch of mode %s without requests", b.Mode)
	}
	if b.FreeBytes < 0 || b.TablePages < 0 || b.PaddedRows < 0 {
		return ErrLengths("free bytes %d, table pages %d and padded rows %d, none of which may be negative",
			b.FreeBytes, b.TablePages, b.PaddedRows)
	}
	total, rows := 0, 0
	for i := range b.Requests {
		if err := b.checkRequest(cfg, i); err != nil {
			return err
		}
		total += b.KeysOf(cfg, i)
		rows += b.Rows(cfg, i)
		if total > math.MaxInt32 || rows > math.MaxInt32 {
			return ErrLengths("a batch of %d keys and %d rows, more than int32 arrays can count", total, rows)
		}
	}
	if b.PaddedRows > 0 && b.PaddedRows < rows {
		return ErrLengths("%d padded rows, fewer than the %d rows of the batch", b.PaddedRows, rows)
	}
	return nil
}

func (b *Batch) checkRequest(cfg *Config, i int) error {
	r := &b.Requests[i]
	kind := b.KindOf(i)
	if b.Mode != ModeMixed && r.Kind != ModeUnset && r.Kind != b.Mode &&
		!(r.Kind == ModeExtend && b.Mode.ExtendLike()) {
		return &Error{Code: E20, Asked: fmt.Sprintf("request %d of kind %s in a batch of mode %s", i, r.Kind, b.Mode),
			Supported: "mode mixed for requests of different kinds"}
	}
	if ranks := max(cfg.Model.Ranks, 1); cfg.Model.ByRequests() && (r.Rank < 0 || r.Rank >= ranks) ||
		!cfg.Model.ByRequests() && r.Rank != 0 {
		return ErrLengths("request %d on rank %d of %d ranks (division of attention: %s)", i, r.Rank, ranks,
			cfg.Model.Division)
	}
	if r.Logits < 0 || kind != ModeIdle && r.Logits > b.Rows(cfg, i) {
		return ErrLengths("request %d, which wants logits of %d rows but has %d new tokens", i, r.Logits,
			b.Rows(cfg, i))
	}
	if rows := b.Rows(cfg, i); !within(r.RecordFrom, r.Records, rows) || !within(r.ReplayFrom, r.Replays, rows) ||
		b.Pass != PassTarget && (r.Records > 0 || r.Replays > 0) {
		return ErrLengths("request %d in a pass of the %s, which records %d of its %d new tokens from %d on and "+
			"replays %d from %d on", i, b.Pass, r.Records, rows, r.RecordFrom, r.Replays, r.ReplayFrom)
	}
	if r.Seq < 0 || r.Prefix < 0 || r.Extend < 0 || r.N < 0 || r.Seq > math.MaxInt32 || r.N > math.MaxInt32 ||
		r.Prefix > math.MaxInt32 || r.Extend > math.MaxInt32 {
		return ErrLengths("request %d with lengths seq %d, prefix %d, extend %d, n %d", i, r.Seq, r.Prefix, r.Extend,
			r.N)
	}
	if r.Padding && (r.Seq != 0 || !kind.DecodeLike()) {
		return ErrLengths("request %d of kind %s and length %d as padding; only decode, verify and draft requests of "+
			"length 0 are padding",
			i, kind, r.Seq)
	}
	switch kind {
	case ModeExtend, ModeSplitPrefill, ModeDLLMExtend:
		if r.Extend < 1 || r.Seq != r.Prefix+r.Extend {
			return ErrLengths("request %d with seq %d, prefix %d and extend %d; want extend of at least 1", i, r.Seq,
				r.Prefix, r.Extend)
		}
		return nil
	case ModeDecode, ModeVerify, ModeDraft:
		if r.Prefix != 0 || r.Extend != 0 {
			return ErrLengths("request %d of kind %s with prefix %d and extend %d, which only extends have", i, kind,
				r.Prefix, r.Extend)
		}
		if kind == ModeDecode && r.N > 1 {
			return ErrLengths("request %d, which decodes %d tokens at once, want 1", i, r.N)
		}
		return nil
	case ModeUnset, ModeMixed, ModeIdle:
	}
	return &Error{Code: E20, Asked: fmt.Sprintf("request %d of kind %q in a batch of mode %s", i, kind, b.Mode),
		Supported: "extend, decode, verify, draft"}
}

// within reports whether n rows from first on are among the given number of rows.
func within(first, n, rows int) bool { return n == 0 || first >= 0 && n > 0 && first <= rows-n }

// checkGraph returns an error if the batch cannot use its graph mode. Captured and replayed graphs hold decode, verify
// and draft rows. Piecewise graphs hold prompt rows, in plans of other engines. A rank without rows may use all of
// them.
func (b *Batch) checkGraph(cfg *Config) error {
	ours := cfg.Catalog == CatalogSparrow
	switch {
	case b.Graph == GraphNone:
		return nil
	case !cfg.Hardware.Graphs():
		return &Error{Code: E25, Asked: fmt.Sprintf("a batch of mode %s in graph mode %s on %s, which has no graphs",
			b.Mode, b.Graph, cfg.Hardware.Arch),
			Supported: fmt.Sprintf("eager batches on %s; captured graphs of decode, verify and draft batches on GPUs",
				cfg.Hardware.Arch),
			Try: "--graph none"}
	case b.Graph == GraphPiecewise && ours:
		return &Error{Code: E25, Asked: fmt.Sprintf("a piecewise graph for a batch of mode %s in the catalogue %s",
			b.Mode, cfg.Catalog),
			Supported: "eager prompts and captured decode, verify and draft batches", Try: "--graph none"}
	case b.Mode == ModeIdle:
		return nil
	case b.Graph == GraphPiecewise && !b.Mode.ExtendLike():
		return &Error{Code: E25, Asked: fmt.Sprintf("a piecewise graph for a batch of mode %s", b.Mode),
			Supported: "piecewise graphs of prompt batches", Try: "a captured graph"}
	case b.Graph != GraphPiecewise && !b.Mode.DecodeLike():
		return &Error{Code: E25, Asked: fmt.Sprintf("a captured graph for a batch of mode %s", b.Mode),
			Supported: "captured graphs of decode, verify and draft batches", Try: "an eager batch"}
	}
	return nil
}

// tablePages returns the width of the page tables: Batch.TablePages, or the pages of the longest request, rounded up to
// a power of two so that plans can be reused.
func (b *Batch) tablePages(cfg *Config) (int, error) {
	longest := 1
	for i := range b.Requests {
		longest = max(longest, b.KeysOf(cfg, i))
	}
	need := pagesOf(longest, cfg.Page)
	if b.TablePages == 0 {
		return 1 << bits.Len(uint(need-1)), nil
	}
	if b.TablePages < need {
		return 0, ErrLengths("page tables of %d pages for a request of %d tokens, which needs %d pages", b.TablePages,
			longest, need)
	}
	return b.TablePages, nil
}
