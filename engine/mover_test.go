package engine

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"sparrow/internal/kv/tier"
	"sparrow/internal/testkit/strict"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// mover is a device in host memory that follows the rules of asynchronous page copies: page-locked memory from which
// the device reads must not change until the next Sync or the end of a later fetch; a collected page is complete only
// after the caller has waited for it.
type mover struct {
	kernel.Device
	t *testing.T

	mu                 sync.Mutex
	given              map[*byte]int // page-locked memory in use, as its size by address
	reads              []reading     // writes from host memory that the device may still read
	ended              int           // number of completed writes before reads
	collected, written int
}

type reading struct{ now, then []byte }

func (m *mover) HostAlloc(n int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := make([]byte, n)
	m.given[&b[0]] = len(b)
	return b, nil
}

func (m *mover) HostFree(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.given[&b[0]] != len(b) {
		return fmt.Errorf("%d bytes are freed that were not allocated", len(b))
	}
	delete(m.given, &b[0])
	return nil
}

// locked reports whether memory is page-locked.
func (m *mover) locked(b []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, n := range m.given {
		if at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(p)); at < uintptr(n) {
			return true
		}
	}
	return false
}

// Collect copies tensors at once to temporary memory. When the caller waits for the event, this memory is copied to
// dst.
func (m *mover) Collect(dst []byte, src []kernel.Tensor) (kernel.Event, error) {
	if !m.locked(dst) {
		m.t.Error("pages are collected in memory that is not page-locked")
	}
	m.collected++
	c := &collecting{m: m, dst: dst, copied: make([]byte, len(dst))}
	left := c.copied
	for _, s := range src {
		n := s.Extent()
		if err := m.Device.Read(left[:n], s); err != nil {
			return nil, err
		}
		left = left[n:]
	}
	return c, nil
}

type collecting struct {
	m           *mover
	dst, copied []byte
}

func (c *collecting) Wait() error {
	copy(c.dst, c.copied)
	return nil
}

func (m *mover) Write(dst kernel.Tensor, src []byte) error {
	if len(src) > 0 && m.locked(src) {
		m.written++
		m.reads = append(m.reads, reading{src, bytes.Clone(src)})
	}
	return m.Device.Write(dst, src)
}

func (m *mover) Sync() error {
	m.done(len(m.reads))
	return m.Device.Sync()
}

// Fetch copies at once. When the caller has waited for its event, the device has read the sources of all earlier
// writes.
func (m *mover) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	_, err := m.Device.Fetch(dst, src)
	return &fetching{m, m.ended + len(m.reads)}, err
}

type fetching struct {
	m  *mover
	at int
}

func (f *fetching) Wait() error {
	f.m.done(max(f.at-f.m.ended, 0))
	return nil
}

// done completes the first n writes.
func (m *mover) done(n int) {
	for _, r := range m.reads[:n] {
		if !bytes.Equal(r.now, r.then) {
			m.t.Error("memory was changed while the device still read it")
		}
	}
	m.reads, m.ended = m.reads[n:], m.ended+n
}

// Pages are restored unchanged on a device with page-locked memory that follows the rules of the CUDA operations.
func TestPagesMoveByADevicesRules(t *testing.T) {
	alone(t, "the devices of several ranks are GPUs")
	notUnderRace(t)
	for _, name := range []string{"mover", "strict"} {
		t.Run(name, func(t *testing.T) {
			var m *mover
			wrap := func(d kernel.Device) kernel.Device {
				if name == "strict" {
					s, err := strict.Open(d)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				m = &mover{Device: d, t: t, given: map[*byte]int{}}
				return m
			}
			var list []Request
			for i := range 4 {
				list = append(list, Request{Prompt: tokens(i, 400), Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true})
			}
			c := tiered("fp8-656", 8, 64, tier.Options{HostBytes: 16 << 20})
			dir := testmodel.V32(t)
			if name == "strict" {
				dir = tinyFP8 // its shapes are supported by the CUDA operations
			}
			e, err := buildOver(t, dir, c, kernel.Options{}, wrap)
			if err != nil {
				t.Fatal(err)
			}
			emptied(t, e)
			t.Cleanup(func() { // runs after the engine is closed
				if m != nil && len(m.given) != 0 {
					t.Errorf("%d blocks of page-locked memory were not freed", len(m.given))
				}
			})
			_, run := running(t, e, checked(t))
			run()
			var want []answer
			for round := range 3 {
				for i, r := range list {
					got := generate(t, e, r).Choices[0]
					if round == 0 {
						want = append(want, got)
					}
					sameTokens(t, fmt.Sprintf("round %d, prompt %d", round, i), got, want[i])
				}
			}
			if st := e.Stats().Tiers; st.RestoredPages < 24 || m != nil && (m.collected == 0 || m.written == 0) {
				t.Errorf("%+v, %+v", st, m)
			}
		})
	}
}
