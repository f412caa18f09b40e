package explain

import (
	"fmt"

	"sparrow/plan"
)

// Ask is everything a decision depends on. Batch is nil when only the configuration is asked for.
type Ask struct {
	Model    plan.Model
	Hardware plan.Hardware
	Policy   plan.Policy
	Batch    *plan.Batch
	Question
}

// Answer resolves the configuration and plans the batch.
func (q Ask) Answer() (*Answer, error) {
	cfg, notices, err := plan.Resolve(q.Hardware, q.Model, q.Policy)
	if err != nil {
		return nil, err
	}
	if q.Batch != nil && cfg.Runnable {
		for i, r := range q.Batch.Requests {
			if r.Seq > q.Model.Context {
				return nil, fmt.Errorf("explain: batch: request %d has %d tokens, the model's context holds %d", i,
					r.Seq, q.Model.Context)
			}
		}
	}
	return Explain(cfg, notices, q.Batch, q.Question)
}
