package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"sparrow/internal/model"
)

// lose ends every request after an error that the device does not recover from. The process continues: it answers that
// the device is gone, and can be asked why.
func (l *loop) lose(err error) {
	l.tally.Lock()
	defer l.tally.Unlock()
	if l.tally.lost != nil {
		return
	}
	l.tally.lost = fmt.Errorf("%w: %w%s; all data on the device is lost: restart the server", ErrDevice, err, l.place())
	l.cfg.Log.Error("the device failed; its requests end and no other is accepted", "error", err, "running",
		l.sched.Running(), "waiting", l.sched.Waiting())
	for _, q := range l.sched.All() {
		l.end(q.Owner.(*choice), FinishError, l.tally.lost)
	}
	for i, j := range l.inbox.jobs {
		for _, c := range j.choices {
			l.conclude(c, FinishError, l.tally.lost)
		}
		l.inbox.jobs[i] = nil
	}
	l.inbox.jobs = l.inbox.jobs[:0]
	l.tally.stats.Device = l.tally.lost.Error()
}

// watchdog notices passes that do not end. The loop marks where a pass begins and ends; a goroutine looks at the marks.
type watchdog struct {
	*setup
	tally *tally
	after time.Duration // how long a pass may take; 0 is forever
	began atomic.Int64  // when the pass in progress began, in Unix nanoseconds; 0 without one
}

func (w *watchdog) begin(now time.Time) { w.began.Store(now.UnixNano()) }
func (w *watchdog) end()                { w.began.Store(0) }

// watch reports every pass that takes too long, once, and where it is; and that it has ended, if it does.
func (w *watchdog) watch(stopped <-chan struct{}) {
	if w.after <= 0 {
		return
	}
	reported := int64(0) // the pass that was
	for !w.cfg.Clock.Wait(stopped, max(w.after/8, time.Millisecond)) {
		began := w.began.Load()
		if reported != 0 && began != reported {
			w.tally.noteHang("")
			w.cfg.Log.Warn("the pass that seemed to hang has ended", "after",
				w.since(time.Unix(0, reported)).Round(time.Second))
			reported = 0
		}
		if took := w.since(time.Unix(0, began)); began != 0 && reported == 0 && took >= w.after {
			reported = began
			text := fmt.Sprintf("a pass has not ended for %v%s", took.Round(time.Millisecond), w.place())
			w.cfg.Log.Error("a pass takes longer than the watchdog allows", "text", text, "kernels", w.info.Kernels)
			w.tally.noteHang(text)
		}
	}
}

// place returns where the pass in progress is, in brackets, or an empty text where the model does not report it. Any
// goroutine may call it.
func (s *setup) place() string {
	if p, ok := s.model.(model.Placer); ok {
		return " (" + p.Place() + ")"
	}
	return ""
}
