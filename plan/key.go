package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
)

// hash is FNV-1a over 64-bit words: the same in all processes and versions of Go, and computed without allocation.
type hash uint64

const (
	fnvOffset hash = 14695981039346656037
	fnvPrime  hash = 1099511628211
)

func newHash() hash { return fnvOffset }

func (h *hash) word(v uint64) {
	for range 8 {
		*h = (*h ^ hash(v&0xff)) * fnvPrime
		v >>= 8
	}
}

func (h *hash) int(v int) { h.word(uint64(v)) }

func (h *hash) flags(list ...bool) {
	var v uint64
	for i, f := range list {
		if f {
			v |= 1 << i
		}
	}
	h.word(v)
}

// fingerprint hashes the configuration as JSON, so that new fields are included automatically. It leaves out fields
// that only explain other fields: the user's settings, the reasons and the rejected candidates.
func fingerprint(c *Config) (Key, error) {
	decided := c.Decided()
	return FingerprintOf(&decided)
}

// Decided returns the configuration without the user's settings, the reasons and the rejected candidates.
func (c *Config) Decided() Config {
	decided := *c
	decided.Asked, decided.Fingerprint = Policy{}, 0
	decided.Reasons, decided.Rejected, decided.DenseAgainst = nil, nil, nil
	return decided
}

// FingerprintOf hashes a configuration as JSON.
func FingerprintOf(c any) (Key, error) {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(c); err != nil {
		return 0, fmt.Errorf("plan: fingerprint of the configuration: %w", err)
	}
	return Key(h.Sum64()), nil
}

// keyOf hashes a plan: the configuration, the mode, and everything in each segment that affects its launches. It
// leaves out reasons and byte counts, and the spans of decode, verify and draft segments, so that padded batches of one
// size share a graph.
func keyOf(c *Config, p *Plan) Key {
	h := hash(c.Fingerprint)
	h.word(uint64(p.Mode)<<8 | uint64(p.Graph))
	h.int(p.TablePages)
	if p.Recorded > 0 || p.Replayed > 0 {
		h.flags(p.Record.Hidden, p.Record.Selections, p.Record.Scores, p.Record.Experts, p.Replay.Selections,
			p.Replay.Experts)
		h.int(p.Recorded)
		h.int(p.Replayed)
	}
	if p.Draws {
		h.flags(p.Draws)
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		if p.Shares != nil {
			h.int(s.Rank)
		}
		h.word(uint64(s.Row)<<56 | uint64(s.Form)<<48 | uint64(s.Kernel)<<40 | uint64(s.Layout)<<32 |
			uint64(s.Convert)<<24 | uint64(s.Transform)<<16 | uint64(s.Indexer.Kind)<<8 | uint64(s.Variant))
		h.flags(s.FusedTopK, s.NeedIndices, s.RopeInKernel, s.SplitsFixed)
		h.int(s.KernelRows)
		h.int(s.Requests)
		h.int(s.NextN)
		h.int(s.KernelHeads<<16 | s.HeadRepeat)
		h.int(s.Indexer.RowsPerChunk)
		h.int(s.Indexer.ScoreWidth)
		h.int(s.Indexer.KernelN<<8 | int(s.Indexer.Schedule))
		h.int(s.RowsPerLaunch)
		for _, l := range s.Launches {
			h.int(l.Rows)
		}
		if s.Row.DecodeLike() || s.NextN > 0 {
			continue
		}
		for _, sp := range s.Spans {
			h.int(sp.Request)
			h.int(sp.From)
			h.int(sp.To)
		}
		h.int(s.Keys)
	}
	return Key(h)
}
