package server

import (
	"time"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// reportEvery is the interval of progress reports in a stream.
const reportEvery = 250 * time.Millisecond

// reporter is a sink that can send the progress of the prompts to its client.
type reporter interface {
	reports() bool // whether the client has requested progress
	report(promptProgress) error
}

// progressing is a stream with the progress of its prompt.
type progressing interface {
	Progress() (computed, cached int)
}

// promptProgress is the progress of a request's prompts, in llama.cpp's format.
type promptProgress struct {
	Total     int     `json:"total"`     // prompt tokens
	Cached    int     `json:"cache"`     // prompt tokens that were found in the cache
	Processed int     `json:"processed"` // prompt tokens that were found in the cache or computed so far
	Time      float64 `json:"time_ms"`   // milliseconds since the first step
}

// reports sends the progress of the prompts at intervals until the first token.
type reports struct {
	due    <-chan time.Time
	ticker *time.Ticker
	to     reporter
	flow   *flow
	begun  time.Time
}

func newReports(to sink, f *flow) *reports {
	r := &reports{flow: f, begun: time.Now()}
	if t, ok := to.(reporter); ok && t.reports() {
		r.to, r.ticker = t, time.NewTicker(reportEvery)
		r.due = r.ticker.C
	}
	return r
}

// stop ends the reports.
func (r *reports) stop() {
	if r.ticker != nil {
		r.ticker.Stop()
		r.due = nil
	}
}

func (r *reports) send() error {
	p := promptProgress{Total: r.flow.promptTokens}
	for _, s := range r.flow.streams {
		if s, ok := s.(progressing); ok {
			computed, cached := s.Progress()
			p.Processed += computed
			p.Cached += cached
		}
	}
	p.Time = float64((time.Since(r.begun) - r.flow.waited()).Microseconds()) / 1000
	return r.to.report(p)
}

// progressChunk is a chunk without choices.
type progressChunk struct {
	openai.Head
	Choices  []openai.ChunkChoice `json:"choices"`
	Progress promptProgress       `json:"prompt_progress"`
}

func (s *chatStream) reports() bool { return s.progress }

func (s *chatStream) report(p promptProgress) error {
	head := s.head
	head.Object = openai.ObjectChatChunk
	text, err := wire.Marshal(progressChunk{head, []openai.ChunkChoice{}, p})
	if err != nil {
		return err
	}
	s.buf = append(append(append(s.buf, "data: "...), text...), "\n\n"...)
	return s.flush()
}
