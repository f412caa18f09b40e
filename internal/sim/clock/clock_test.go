package clock

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Processes and calls run in the order of their times, and in the order of waiting if times are equal.
func TestOrder(t *testing.T) {
	v := New(time.Unix(0, 0))
	var got []string
	note := func(s string) { got = append(got, s) }
	wake := make(chan struct{}, 1)
	err := v.Run(func() {
		v.After(2*time.Second, func() { note("call at 2") })
		v.Go(func() {
			note("b begins")
			v.Sleep(2 * time.Second)
			note("b at 2")
			wake <- struct{}{}
			note("b goes on")
		})
		v.Go(func() {
			note("c begins")
			if v.Wait(wake, time.Hour) {
				note("c is woken at " + v.Now().UTC().Format("5"))
			}
			if !v.Wait(wake, time.Second) {
				note("c gives up at " + v.Now().UTC().Format("5"))
			}
		})
		v.Sleep(time.Minute)
		note("a ends")
	})
	want := []string{"b begins", "c begins", "call at 2", "b at 2", "b goes on", "c is woken at 2", "c gives up at 3",
		"a ends"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("events %v, error %v; want %v", got, err, want)
	}
	if now := v.Now(); v.Processes() != 0 || !now.Equal(time.Unix(60, 0)) {
		t.Errorf("%d processes are left at %v", v.Processes(), now)
	}
}

// A process continues in the next Run; a process that waits forever is detected.
func TestRunsFollowEachOther(t *testing.T) {
	v := New(time.Unix(0, 0))
	at := time.Duration(0)
	if err := v.Run(func() {
		v.Go(func() {
			v.Sleep(time.Hour)
			at = v.Now().Sub(time.Unix(0, 0))
		})
		v.Sleep(time.Second)
	}); err != nil || at != 0 || v.Processes() != 1 {
		t.Fatalf("error %v, time %v, %d processes", err, at, v.Processes())
	}
	if err := v.Run(func() { v.Sleep(2 * time.Hour) }); err != nil || at != time.Hour || v.Processes() != 0 {
		t.Errorf("error %v, time %v, %d processes", err, at, v.Processes())
	}
	if err := v.Run(func() { v.Wait(make(chan struct{}), 0) }); !errors.Is(err, ErrStuck) {
		t.Errorf("a process that waits forever: error %v", err)
	}
}
