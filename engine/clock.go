package engine

import "time"

// Clock is the clock of the engine. Goroutines of the engine start and wait only through it. A simulation uses a
// virtual clock: simulated hours take seconds, and all runs with the same seed are equal.
type Clock interface {
	Now() time.Time
	// Go runs f concurrently with its caller.
	Go(f func())
	// Wait waits until wake has a value or is closed, and returns true. If limit is positive, it returns false after
	// that time.
	Wait(wake <-chan struct{}, limit time.Duration) bool
}

// machine is the system clock.
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

func (s *setup) now() time.Time { return s.cfg.Clock.Now() }

// since returns the time elapsed since t on the engine's clock.
func (s *setup) since(t time.Time) time.Duration { return s.now().Sub(t) }
