package sched

import (
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/kv"
)

// roster holds the waiting and the running sequences and their pages. It admits, suspends and frees them.
type roster struct {
	pools    []*kv.Pool // one pool, or one pool for each rank if ranks share attention by requests
	limits   Limits
	capacity int         // number of tokens that a pool holds
	waiting  []*Sequence // waiting sequences, in order of arrival
	running  []*Sequence // running sequences, in order of arrival
	kept     []*Sequence // waiting sequences that have kept their pages, in the order of their suspension
	arrivals int64
	// all is the root of the accounts: its members are tenants, whose members are flows, whose members are requests.
	all      account
	heads    []*Sequence // memory for the first waiting sequence of each tenant
	promised []*Sequence // waiting sequences for which another sequence of their tenant was suspended

	preemptions int64
	onFree      func(*Sequence)
	onAdmit     func(*Sequence) bool
}

// forming holds the batch that is being formed and the predictions of its time.
type forming struct {
	roster  *roster
	items   []Item
	unknown [1]int32    // token of an item whose value is not known yet
	prompts []*Sequence // prompts that are computed in this batch
	begun   []*Sequence // prompts in progress that are not in the batch yet
	// prompted reports that the batch computes prompts of foreground sequences, and therefore has no background
	// sequences.
	prompted bool
	load     load        // load of this batch, until the next batch is formed
	room     room        // rows of this batch that may still be recorded and replayed
	oldest   []*Sequence // memory for the running sequences, oldest first
	cost     cost.Model
	stall    time.Duration // result of Scheduler.Stall
	waited   time.Duration // argument of Scheduler.Waited
}
