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

// traceList is the sparrow object of a response: one trace for each prompt, in order.
type traceList struct {
	Traces []traceBody `json:"traces"`
}

type traceBody struct {
	Prompt    int        `json:"prompt"` // index of the prompt; always 0 for a chat
	ID        string     `json:"id"`
	Seed      int64      `json:"seed"` // seed of the request, or the random seed that was used
	Prefix    prefixBody `json:"prefix"`
	Times     timesBody  `json:"times"`
	Steps     int        `json:"steps"`
	Preempted int        `json:"preempted"`
	// Drafts counts the verified and the accepted drafts by their position in the chain; empty without drafts.
	Drafts []draftBody `json:"drafts,omitempty"`
	Plans  []planBody  `json:"plans"`

	Effort  *effortBody `json:"effort,omitempty"`
	LeftOut []string    `json:"left_out,omitempty"` // types of tools that were not offered
}

// effortBody is the effective reasoning effort, if the request sets one.
type effortBody struct {
	Asked string `json:"asked"`
	Used  string `json:"used"`
}

// draftBody counts the drafts at one position of their chains.
type draftBody struct {
	Judged int64 `json:"judged"`
	Right  int64 `json:"right"`
}

// prefixBody reports how much of the prompt was found in the cache and why not more.
type prefixBody struct {
	MatchedTokens int    `json:"matched_tokens"`
	MatchedPages  int    `json:"matched_pages"`
	PromptTokens  int    `json:"prompt_tokens"`
	StoppedAt     int    `json:"stopped_at"` // index of the first token that was not found
	Stop          string `json:"stop"`

	Restored *restoredBody `json:"restored,omitempty"`
}

// restoredBody holds the number of further tokens that tiers returned, and why not more.
type restoredBody struct {
	Tokens int            `json:"tokens"`
	Tiers  map[string]int `json:"tiers,omitempty"`
	Stop   string         `json:"stop,omitempty"`
}

// timesBody holds the time of each stage, in milliseconds.
type timesBody struct {
	Queued  float64 `json:"queued_ms"`
	Prefill float64 `json:"prefill_ms"`
	Decode  float64 `json:"decode_ms"`
}

// planBody is a plan that computed the prompt, and the number of its steps.
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

// traceJSON writes the sparrow object; nil if no trace was requested.
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
