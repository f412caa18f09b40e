package server

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"

	"sparrow"
	"sparrow/api/sglang"
	"sparrow/internal/wire"
	"sparrow/record"
)

// sglangAPI implements SGLang's endpoint /generate for training: token ids in and out, experts and selections as
// arrays.
type sglangAPI struct{ *service }

// generateNative handles POST /generate.
func (s sglangAPI) generateNative(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, sglang.Decode(s.info.Name))
	if err != nil {
		return err
	}
	if err := s.admit(&req.Options); err != nil {
		return err
	}
	x := exchangeOf(r)
	ask := completionRequests(&req.CompletionRequest, func(int) origin { return s.origin(x, x.id) })
	if req.ReturnLogprob && req.LogprobStart >= 0 {
		ask[0].Score = &sparrow.Score{From: req.LogprobStart}
	}
	to := &nativeAnswer{req: req, shape: s.info.Config.Model.Choices(), id: x.id}
	if err := to.record(&ask[0]); err != nil {
		return err
	}
	return s.collect(w, r, ask, to, to.response)
}

// wholeRows makes a request record all its rows. The prefix cache is not used, because cached rows have no choices to
// record.
func wholeRows(ask *sparrow.Request, selections, experts bool) {
	if selections || experts {
		ask.Record = &sparrow.Record{Selections: selections, Experts: experts, Tokens: sparrow.RecordAll}
		ask.Salt = "\x00rows " + rand.Text()
	}
}

// nativeAnswer collects the events of /generate.
type nativeAnswer struct {
	req      *sglang.Request
	shape    record.Shape
	id       string
	out      sglang.Response
	recorded *record.Rows
	finish   sparrow.Finish
	matched  string
}

// record sets what a request records. It returns an error if the model has no experts or selections to record.
func (a *nativeAnswer) record(ask *sparrow.Request) error {
	if a.req.RoutedExperts && a.shape.Mixing() == 0 {
		return wire.NewError(wire.CodeUnsupportedValue, "return_routed_experts",
			"this model has no experts; omit it")
	}
	if a.req.IndexerTopK && (a.shape.Selecting() == 0 || a.shape.TopK == 0) {
		return wire.NewError(wire.CodeUnsupportedValue, "return_indexer_topk",
			"this model has no indexer: every row attends to every key; omit it")
	}
	wholeRows(ask, a.req.IndexerTopK, a.req.RoutedExperts)
	return nil
}

func (a *nativeAnswer) event(_ int, ev *sparrow.Event) error {
	a.out.Text += ev.Text
	for _, t := range ev.Scored {
		l := sglang.Logprob{ID: t.ID}
		if t.Rank > 0 {
			l.Value = finite(t.Logprob)
		}
		a.out.Meta.InputLogprobs = append(a.out.Meta.InputLogprobs, l)
	}
	for _, t := range ev.Tokens {
		a.out.OutputIDs = append(a.out.OutputIDs, t.ID)
		if a.req.ReturnLogprob {
			a.out.Meta.OutputLogprobs = append(a.out.Meta.OutputLogprobs,
				sglang.Logprob{Value: finite(t.Logprob), ID: t.ID})
		}
	}
	a.recorded = a.recorded.With(ev.Recorded)
	if ev.Finish != "" {
		a.finish, a.matched = ev.Finish, ev.Matched
	}
	return nil
}

// finite returns a number for JSON: minus infinity becomes a very low number.
func finite(v float64) *float64 {
	v = max(v, -math.MaxFloat32)
	return &v
}

func (a *nativeAnswer) response(res *result) (any, error) {
	m, u := &a.out.Meta, &res.usage
	m.ID, m.PromptTokens, m.CompletionTokens, m.CachedTokens = a.id, u.PromptTokens, u.CompletionTokens, u.CachedTokens
	m.WeightVersion = "default"
	if a.out.OutputIDs == nil {
		a.out.OutputIDs = []int32{}
	}
	m.FinishReason = sglang.FinishReason{Type: "stop"}
	switch n := len(a.out.OutputIDs); {
	case a.finish == sparrow.FinishLength:
		m.FinishReason = sglang.FinishReason{Type: "length", Length: n}
	case a.matched != "":
		m.FinishReason.Matched = a.matched
	case n > 0:
		m.FinishReason.Matched = a.out.OutputIDs[n-1]
	}
	rows := u.PromptTokens + len(a.out.OutputIDs) - 1
	if a.req.RoutedExperts {
		all, err := a.recorded.ExpertArray(&a.shape, rows)
		if err != nil {
			return nil, err
		}
		from := min(a.req.ExpertsStart, rows) * len(a.shape.Layers) * a.shape.Chosen
		m.RoutedExperts = encodeArray(all[from:])
	}
	if a.req.IndexerTopK {
		all, layers, _, err := a.recorded.SelectionArray(&a.shape, rows)
		if err != nil {
			return nil, err
		}
		m.IndexerTopK, m.IndexerLayers = encodeArray(all), layers
	}
	return &a.out, nil
}

// encodeArray encodes numbers as little-endian int32 in base64.
func encodeArray(v []int32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
