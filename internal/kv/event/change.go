package event

import (
	"encoding/binary"

	"sparrow/internal/kv/prefix"
)

// Medium is the location of a page, with vLLM's names.
type Medium uint8

// The tiers of the cache, nearest first.
const (
	GPU     Medium = iota // memory of the device that computes, also where that is a CPU
	CPU                   // memory of the host, after the device
	Storage               // files and stores
	mediums
)

// String returns the word on the wire.
func (m Medium) String() string { return [...]string{"GPU", "CPU", "STORAGE"}[m] }

// change is one event of one tier. It is not modified once it is in a queue.
type change struct {
	kind   kind
	medium Medium
	page   // the whole of it for stored, its id for removed
	gone   bool
}

type kind uint8

const (
	stored kind = iota
	removed
	cleared
	rooted // the root of prompts without a salt is known
)

// page holds the published fields of a page.
type page struct {
	id     uint64
	parent uint64
	first  bool // of a prompt: there is no parent
	root   uint64
	salt   string // of root; tiers behind the device do not know it
	tokens []int32
}

// shortHash returns the 8 bytes of a hash that are sent: the last ones, which readers also use of longer hashes.
func shortHash(h *prefix.Hash) uint64 { return binary.BigEndian.Uint64(h[len(h)-8:]) }
