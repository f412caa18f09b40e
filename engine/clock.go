package engine

import "time"

// Clock is the engine's clock, and the only way in which its goroutines wait. A simulation has a virtual one, on which
// hours pass in seconds and every run of a seed is the same.
type Clock interface {
	Now() time.Time
	// Go runs f concurrently with its caller.
	Go(f func())
	// Wait returns true once wake has a value or is closed, and false when that took longer than a positive limit.
	Wait(wake <-chan struct{}, limit time.Duration) bool
}

// machine is the clock of the machine.
type machine struct{}

func (machine) Now() time.Time { return time.Now() }

func (machine) Go(f func()) { go f() }

func (machine) Wait(wake <-chan struct{}, limit time.Duration) bool {
	if limit <= 0 {
		<-wake
		return true
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-wake:
		return true
	case <-t.C:
		return false
	}
}

// now is the time of the engine's clock.
func (s *setup) now() time.Time { return s.cfg.Clock.Now() }

// since returns how long ago a time of the engine's clock was.
func (s *setup) since(t time.Time) time.Duration { return s.now().Sub(t) }
