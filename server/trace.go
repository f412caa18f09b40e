package server

import (
	"encoding/json"
	"slices"
	"time"

	"sparrow"
	"sparrow/internal/wire"
	"sparrow/plan"
)

// promptTrace is the trace of one prompt of a request.
type promptTrace struct {
	prompt  int
	seed    int64
	trace   *sparrow.Trace
	effort  effort
	leftOut []string
}

// traceList is the object sparrow of a response: one trace per prompt, in order.
type traceList struct {
	Traces []traceBody `json:"traces"`
}

type traceBody struct {
	Prompt    int        `json:"prompt"` // index of the prompt; 0 for a chat
	ID        string     `json:"id"`
	Seed      int64      `json:"seed"` // seed of the request, or the random seed that was used
	Prefix    prefixBody `json:"prefix"`
	Times     timesBody  `json:"times"`
	Steps     int        `json:"steps"`
	Preempted int        `json:"preempted"`
	// Drafts counts verified and accepted drafts by their position in the draft chain; empty without drafts.
	Drafts []draftBody `json:"drafts,omitempty"`
	Plans  []planBody  `json:"plans"`

	Effort  *effortBody `json:"effort,omitempty"`
	LeftOut []string    `json:"left_out,omitempty"` // types of tools that were not offered to the model
}

// effortBody holds the requested and the effective reasoning effort.
type effortBody struct {
	Asked string `json:"asked"`
	Used  string `json:"used"`
}

// draftBody counts the drafts at one position of the draft chain.
type draftBody struct {
	Judged int64 `json:"judged"`
	Right  int64 `json:"right"`
}

// prefixBody states how many prompt tokens were found in the cache, and why no more were found.
type prefixBody struct {
	MatchedTokens int    `json:"matched_tokens"`
	MatchedPages  int    `json:"matched_pages"`
	PromptTokens  int    `json:"prompt_tokens"`
	StoppedAt     int    `json:"stopped_at"` // index of the first token that was not found
	Stop          string `json:"stop"`

	Restored *restoredBody `json:"restored,omitempty"`
}

// restoredBody states how many further prompt tokens were loaded from tiers, and why no more were loaded.
type restoredBody struct {
	Tokens int            `json:"tokens"`
	Tiers  map[string]int `json:"tiers,omitempty"`
	Stop   string         `json:"stop,omitempty"`
}

// timesBody holds the duration of each stage in milliseconds.
type timesBody struct {
	Queued  float64 `json:"queued_ms"`
	Prefill float64 `json:"prefill_ms"`
	Decode  float64 `json:"decode_ms"`
}

// planBody is a plan and the number of steps in which it computed rows of the request.
type planBody struct {
	Steps    int            `json:"steps"`
	Mode     plan.Mode      `json:"mode"`
	Graph    plan.GraphMode `json:"graph"`
	Key      plan.Key       `json:"key"`
	Rows     int            `json:"rows"`
	Segments []segmentBody  `json:"segments"`
	Reasons  []plan.Reason  `json:"reasons,omitempty"`
}

type segmentBody struct {
	Row       plan.RowKind     `json:"row"`
	Rows      int              `json:"rows"`
	Form      plan.Form        `json:"form"`
	Kernel    plan.Kernel      `json:"kernel"`
	Layout    plan.Layout      `json:"layout"`
	Convert   plan.Convert     `json:"convert"`
	Transform plan.Transform   `json:"transform"`
	Indexer   plan.IndexerKind `json:"indexer"`
	Launches  int              `json:"launches"`
	Reasons   []plan.Reason    `json:"reasons"`
	Rejected  []plan.Rejection `json:"rejected,omitempty"`
}

// traceJSON returns the object sparrow, or nil if no trace was requested.
func traceJSON(traces []promptTrace) (json.RawMessage, error) {
	if len(traces) == 0 {
		return nil, nil
	}
	list := traceList{Traces: make([]traceBody, len(traces))}
	for i, t := range traces {
		list.Traces[i] = bodyOf(t)
	}
	slices.SortFunc(list.Traces, func(a, b traceBody) int { return a.Prompt - b.Prompt })
	return wire.Marshal(list)
}

func bodyOf(p promptTrace) traceBody {
	t := p.trace
	b := traceBody{
		Prompt: p.prompt, ID: t.ID, Seed: p.seed,
		Prefix: prefixBody{t.Match.Tokens, t.Match.Pages, t.Match.Prompt, t.Match.At, t.Match.Stop.String(), nil},
		Times:  timesBody{milliseconds(t.Queued), milliseconds(t.Prefill), milliseconds(t.Decode)},
		Steps:  t.Steps, Preempted: t.Preempted, Plans: make([]planBody, 0, len(t.Plans)), LeftOut: p.leftOut,
	}
	if p.effort.asked != "" {
		b.Effort = &effortBody{p.effort.asked, p.effort.used}
	}
	if r := t.Restored; r.Tokens > 0 || r.Stop != "" {
		b.Prefix.Restored = &restoredBody{r.Tokens, r.Tiers, r.Stop}
	}
	for _, n := range t.Drafts {
		b.Drafts = append(b.Drafts, draftBody{n.Judged, n.Right})
	}
	for _, use := range t.Plans {
		if use.Plan != nil {
			b.Plans = append(b.Plans, planOf(use))
		}
	}
	return b
}

func planOf(use sparrow.PlanUse) planBody {
	p := use.Plan
	b := planBody{Steps: use.Steps, Mode: p.Mode, Graph: p.Graph, Key: p.Key, Rows: p.Rows, Reasons: p.Reasons,
		Segments: make([]segmentBody, len(p.Segments))}
	for i := range p.Segments {
		s := &p.Segments[i]
		b.Segments[i] = segmentBody{
			Row: s.Row, Rows: s.Rows, Form: s.Form, Kernel: s.Kernel, Layout: s.Layout, Convert: s.Convert,
			Transform: s.Transform, Indexer: s.Indexer.Kind, Launches: len(s.Launches), Reasons: s.Reasons,
			Rejected: s.Rejected,
		}
	}
	return b
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
