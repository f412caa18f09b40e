package main

import (
	"fmt"
	"time"

	"sparrow"
)

// prefill shows the progress of a prompt until the first token of the answer. It uses the engine's counters, because
// the engine has no other requests.
type prefill struct {
	stats func() sparrow.Stats
	bar   *progress
	total int64         // tokens of the prompt
	begun int64         // value of the counters before the request
	quit  chan struct{} // closed to stop drawing; nil if nothing is drawn
	ended chan struct{}
}

// watchPrefill starts the progress bar on standard error if it is a terminal; the caller calls stop.
func (a *asker) watchPrefill(r sparrow.Request) *prefill {
	p := &prefill{stats: a.engine.Stats, bar: newProgress(a.side, "reading the prompt")}
	if p.bar.columns == 0 {
		return p
	}
	var ids []int32
	var err error
	if r.Chat != nil {
		ids, err = a.engine.EncodeChat(r.Chat, false)
	} else {
		ids, err = a.engine.Encode(r.Prompt, true)
	}
	if err != nil {
		return p // the request reports the error
	}
	p.total, p.begun = int64(len(ids)), promptRows(p.stats())
	return p
}

// start draws the bar until stop is called.
func (p *prefill) start() {
	if p.total == 0 {
		return
	}
	p.quit, p.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.quit:
				p.bar.end()
				return
			case <-tick.C:
				p.draw()
			}
		}
	}()
}

func (p *prefill) draw() {
	done := min(promptRows(p.stats())-p.begun, p.total)
	p.bar.set(done, p.total, fmt.Sprintf("%d of %d tokens", done, p.total))
}

// stop removes the progress bar. It may be called more than once.
func (p *prefill) stop() {
	if p.quit == nil {
		return
	}
	close(p.quit)
	<-p.ended
	p.quit = nil
}

// promptRows returns the number of prompt tokens that were computed or found in the cache.
func promptRows(s sparrow.Stats) int64 {
	n := s.CachedTokens
	for _, p := range s.Plans {
		if !p.Row.DecodeLike() {
			n += p.Rows
		}
	}
	return n
}
