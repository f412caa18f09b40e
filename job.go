package sparrow

import (
	"time"

	"sparrow/grammar"
	"sparrow/kv"
	"sparrow/model"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/spec"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// job is one request inside the engine. The loop owns it once it is submitted; its queue is shared with the stream.
type job struct {
	request Request
	prompt  []int32
	choices []*choice
	queue   queue

	open              int // choices that have not ended
	cancelled, failed bool
	usage             Usage
	arrived, admitted time.Time
	first             time.Time // of the first token
	trace             *Trace    // nil unless asked for
}

// choice is one of a job's n continuations.
type choice struct {
	job     *job
	index   int
	seq     sched.Sequence
	sampler *sample.Sampler
	rows    model.State        // what a stateful model keeps of the sequence while it holds pages; else nil
	state   *grammar.State     // the document it must be; nil for free text
	think   int32              // token that ends reasoning, before which state says nothing; -1 when it has come
	calls   *toolcall.State    // how tool calls must look; nil without tools
	mask    sample.Mask        // memory for the masks of both
	draft   spec.Request       // how many tokens to draft
	noEnd   sample.Mask        // everything but tokens that end the choice or that inWords leaves out; nil without MinTokens
	inWords sample.Mask        // everything but tokens that begin a tool call, for free text; nil when calls may begin
	decoder *tokenizer.Decoder // nil without a tokenizer
	stops   *sample.StopMatcher
	made    int // tokens generated
	limit   int
	starts  int      // times it started over because a failed step spoilt its state
	match   kv.Match // what the prefix cache gave the prompt
	matched string
	ran     bool // was part of a step
	ended   bool
}

// finish completes the books of a job.
func (j *job) finish(now time.Time) {
	if j.trace == nil {
		return
	}
	j.trace.ID = j.request.ID
	j.trace.Match = j.choices[0].match
	for _, c := range j.choices {
		j.trace.Matches = append(j.trace.Matches, c.match)
		j.trace.Preempted += c.seq.Preempted
	}
	if !j.admitted.IsZero() {
		j.trace.Queued = j.admitted.Sub(j.arrived)
	}
	if !j.first.IsZero() {
		j.trace.Prefill, j.trace.Decode = j.first.Sub(j.admitted), now.Sub(j.first)
	}
}

// ran notes that a plan carried the job for one step.
func (j *job) ran(p *plan.Plan) {
	if j.trace == nil {
		return
	}
	j.trace.Steps++
	for i := range j.trace.Plans {
		if j.trace.Plans[i].Plan == p {
			j.trace.Plans[i].Steps++
			return
		}
	}
	j.trace.Plans = append(j.trace.Plans, PlanUse{Plan: p, Steps: 1})
}
