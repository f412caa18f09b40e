package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/internal/testkit/await"
	"sparrow/kernel"
	"sparrow/plan"
)

// Invariants of this file: a device that is lost ends every request with an error that names the cause; the engine then
// refuses requests and can be closed; a pass that hangs is reported with its operation, and the engine continues to
// wait for it.

// failing is a device whose expert routing fails or hangs.
type failing struct {
	kernel.Device
	route func() error // called before each expert routing
}

func (d *failing) Do(op kernel.Op) error {
	if _, ok := op.(kernel.RouteArgs); ok {
		if err := d.route(); err != nil {
			return err
		}
	}
	return d.Device.Do(op)
}

// over returns an engine on a failing device, and a function that starts its loop.
func over(t *testing.T, c Config, route func() error) (*Engine, func()) {
	t.Helper()
	// The test uses one worker, because several workers wait for each other without sleeping, which stops the clock of
	// synctest.
	e, err := buildOver(t, tinyBF16, c, kernel.Options{Workers: 1}, func(d kernel.Device) kernel.Device {
		return &failing{d, route}
	})
	if err != nil {
		t.Fatal(err)
	}
	return running(t, e, checked(t))
}

func TestLostDevice(t *testing.T) {
	var calls atomic.Int32
	e, run := over(t, Config{MaxRunning: 2}, func() error {
		if calls.Add(1) < 20 {
			return nil
		}
		return fmt.Errorf("%w: an illegal address", kernel.ErrLost)
	})
	var jobs []*Job
	for i := range 5 { // two requests run and three wait
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 20), Sampling: greedy(), MaxTokens: 200,
			IgnoreEOS: true}))
	}
	run()
	for i, j := range jobs {
		_, last := collect(j)
		if last.Finish != FinishError || !errors.Is(last.Err, ErrDevice) || !errors.Is(last.Err, kernel.ErrLost) ||
			!last.Last {
			t.Errorf("request %d ended with %+v", i, last)
		}
		text := fmt.Sprint(last.Err)
		for _, part := range []string{"feed-forward of layer", "an illegal address", "restart the server"} {
			if !strings.Contains(text, part) {
				t.Errorf("request %d: error %q does not contain %q", i, text, part)
			}
		}
	}
	if _, err := e.Submit(Request{Prompt: tokens(9, 5), Sampling: greedy(), MaxTokens: 1}); !errors.Is(err, ErrDevice) {
		t.Errorf("a request after the device was lost: error %v", err)
	}
	if st := e.Stats(); !strings.Contains(st.Device, "an illegal address") || st.Failed != 5 {
		t.Errorf("Stats.Device is %q, %d requests failed", st.Device, st.Failed)
	}
}

// An error that the device recovers from ends only the request that it belongs to, and the engine continues.
func TestDeviceErrorThatPasses(t *testing.T) {
	alone(t, "the test needs one device: a rank that fails alone is lost")
	var calls atomic.Int32
	e, run := over(t, Config{}, func() error {
		if calls.Add(1) == 3 {
			return errors.New("a launch was refused")
		}
		return nil
	})
	run()
	r := Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true}
	if _, last := collect(open(t, e, r)); last.Finish != FinishError || errors.Is(last.Err, ErrDevice) {
		t.Errorf("ended with %+v", last)
	}
	if got, last := collect(open(t, e, r)); last.Finish != FinishLength || len(got) != 4 {
		t.Errorf("the next request: %v, %+v", got, last)
	}
	if st := e.Stats(); st.Device != "" {
		t.Errorf("device %q", st.Device)
	}
}

// logged collects log lines.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestWatchdogNamesTheOperation(t *testing.T) {
	// The clock of synctest advances while the device hangs, but not while the device computes slowly.
	synctest.Test(t, watchdogNamesTheOperation)
}

func watchdogNamesTheOperation(t *testing.T) {
	var calls atomic.Int32
	free := make(chan struct{})
	var lines logged
	e, run := over(t, Config{Watchdog: time.Second, Log: slog.New(slog.NewTextHandler(&lines, nil))},
		func() error {
			if calls.Add(1) == 4 { // the routing of layer 2 in the second pass; layers 1 and 2 have experts
				<-free
			}
			return nil
		})
	run()
	r := Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true}
	j := open(t, e, r)
	await.True(t, "the hang is reported", func() bool { return e.Stats().Device != "" })
	const place = "route in feed-forward of layer 2"
	if st := e.Stats(); !strings.Contains(st.Device, place) || !strings.Contains(lines.text(), place) {
		t.Errorf("Stats.Device is %q, want %q there and in the log:\n%s", st.Device, place, lines.text())
	}
	close(free)
	got, last := collect(j)
	if last.Finish != FinishLength {
		t.Errorf("ended with %+v", last)
	}
	await.True(t, "the end of the hang is noticed", func() bool { return e.Stats().Device == "" })
	if n := strings.Count(lines.text(), "a pass takes longer than the watchdog allows"); n != 1 {
		t.Errorf("the hang was reported %d times, want once", n)
	}
	if again, _ := collect(open(t, e, r)); !slices.Equal(again, got) {
		t.Errorf("tokens %v after the hang, %v during the hang", again, got)
	}
}

// unscaled is a device whose dense attention computes wrong values.
type unscaled struct{ kernel.Device }

func (d *unscaled) Do(op kernel.Op) error {
	if a, ok := op.(kernel.DenseArgs); ok {
		a.Scale *= 2
		op = a
	}
	return d.Device.Do(op)
}

// An engine does not open on a device that computes wrong values, unless the self-test is disabled.
func TestSelfTestRefuses(t *testing.T) {
	wrong := func(d kernel.Device) kernel.Device { return &unscaled{d} }
	_, err := buildOver(t, tinyBF16, Config{}, kernel.Options{}, wrong)
	if !errors.Is(err, ErrSelfTest) || !strings.Contains(err.Error(), "--self-test off") {
		t.Errorf("opened with %v", err)
	}
	if _, err := buildOver(t, tinyBF16, Config{SelfTest: SelfTestOff}, kernel.Options{}, wrong); err != nil {
		t.Errorf("without a self-test: %v", err)
	}
}

// By default the self-test runs on a CPU only for models for which it is fast.
func TestSelfTestCost(t *testing.T) {
	small := plan.Model{Heads: 4, K: 64, QKDim: 128, VDim: 64}
	v32 := plan.Model{Heads: 128, K: 2048, QKDim: 192, VDim: 128}
	if a, b := selfTestCost(&small), selfTestCost(&v32); a > mostSelfTest || b < mostSelfTest {
		t.Errorf("the self-test takes %.1e multiplications for a small model and %.1e for DeepSeek-V3.2; the limit "+
			"is %.1e", a, b,
			float64(mostSelfTest))
	}
	for text, want := range map[string]SelfTest{"auto": SelfTestAuto, "on": SelfTestOn, "off": SelfTestOff} {
		if got, err := ParseSelfTest(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if _, err := ParseSelfTest("no"); err == nil {
		t.Error("the text no was accepted as a setting of the self-test")
	}
}
