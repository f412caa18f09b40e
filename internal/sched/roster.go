package sched

import (
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/kv"
)

// roster holds the waiting and the running sequences and their pages. It admits, suspends and frees them.
type roster struct {
	pools    []*kv.Pool // of each rank, where ranks share attention by requests; else one
	limits   Limits
	capacity int         // tokens a pool holds
	waiting  []*Sequence // in order of arrival
	running  []*Sequence // in order of arrival
	kept     []*Sequence // of those that wait, the ones that have kept their pages, in the order of their suspension
	arrivals int64
	all      account     // all owners: its members are tenants, their members flows, and theirs requests
	heads    []*Sequence // memory for the first of each tenant that waits
	promised []*Sequence // that wait, and for which others of their tenant were suspended

	preemptions int64
	onFree      func(*Sequence)
	onAdmit     func(*Sequence) bool
}

// forming holds the batch that is being formed and the predictions of its time.
type forming struct {
	roster  *roster
	items   []Item
	unknown [1]int32    // Tokens of an item whose token is not known
	prompts []*Sequence // computed in this batch
	begun   []*Sequence // prompts under way that are not in it, while it is formed
	// prompted: the batch computes prompts of foreground sequences, and no background sequences
	prompted bool
	load     load        // of this batch, until the next is formed
	room     room        // left in this batch
	oldest   []*Sequence // memory for those that run
	cost     cost.Model
	stall    time.Duration // Stall
	waited   time.Duration // Waited
}
