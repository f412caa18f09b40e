package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"sparrow/model"
)

// lose ends every request after an error that the device does not recover from. The process goes on: it answers that
// the device is gone, and can be asked why.
func (e *Engine) lose(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost != nil {
		return
	}
	e.lost = fmt.Errorf("%w: %w%s; everything on it is lost, restart the server", ErrDevice, err, e.place())
	e.cfg.Log.Error("the device failed; its requests end and no other is accepted", "error", err, "running",
		e.sched.Running(), "waiting", e.sched.Waiting())
	for _, q := range e.sched.All() {
		e.end(q.Owner.(*choice), FinishError, e.lost)
	}
	for i, j := range e.inbox {
		for _, c := range j.choices {
			e.conclude(c, FinishError, e.lost)
		}
		e.inbox[i] = nil
	}
	e.inbox = e.inbox[:0]
	e.stats.Device = e.lost.Error()
}

// watchdog notices passes that do not end. The loop marks where a pass begins and ends; a goroutine looks at the marks.
type watchdog struct {
	after time.Duration // how long a pass may take; 0 is for ever
	began atomic.Int64  // when the pass in progress began, in Unix nanoseconds; 0 without one
}

func (w *watchdog) begin(now time.Time) { w.began.Store(now.UnixNano()) }
func (w *watchdog) end()                { w.began.Store(0) }

// watch reports every pass that takes too long, once, and where it is; and that it has ended, if it does.
func (e *Engine) watch() {
	w := &e.watchdog
	if w.after <= 0 {
		return
	}
	reported := int64(0) // the pass that was
	for !e.cfg.Clock.Wait(e.stopped, max(w.after/8, time.Millisecond)) {
		began := w.began.Load()
		if reported != 0 && began != reported {
			e.noteHang("")
			e.cfg.Log.Warn("the pass that seemed to hang has ended", "after",
				e.since(time.Unix(0, reported)).Round(time.Second))
			reported = 0
		}
		if took := e.since(time.Unix(0, began)); began != 0 && reported == 0 && took >= w.after {
			reported = began
			text := fmt.Sprintf("a pass has not ended for %v%s", took.Round(time.Millisecond), e.place())
			e.cfg.Log.Error("the watchdog saw no progress", "text", text, "kernels", e.info.Kernels)
			e.noteHang(text)
		}
	}
}

// place is where the pass in progress is, in brackets, or nothing where the model does not say. Any goroutine may ask.
func (e *Engine) place() string {
	if p, ok := e.model.(model.Placer); ok {
		return " (" + p.Place() + ")"
	}
	return ""
}

// noteHang says in Stats where the device hangs, or with an empty text that it does not.
func (e *Engine) noteHang(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost == nil {
		e.stats.Device = text
	}
}
