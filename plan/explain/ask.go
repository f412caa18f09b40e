package explain

import (
	"fmt"

	"sparrow/plan"
	"sparrow/plan/public"
)

// Ask holds all inputs of a decision that explain prints. Batch is nil if only the configuration is requested.
type Ask struct {
	Model    plan.Model
	Hardware plan.Hardware
	Policy   plan.Policy
	// Public holds the settings of another engine; if set, Policy is not used.
	Public *public.Policy
	Batch  *plan.Batch
	Question
}

// Answer resolves the configuration and plans the batch.
func (q Ask) Answer() (*Answer, error) {
	if q.Public != nil {
		cfg, notices, err := public.Resolve(q.Hardware, q.Model, *q.Public)
		if err != nil {
			return nil, err
		}
		return Explain(cfg, notices, q.Batch, q.Question)
	}
	cfg, notices, err := plan.Resolve(q.Hardware, q.Model, q.Policy)
	if err != nil {
		return nil, err
	}
	if q.Batch != nil {
		for i, r := range q.Batch.Requests {
			if r.Seq > q.Model.Context {
				return nil, fmt.Errorf("explain: batch: request %d has %d tokens, but the model's context holds "+
					"only %d", i,
					r.Seq, q.Model.Context)
			}
		}
	}
	return Explain(public.Config{Config: cfg}, notices, q.Batch, q.Question)
}
