package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"sparrow/internal/model"
)

// lose fails every request after an error from which the device does not recover. The process continues: it refuses new
// requests with this error and still reports its status.
func (l *loop) lose(err error) {
	l.tally.Lock()
	defer l.tally.Unlock()
	if l.tally.lost != nil {
		return
	}
	l.tally.lost = fmt.Errorf("%w: %w%s; all data on the device is lost: restart the server", ErrDevice, err, l.place())
	l.cfg.Log.Error("the device failed; its requests end and new requests are refused", "error", err, "running",
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

// watchdog detects passes that do not end. The loop records when a pass begins and ends; a goroutine checks these
// times.
type watchdog struct {
	*setup
	tally *tally
	after time.Duration // maximum time of a pass; 0 means no limit
	began atomic.Int64  // time when the pass in progress began, in Unix nanoseconds; 0 if no pass is in progress
}

func (w *watchdog) begin(now time.Time) { w.began.Store(now.UnixNano()) }
func (w *watchdog) end()                { w.began.Store(0) }

// watch reports each pass that exceeds the limit once, with the operation in progress, and reports the end of the pass
// if it ends.
func (w *watchdog) watch(stopped <-chan struct{}) {
	if w.after <= 0 {
		return
	}
	reported := int64(0) // start time of the pass that was reported last, in Unix nanoseconds; 0 if none
	for !w.cfg.Clock.Wait(stopped, max(w.after/8, time.Millisecond)) {
		began := w.began.Load()
		if reported != 0 && began != reported {
			w.tally.noteHang("")
			w.cfg.Log.Warn("the pass that exceeded the watchdog's limit has ended", "after",
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

// place returns the operation of the pass in progress, in brackets, or an empty string if the model does not report it.
// Any goroutine may call it.
func (s *setup) place() string {
	if p, ok := s.model.(model.Placer); ok {
		return " (" + p.Place() + ")"
	}
	return ""
}
