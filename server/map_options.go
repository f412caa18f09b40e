package server

import (
	"cmp"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
	"sparrow/record"
	"sparrow/sample"
)

// origin holds the properties of a request that are not in its body: id, tenant and source, flow and priority from
// headers, a random seed for requests without one, and whether token limits above the context are reduced.
type origin struct {
	id       string
	tenant   string
	source   string
	flow     string
	priority int
	seed     int64
	fit      bool

	background bool
}

// origin returns the origin of an engine request with the given id.
func (s *service) origin(x *exchange, id string) origin {
	return origin{id: id, tenant: x.tenant, source: x.source, flow: x.flow, priority: x.priority, seed: s.seed(),
		fit: !s.options.Strict, background: x.background}
}

// common converts the fields that chat and text completions share.
func common(o *openai.Options, from origin) sparrow.Request {
	r := sparrow.Request{
		Sampling:   sampling(o, from.seed),
		FitContext: from.fit,
		IgnoreEOS:  o.IgnoreEOS,
		Format:     format(o.ResponseFormat),
		Tenant:     from.tenant,
		Salt:       o.CacheSalt,
		Source:     from.source,
		Flow:       from.flow,
		Priority:   from.priority,
		Background: from.background,
		ID:         from.id,
		Trace:      o.WantsTrace(),
	}
	setIf(&r.MinTokens, o.MinTokens)
	if o.Priority != nil {
		r.Priority = -*o.Priority // in vLLM, lower numbers mean higher priority
	}
	if o.Sparrow != nil {
		r.Draft = o.Sparrow.Draft
		r.Record = recorded(o.Sparrow)
		if o.Sparrow.Replay != nil {
			r.Replay = o.Sparrow.Replay.Rows
			if r.Replay == nil {
				r.Replay = []record.Row{} // empty but not nil, so that the engine refuses it
			}
		}
	}
	if o.PromptLogprobs != nil {
		r.Score = scoreAtLeast(nil, *o.PromptLogprobs)
	}
	return r
}

// recorded converts the fields for recording; nil records nothing.
func recorded(x *openai.Extension) *sparrow.Record {
	s := x.Selections
	if s == nil && !x.Experts {
		return nil
	}
	r := &sparrow.Record{Experts: x.Experts}
	if s == nil {
		return r
	}
	r.Selections, r.Layers, r.Scores = true, s.Layers, s.Scores
	switch t := s.Tokens; {
	case t.Range != nil:
		r.Tokens, r.From, r.To = sparrow.RecordRange, t.Range[0], t.Range[1]
	case t.All:
		r.Tokens = sparrow.RecordAll
	}
	return r
}

// scoreAtLeast requests log probabilities of the prompt with at least top alternatives.
func scoreAtLeast(s *sparrow.Score, top int) *sparrow.Score {
	if s == nil {
		s = &sparrow.Score{}
	}
	s.Top = max(s.Top, top)
	return s
}

// sampling converts sampling parameters; absent fields have the values of sample.Default.
func sampling(o *openai.Options, seed int64) sample.Params {
	p := sample.Default()
	setIf(&p.Temperature, o.Temperature)
	setIf(&p.TopP, o.TopP)
	setIf(&p.TopK, o.TopK)
	setIf(&p.MinP, o.MinP)
	setIf(&p.RepetitionPenalty, o.RepetitionPenalty)
	setIf(&p.FrequencyPenalty, o.FrequencyPenalty)
	setIf(&p.PresencePenalty, o.PresencePenalty)
	p.LogitBias = o.LogitBias
	p.Seed = seed
	setIf(&p.Seed, o.Seed)
	p.N = o.Choices()
	p.Stop, p.StopTokenIDs, p.IncludeStop = o.Stop, o.StopTokenIDs, o.IncludeStop
	return p
}

func setIf[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// format converts a response format. Schemas are always enforced; with strict, a schema that cannot be enforced is an
// error.
func format(f *openai.ResponseFormat) sparrow.Format {
	if f == nil {
		return sparrow.Format{}
	}
	switch f.Type {
	case openai.FormatJSONObject:
		return sparrow.Format{Kind: sparrow.FormatJSON, Field: f.Param}
	case openai.FormatJSONSchema:
		strict := f.JSONSchema.Strict
		return sparrow.Format{Kind: sparrow.FormatSchema, Schema: f.JSONSchema.Schema,
			Strict: strict != nil && *strict, Field: f.Param}
	case openai.FormatRegex:
		return sparrow.Format{Kind: sparrow.FormatPattern, Pattern: f.Regex,
			Field: cmp.Or(f.Param, "response_format.regex")}
	case openai.FormatChoice:
		return sparrow.Format{Kind: sparrow.FormatChoice, Choices: f.Choice,
			Field: cmp.Or(f.Param, "response_format.choice")}
	}
	return sparrow.Format{}
}

// checkDraft returns an error if the number of draft tokens exceeds the engine's maximum.
func checkDraft(o *openai.Options, info sparrow.Info) error {
	if o.Sparrow == nil || o.Sparrow.Draft == nil || *o.Sparrow.Draft <= info.Drafts {
		return nil
	}
	if info.Drafts == 0 {
		return wire.NewError(wire.CodeUnsupportedValue, "sparrow.draft",
			"is %d, but this server drafts no tokens: %s; omit it", *o.Sparrow.Draft, info.NoDrafts)
	}
	return wire.NewError(wire.CodeUnsupportedValue, "sparrow.draft",
		"is %d, but this server drafts at most %d tokens at a time; send 0 to %d, or omit it",
		*o.Sparrow.Draft, info.Drafts, info.Drafts)
}
