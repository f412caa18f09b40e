package model

import (
	"encoding/json"
	"fmt"
	"time"

	"sparrow/internal/bench/pause"
	"sparrow/internal/machine"
	"sparrow/internal/unit"
)

// Phase holds the times of a decode step or a prefill chunk.
type Phase struct {
	Tokens          int     `json:"tokens"`    // new tokens per step, of all sequences together
	StepMs          float64 `json:"step_ms"`   // best step
	MedianMs        float64 `json:"median_ms"` // median of all steps
	Spread          float64 `json:"spread"`    // (90th - 10th percentile) / median
	Steps           int     `json:"steps"`
	TokensPerSecond float64 `json:"tokens_per_second"` // tokens per second of the best step
	Stages          Stages  `json:"stages_ms"`         // stages of the best step; on a GPU, of a traced step
	// GapMs is the time per step in which a GPU waits for the host. DeviceMs is the sum of the times of all launches in
	// a traced step, where they do not overlap; it may exceed the time of a step in which they do.
	GapMs float64 `json:"gap_ms,omitempty"`
	// SpanMs is the time from the first launch of a step to the end of the last, on the device's clock.
	SpanMs float64 `json:"span_ms,omitempty"`
	// OverlapMs is the median time of a decode step that is enqueued while the previous step runs, as the engine does
	// on a GPU. The step reads the tokens that the previous step samples. Busy is SpanMs / OverlapMs, the share of time
	// in which the GPU works. The tokens of these steps depend on each other, so that other experts may be chosen than
	// in the steps of SpanMs.
	OverlapMs float64 `json:"overlap_ms,omitempty"`
	Busy      float64 `json:"busy,omitempty"`

	Reads *Reads     `json:"reads,omitempty"` // rates of reading weights in a decode step on one CPU device
	Host  *HostShare `json:"host,omitempty"`  // experts that the CPU computes; nil if there are none

	Launches int      `json:"launches,omitempty"`
	DeviceMs float64  `json:"device_ms,omitempty"`
	Kernels  []Kernel `json:"kernels,omitempty"` // kernels, the longest time first
}

// Kernel holds the times of one GPU kernel or one CPU operation, as means per step.
type Kernel struct {
	Name     string  `json:"name"`
	Stage    string  `json:"stage,omitempty"` // stage that the kernel belongs to
	Launches int     `json:"launches"`
	Us       float64 `json:"us"` // time of all launches, in microseconds
	// Shape, BestUs and Bytes are set for a GEMM on a CPU: the shape of its weights, the shortest time of a run, and
	// the bytes of weights that it reads.
	Shape  string  `json:"shape,omitempty"`
	BestUs float64 `json:"best_us,omitempty"`
	Bytes  int64   `json:"bytes,omitempty"`
}

// Prompt holds the time to compute a whole prompt in chunks.
type Prompt struct {
	Length  int    `json:"length"`
	Skipped string `json:"skipped,omitempty"`
	Time    *Phase `json:"time,omitempty"`
}

// MsPerToken returns the best step's milliseconds per new token.
func (p *Phase) MsPerToken() float64 { return p.StepMs / float64(p.Tokens) }

// middleRate returns the tokens per second of the median step.
func (p *Phase) middleRate() float64 { return 1e3 * float64(p.Tokens) / p.MedianMs }

// WithoutScan returns the best step without the indexer's scan, in milliseconds.
func (p *Phase) WithoutScan() float64 { return p.StepMs - p.Stages[Scan] }

// Cell holds the results at one depth of context and one batch size.
type Cell struct {
	Context int    `json:"context"` // tokens in the cache before the measured tokens
	Batch   int    `json:"batch"`   // number of sequences
	Skipped string `json:"skipped,omitempty"`
	Decode  *Phase `json:"decode,omitempty"`
	Prefill *Phase `json:"prefill,omitempty"`
	Draft   *Phase `json:"draft,omitempty"`  // pass that drafts a block
	Verify  *Phase `json:"verify,omitempty"` // verification of all drafts of a block
}

// Flat compares the best decode steps of one sequence at two depths of context, measured alternately, without the
// indexer's scan.
type Flat struct {
	Shallow   int     `json:"shallow"` // tokens in the cache at the smaller depth
	Deep      int     `json:"deep"`
	ShallowMs float64 `json:"shallow_ms"`
	DeepMs    float64 `json:"deep_ms"`
	Steps     int     `json:"steps"` // number of steps at each depth
}

// Verdict holds a target, the measured value, and whether the target was met.
type Verdict struct {
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	Got    string `json:"got"`
	Met    bool   `json:"met"`
}

func (v Verdict) word() string {
	if v.Met {
		return "met"
	}
	return "not met"
}

// Load holds the time to load or generate the weights.
type Load struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Mapped  bool    `json:"mapped,omitempty"` // weights are mapped from files, so that loading reads little
}

func (l Load) String() string {
	if l.Mapped {
		return fmt.Sprintf("%s, mapped, ready in %.2f s", unit.Bytes(l.Bytes), l.Seconds)
	}
	return fmt.Sprintf("%s in %.2f s, %.1f GB/s", unit.Bytes(l.Bytes), l.Seconds, float64(l.Bytes)/l.Seconds/1e9)
}

// Report holds the results of a whole run.
type Report struct {
	Machine machine.Machine `json:"machine"`
	Commit  string          `json:"commit"`
	Date    time.Time       `json:"date"`
	Model   string          `json:"model"`
	Kernels string          `json:"kernels"`
	Threads int             `json:"threads"`
	Packed  bool            `json:"packed,omitempty"`  // whether weights are copied to huge pages
	Precise bool            `json:"precise,omitempty"` // whether activations are not quantised
	Layout  string          `json:"layout"`
	Index   string          `json:"index_layout"`
	Chunk   int             `json:"chunk"` // new tokens of a prefill chunk
	// DenseOff and Deterministic are policies: no dense attention, and arithmetic of a row that does not depend on the
	// batch.
	DenseOff      bool `json:"dense_off,omitempty"`
	Deterministic bool `json:"deterministic,omitempty"`

	Fill    string       `json:"fill"`
	Load    Load         `json:"load"`
	Experts []string     `json:"experts,omitempty"`        // placement of experts, with reasons
	Plain   string       `json:"plain_launches,omitempty"` // why the last pass did not run as a CUDA graph
	Cells   []Cell       `json:"cells"`
	Prompts []Prompt     `json:"prompts,omitempty"`
	Flat    *Flat        `json:"flat,omitempty"`
	Pause   *pause.Pause `json:"gc_pause,omitempty"`
	Drafts  *Drafting    `json:"drafts,omitempty"`
	Accept  []Accepting  `json:"draft_accept,omitempty"`
	Peer    []Compared   `json:"peer,omitempty"`
	Targets []Verdict    `json:"targets,omitempty"`
}

// MarshalJSON writes stages by name.
func (s Stages) MarshalJSON() ([]byte, error) {
	m := map[string]float64{}
	for i, v := range s {
		m[stageNames[i]] = v
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads stages by name; unknown names are ignored.
func (s *Stages) UnmarshalJSON(b []byte) error {
	m := map[string]float64{}
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for i, name := range stageNames {
		s[i] = m[name]
	}
	return nil
}

// cell returns the cell for a context and a batch size, or nil.
func (r *Report) cell(context, batch int) *Cell {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Context == context && c.Batch == batch && c.Skipped == "" {
			return c
		}
	}
	return nil
}
