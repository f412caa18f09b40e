package server

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"sparrow/internal/wire"
	"sparrow/plan"
)

type plansBody struct {
	Plans []planRecord `json:"plans"` // newest first
}

type planRecord struct {
	Step     int64      `json:"step"`
	At       time.Time  `json:"at"`
	TookMS   float64    `json:"took_ms"` // milliseconds of planning, forward pass and sampling
	Requests int        `json:"requests"`
	Plan     *plan.Plan `json:"plan"`
}

// plans handles GET /debug/plans?n=N: it returns the last N plans with their reasons.
func (s debugAPI) plans(w http.ResponseWriter, r *http.Request) error {
	records := s.engine.Plans()
	if text := r.URL.Query().Get("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return wire.NewError(wire.CodeInvalidValue, "n", "is %.40q; want a number of plans, 0 or more", text)
		}
		records = records[max(0, len(records)-n):]
	}
	body := plansBody{Plans: make([]planRecord, len(records))}
	for i, p := range records {
		body.Plans[i] = planRecord{p.Step, p.At, milliseconds(p.Took), p.Requests, p.Plan}
	}
	slices.Reverse(body.Plans)
	return s.respond(w, http.StatusOK, body)
}
