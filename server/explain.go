package server

import (
	"cmp"
	"encoding"
	"errors"
	"net/http"
	"strings"

	"sparrow/internal/wire"
	"sparrow/plan"
	"sparrow/plan/explain"
	"sparrow/plan/public"
)

// Limits of batches in requests; the command line accepts larger batches.
const (
	maxExplainText     = 4 << 10
	maxExplainRequests = 1 << 10
	maxExplainTokens   = 1 << 22
)

// explainRequest is the body of POST /debug/explain. Empty fields mean default values; an empty family means the served
// model.
type explainRequest struct {
	Family, Catalog, Hardware, Batch string
	KV, Prefill, Decode, Dense       string
	Heads, Layer, DraftTokens        *int
	Deterministic                    bool
}

var explainFields = wire.Fields[explainRequest]{
	"family":        wire.TextField(func(r *explainRequest) *string { return &r.Family }),
	"catalog":       wire.TextField(func(r *explainRequest) *string { return &r.Catalog }),
	"hw":            wire.TextField(func(r *explainRequest) *string { return &r.Hardware }),
	"batch":         wire.TextField(func(r *explainRequest) *string { return &r.Batch }),
	"kv":            wire.TextField(func(r *explainRequest) *string { return &r.KV }),
	"prefill":       wire.TextField(func(r *explainRequest) *string { return &r.Prefill }),
	"decode":        wire.TextField(func(r *explainRequest) *string { return &r.Decode }),
	"dense":         wire.TextField(func(r *explainRequest) *string { return &r.Dense }),
	"heads":         wire.OptionalInt(func(r *explainRequest) **int { return &r.Heads }),
	"layer":         wire.OptionalInt(func(r *explainRequest) **int { return &r.Layer }),
	"draft_tokens":  wire.OptionalInt(func(r *explainRequest) **int { return &r.DraftTokens }),
	"deterministic": wire.BoolField(func(r *explainRequest) *bool { return &r.Deterministic }),
}

func decodeExplain(d *wire.Decoder, body []byte) (*explainRequest, *wire.Error) {
	return wire.Decode(d, body, explainFields, func(r *explainRequest, p *wire.Problems) {
		for _, f := range []struct{ name, text string }{
			{"family", r.Family}, {"catalog", r.Catalog}, {"hw", r.Hardware}, {"batch", r.Batch}, {"kv", r.KV},
			{"prefill", r.Prefill}, {"decode", r.Decode}, {"dense", r.Dense},
		} {
			wire.WantShort(p, f.name, f.text, maxExplainText)
		}
		wire.WantRange(p, "heads", r.Heads, 1, 1<<10)
		wire.WantRange(p, "layer", r.Layer, 0, 1<<10)
		wire.WantRange(p, "draft_tokens", r.DraftTokens, 0, 16)
	})
}

// debugAPI implements the endpoints that show plans: those of recent passes, and those for a batch in the request.
type debugAPI struct{ *service }

// explain handles POST /debug/explain: it returns the plan for a batch with reasons, as `sparrow explain --json` does.
func (s debugAPI) explain(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, decodeExplain)
	if err != nil {
		return err
	}
	ask, err := s.ask(req)
	if err != nil {
		return err
	}
	a, err := ask.Answer()
	if err != nil {
		return explainError("", err)
	}
	return s.respond(w, http.StatusOK, a)
}

// ask converts a request to the inputs of the planner.
func (s debugAPI) ask(r *explainRequest) (ask explain.Ask, err error) {
	ask.Model, ask.Question.Layer = s.info.Config.Model, -1
	if r.Family != "" {
		if ask.Model, err = plan.ModelFor(r.Family); err != nil {
			return ask, explainError("family", err)
		}
	}
	ask.Hardware = s.info.Config.Hardware
	if r.Hardware != "" {
		if ask.Hardware, err = plan.HardwareFor(r.Hardware); err != nil {
			return ask, explainError("hw", err)
		}
	}
	if r.Heads != nil {
		ask.Model.Heads = *r.Heads
	}
	if r.Layer != nil {
		if ask.Question.Layer = *r.Layer; *r.Layer > ask.Model.Layers {
			return ask, wire.NewError(wire.CodeOutOfRange, "layer", "the model has layers 0 to %d, and drafting "+
				"layer %d if the checkpoint has one", ask.Model.Layers-1, ask.Model.Layers)
		}
	}
	var catalog plan.Catalog
	p := plan.Policy{KV: r.KV, Prefill: r.Prefill, Decode: r.Decode, Deterministic: r.Deterministic}
	for _, f := range []struct {
		param, text string
		to          encoding.TextUnmarshaler
	}{{"catalog", cmp.Or(r.Catalog, "sparrow"), &catalog}, {"dense", r.Dense, &p.Dense}} {
		if err := f.to.UnmarshalText([]byte(f.text)); err != nil {
			return ask, explainError(f.param, err)
		}
	}
	if r.DraftTokens != nil {
		p.Speculation.Tokens = *r.DraftTokens
	}
	if catalog == plan.CatalogPublic {
		ask.Public = &public.Policy{KV: p.KV, Prefill: p.Prefill, Decode: p.Decode, Dense: p.Dense,
			Deterministic: p.Deterministic, Speculation: p.Speculation}
	} else {
		ask.Policy, _ = plan.Defaults(&ask.Hardware, ask.Model.Family, p)
	}
	if r.Batch == "" {
		return ask, nil
	}
	b, err := plan.ParseBatch(r.Batch)
	if err != nil {
		return ask, explainError("batch", err)
	}
	ask.Batch = &b
	return ask, checkExplained(&b)
}

// checkExplained returns an error for batches that take too long to plan or whose plans are too large.
func checkExplained(b *plan.Batch) error {
	tokens := 0
	for _, r := range b.Requests {
		if tokens += max(r.Seq, 0); tokens > maxExplainTokens {
			break
		}
	}
	if len(b.Requests) > maxExplainRequests || tokens > maxExplainTokens {
		return wire.NewError(wire.CodeOutOfRange, "batch", "this endpoint explains batches of at most %d requests "+
			"with %d tokens in total; use 'sparrow explain' for larger ones", maxExplainRequests, maxExplainTokens)
	}
	return nil
}

// explainError converts an error of the planner to a client error. In the planner's advice, flags of the command line
// are replaced by fields of the request.
func explainError(param string, err error) error {
	var refused *plan.Error
	if errors.As(err, &refused) {
		in := *refused
		in.Try = strings.ReplaceAll(in.Try, "--", "")
		err = &in
	}
	return wire.NewError(wire.CodeInvalidValue, param, "%s", err.Error())
}

// explainOptions holds the accepted values of the fields of POST /debug/explain.
type explainOptions struct {
	Model       string              `json:"model"`      // served model, which is explained if no family is given
	IndexTopK   int                 `json:"index_topk"` // maximum keys per row of the served model
	Families    []string            `json:"families"`
	Hardware    []string            `json:"hardware"`
	Devices     map[string][]string `json:"devices"` // [hardware] names of devices
	Catalogs    []plan.Catalog      `json:"catalogs"`
	BatchSyntax string              `json:"batch_syntax"`
}

// explainChoices handles GET /debug/explain: it returns the accepted values of the fields.
func (s debugAPI) explainChoices(w http.ResponseWriter, _ *http.Request) error {
	o := explainOptions{Model: s.info.Name, IndexTopK: s.info.Config.Model.K, Families: plan.UsualModelNames(),
		Hardware: plan.HardwareNames(), Devices: map[string][]string{}, BatchSyntax: plan.BatchSyntax,
		Catalogs: []plan.Catalog{plan.CatalogSparrow, plan.CatalogPublic}}
	for _, name := range o.Hardware {
		h, err := plan.HardwareFor(name)
		if err != nil {
			return err
		}
		if names := plan.DevicesOf(h.Arch); len(names) > 0 {
			o.Devices[name] = names
		}
	}
	return s.respond(w, http.StatusOK, o)
}
