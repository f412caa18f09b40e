package event

import (
	"encoding/binary"

	"sparrow/internal/kv/prefix"
)

// Medium is the location of a page, under vLLM's names.
type Medium uint8

// Locations of pages, the fastest first.
const (
	GPU     Medium = iota // memory of the computing device, even if it is a CPU
	CPU                   // host memory as a second tier
	Storage               // files and stores
	mediums
)

// String returns the medium's name in published events.
func (m Medium) String() string { return [...]string{"GPU", "CPU", "STORAGE"}[m] }

// change is one event of one tier. It is immutable after it was queued.
type change struct {
	kind   kind
	medium Medium
	page   // all fields if the page was stored; only the id if it was removed
	gone   bool
}

type kind uint8

const (
	stored kind = iota
	removed
	cleared
	rooted // the root of prompts without a salt is known
)

// page holds the fields of a page that are published.
type page struct {
	id     uint64
	parent uint64
	first  bool // whether the page is the first of a prompt and has no parent
	root   uint64
	salt   string // salt of root; empty in changes of tiers outside the device, where it is unknown
	tokens []int32
}

// shortHash returns the last 8 bytes of a hash, which are published. vLLM's readers also use the last 8 bytes of longer
// hashes.
func shortHash(h *prefix.Hash) uint64 { return binary.BigEndian.Uint64(h[len(h)-8:]) }
