package event

import (
	"encoding/binary"

	"sparrow/internal/kv/prefix"
)

// Medium is the location of a page, with vLLM's names.
type Medium uint8

// The tiers of the cache, nearest first.
const (
	GPU     Medium = iota // memory of the device that computes, also if that is a CPU
	CPU                   // host memory, as a tier after the device
	Storage               // files and stores
	mediums
)

// String returns the medium's name in published events.
func (m Medium) String() string { return [...]string{"GPU", "CPU", "STORAGE"}[m] }

// change is one event of one tier. It is not modified once it is in a queue.
type change struct {
	kind   kind
	medium Medium
	page   // all fields of a stored page; only the id of a removed page
	gone   bool
}

type kind uint8

const (
	stored kind = iota
	removed
	cleared
	rooted // the root of prompts without a salt became known
)

// page holds the published fields of a page.
type page struct {
	id     uint64
	parent uint64
	first  bool // first page of a prompt: it has no parent
	root   uint64
	salt   string // salt of root; empty in changes of tiers, which do not know the salt
	tokens []int32
}

// shortHash returns the 8 bytes of a hash that are published: the last 8, which readers also take from longer hashes.
func shortHash(h *prefix.Hash) uint64 { return binary.BigEndian.Uint64(h[len(h)-8:]) }
