package engine

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/internal/sched"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// Invariants of this file: an engine does not open if one of its parts cannot be made, and a request is refused if one
// of its fields cannot be used. Each error reaches the caller.

// whole is a model with all optional interfaces that New uses.
type whole interface {
	model.Model
	model.Windowed
	model.Paged
}

// broken is a model of which one function fails, and whose device reports errors.
type broken struct {
	whole
	part string
	free int64 // memory of the device; 0 if it is unknown
}

type brokenDevice struct {
	kernel.Device
	m *broken
}

func (d brokenDevice) MemoryFree() (free, total int64, err error) {
	return d.m.free, d.m.free, d.m.fault("the memory of the device")
}

func (d brokenDevice) Hardware() kernel.Hardware {
	h := d.Device.Hardware()
	if d.m.part == "the architecture" {
		h.Arch = "none"
	}
	return h
}

func (m *broken) fault(part string) error {
	if m.part == part {
		return errFault
	}
	return nil
}

func (m *broken) Device() kernel.Machine { return brokenDevice{m.whole.Device().(kernel.Device), m} }

func (m *broken) Reserve(n int) error { return errors.Join(m.fault("the states"), m.whole.Reserve(n)) }

func (m *broken) AllocateWindows(cfg *plan.Config, pages, windows int) error {
	return errors.Join(m.fault("the cache"), m.whole.AllocateWindows(cfg, pages, windows))
}

func (m *broken) SelfTest(*plan.Config) error { return m.fault("the self-test") }

func (m *broken) CountExperts() error { return m.fault("the counters of experts") }

func (m *broken) ReadExperts(*usage.Table) error { return nil }

// An engine does not open if one of its parts cannot be made; the error states the reason. Measure returns the same
// errors for the parts that it needs.
func TestAnEngineOpensWhole(t *testing.T) {
	alone(t, "one device fails")
	source, m := load(t, testmodel.V4(t), kernel.Options{}, nil)
	for _, c := range []struct {
		part     string
		change   func(c *Config)
		want     string // expected part of the error; empty for none
		measured bool   // Measure returns the error too
	}{
		{"nothing", func(*Config) {}, "", true},
		{"the memory of the device", func(*Config) {}, errFault.Error(), false},
		{"the architecture", func(*Config) {}, "arch", true},
		{"the states", func(*Config) {}, errFault.Error(), true},
		{"the cache", func(*Config) {}, errFault.Error(), true},
		{"the self-test", func(*Config) {}, errFault.Error(), false},
		{"the counters of experts", func(c *Config) { c.Usage = usage.New("", 1, 4, 1) }, errFault.Error(), false},
		{"the policy", func(c *Config) { c.Policy.KV = "other" }, "other", true},
		{"the limits", func(c *Config) { c.MaxRunning = -1 }, "bad limits", false},
		{"the drafts", func(c *Config) { c.Draft = drafts(t, 2) }, "draft", true},
		{"the size of the cache", func(c *Config) { c.CacheTokens = 1 << 40 }, "--cache-tokens", false},
		{"the context", func(c *Config) { c.ContextTokens = 1 << 20 }, "the context is set to 1048576", false},
		{"the tiers", func(c *Config) {
			c.Tiers, c.NoReuse = tier.Options{HostBytes: 1 << 20}, true
		}, "prefix reuse is off", false},
		{"the moves of experts", func(c *Config) {
			c.Usage, c.Moves = usage.New("", 1, 4, 1), placement.Uniform(1, 4, 0.5)
		}, "cannot move", false},
	} {
		b := &broken{m.(whole), c.part, 1 << 40}
		cfg := testConfig(source, Config{CacheTokens: 1024, StepTokens: 32, MaxRunning: 2, RecordBytes: -1})
		c.change(&cfg)
		e, err := New(b, cfg)
		if (err == nil) != (c.want == "") || err != nil && (e != nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.part, err, c.want)
		}
		if e != nil {
			running(t, e)
		}
		n, err := Measure(b, cfg, 1<<40)
		if c.measured && (err == nil) != (c.want == "") || err != nil && n != nil {
			t.Errorf("%s: measured as %+v, %v", c.part, n, err)
		}
	}
}

// poor is a device that makes a given number of further allocations and then fails.
type poor struct {
	kernel.Device
	left int
}

func (d *poor) Alloc(n int64) (kernel.Buffer, error) {
	if d.left--; d.left < 0 {
		return nil, errFault
	}
	return d.Device.Alloc(n)
}

// An engine does not open if any of its allocations fails, and reports that.
func TestEveryAllocationMayFail(t *testing.T) {
	alone(t, "one device fails")
	for _, dir := range []string{testmodel.V32Draft(t), testmodel.V4(t)} {
		d := &poor{left: 1 << 30}
		source, m := load(t, dir, kernel.Options{}, func(dev kernel.Device) kernel.Device {
			d.Device = dev
			return d
		})
		c := testConfig(source, Config{CacheTokens: 512, StepTokens: 32, MaxRunning: 2, MaxStall: time.Second,
			SelfTest: SelfTestOff})
		for n := 0; ; n++ {
			d.left = n
			e, err := New(m, c)
			if err == nil {
				if d.left != 0 || n < 3 || e.loop.inner.passes == nil {
					t.Errorf("%s: an engine opens after %d allocations, %d of them not made", dir, n, d.left)
				}
				break
			}
			if d.left = n; !errors.Is(err, errFault) || e != nil {
				t.Errorf("%s: allocation %d fails: %v", dir, n, err)
			}
			if _, err := Measure(m, c, 1<<40); err != nil && !errors.Is(err, errFault) {
				t.Errorf("%s: allocation %d fails where memory is measured: %v", dir, n, err)
			}
		}
	}
}

// A cache that would have no page is refused, with the setting that can be changed.
func TestACacheHasAPage(t *testing.T) {
	e := still(t, testmodel.V4(t), Config{CacheTokens: 1024, StepTokens: 16, MaxRunning: 2, RecordBytes: -1})
	running(t, e)
	s, cfg := *e.setup, &e.info.Config
	for _, c := range []struct {
		tokens      int
		free, total int64
		want        string
	}{
		{0, 1, 1 << 40, "smaller than one page"}, {1 << 20, 1 << 40, 1 << 20, "no page of"},
		{1 << 30, 1 << 40, 1 << 30, "set --cache-tokens to at most"}, {1, 1 << 40, 1 << 40, ""},
	} {
		s.cfg.CacheTokens, s.cfg.WeightBytes = c.tokens, 0
		z := &sizing{setup: &s, free: c.free, total: c.total}
		if got, err := z.sizeCache(cfg); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) || err == nil && got.pages != 1 {
			t.Errorf("%d tokens in %d of %d bytes: %d pages, %v; want %q", c.tokens, c.free, c.total, got.pages, err,
				c.want)
		}
	}
}

// Pools of several ranks call the listener of the cache as one pool would; pools that cannot be made are refused.
func TestPoolsOfRanksShareAListener(t *testing.T) {
	for ranks := 1; ranks <= 3; ranks++ {
		x := &told{}
		pools, err := openPools(kv.Config{Pages: 4, PageTokens: 4, Reuse: true, Listener: x}, ranks)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pools {
			s, _, err := p.Open(nil, kv.OpenOptions{})
			if err == nil {
				err = errors.Join(s.Reserve(4), s.Commit(tokens(1, 4)), s.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if x.roots != 1 || len(x.stored) != 1 || len(x.removed) != 0 {
			t.Errorf("%d ranks: %d roots, %d pages stored, %d removed", ranks, x.roots, len(x.stored), len(x.removed))
		}
		for _, p := range pools {
			p.Reset()
		}
		if x.cleared != 1 || len(x.removed) != 0 {
			t.Errorf("%d ranks: cleared %d times, %d pages removed", ranks, x.cleared, len(x.removed))
		}
	}
	if list, err := openPools(kv.Config{Pages: 4}, 2); err == nil || list != nil {
		t.Errorf("%d pools with pages of no tokens, %v", len(list), err)
	}
}

// Tiers of the prefix cache open only if pages can be copied, are reused, and have the size of their parts. Pages are
// served to other engines only from a host cache.
func TestTiersThatCannotOpen(t *testing.T) {
	alone(t, "one device is renamed")
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	paged, bytes := e.model.(model.Paged), e.model.PageBytes(&e.info.Config)
	for _, c := range []struct {
		what   string
		change func(s *setup)
		want   string
	}{
		{"nothing", func(*setup) {}, ""},
		{"a model without pages", func(s *setup) { s.model = struct{ model.Model }{e.model} }, "cannot be copied"},
		{"no reuse", func(s *setup) { s.reuse = false }, "prefix reuse is off"},
		{"no folder", func(s *setup) {
			s.cfg.Tiers = tier.Options{DiskDir: "/dev/null/none", DiskBytes: 1 << 26}
		}, "the folder of the disk cache"},
		{"other parts", func(s *setup) {
			s.model = renamed{e.model, paged, "cpu", bytes + 1}
		}, "the parts of a page add up to"},
	} {
		s := *e.setup
		s.cfg.Tiers = tier.Options{HostBytes: 1 << 24}
		c.change(&s)
		var pool kv.Config
		x, err := openTiers(&s, e.inbox, &pool)
		if (err == nil) != (c.want == "") || err != nil && (x != nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if (pool.Copier != nil) != (x != nil) {
			t.Errorf("%s: the pool copies pages to %v", c.what, pool.Copier)
		}
		x.close()
	}
	for served, o := range map[bool]tier.Options{false: {DiskDir: t.TempDir(), DiskBytes: 1 << 26},
		true: {HostBytes: 1 << 26}} {
		e := still(t, testmodel.V32(t), tiered("", 8, 64, o))
		running(t, e)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := e.ServePages(l); (err == nil) != served {
			t.Errorf("host cache %v: %v", served, err)
		}
	}
	if err := e.ServePages(nil); err == nil {
		t.Error("an engine without tiers serves pages")
	}
}

// pictured is a model whose token 7 represents a part of an image.
type pictured struct{ model.Model }

func (m pictured) Config() *config.Config {
	c, image := *m.Model.Config(), 7
	c.Image = &image
	return &c
}

// Every field of a request that cannot be used is refused by its name, with and without choices, records and replays.
func TestEveryFieldThatCannotBeUsedIsRefused(t *testing.T) {
	e := still(t, tinyGLM, Config{CacheTokens: 256, ContextTokens: 100, RecordBytes: 1 << 10})
	running(t, e)
	s := *e.setup
	s.model = pictured{e.model}
	off := s
	off.cfg.RecordBytes = -1
	row := func(at int) []record.Row { // with all keys in every layer
		r := record.Row{Position: at}
		shape := s.info.Config.Model.Choices()
		for l, x := range shape.Layers {
			layer := record.Layer{Layer: l, Keys: at + 1, All: true}
			if !shape.Selects(l) && x.As >= 0 {
				layer.All, layer.As = false, &x.As
			}
			r.Layers = append(r.Layers, layer)
		}
		return []record.Row{r}
	}
	for _, c := range []struct {
		what   string
		field  string // empty for errors that name none
		in     *setup
		change func(r *Request)
	}{
		{"no token", "prompt", &s, func(r *Request) { r.Prompt = nil }},
		{"an image", "prompt", &s, func(r *Request) { r.Prompt[3] = 7 }},
		{"an image in a continuation", "continuations", &s, func(r *Request) {
			r.Score = &Score{Continuations: [][]int32{{1}, {2, 7}}}
		}},
		{"a tenant", "tenant", &s, func(r *Request) { r.Tenant = "a\x00" }},
		{"a temperature", "", &s, func(r *Request) { r.Sampling.Temperature = -1 }},
		{"a bias", "", &s, func(r *Request) { r.Sampling.LogitBias = map[int32]float64{640: 1} }},
		{"no kind of record", "sparrow", &s, func(r *Request) { r.Record = &Record{} }},
		{"a large record", "sparrow.selections", &s, func(r *Request) {
			r.Record = &Record{Selections: true, Tokens: RecordAll}
		}},
		{"a record where they are off", "sparrow", &off, func(r *Request) { r.Record = &Record{Experts: true} }},
		{"a replay where they are off", "sparrow", &off, func(r *Request) { r.Replay = row(0) }},
		{"an empty replay", "sparrow.replay", &s, func(r *Request) { r.Replay = []record.Row{} }},
		{"a replay after the context", "sparrow.replay", &s, func(r *Request) { r.Replay = row(100) }},
	} {
		r := Request{Prompt: slices.Repeat([]int32{5}, 9), Sampling: greedy(), MaxTokens: 4}
		in := &intake{setup: c.in}
		if _, err := in.prepare(r); err != nil {
			t.Fatal(err)
		}
		c.change(&r)
		j, err := in.prepare(r)
		var got *RequestError
		if errors.As(err, &got); j != nil || !errors.Is(err, ErrRequest) || c.field == "" && got != nil ||
			c.field != "" && (got == nil || got.Field != c.field) {
			t.Errorf("%s: %v, want the field %q", c.what, err, c.field)
		}
	}
	in := &intake{setup: &s}
	r := Request{Prompt: slices.Repeat([]int32{5}, 9), Sampling: greedy(), MaxTokens: 4, Replay: row(99)}
	if j, err := in.prepare(r); err != nil || j.choices[0].seq.Replay != (sched.Span{From: 99, To: 100}) {
		t.Errorf("a replay of the last position: %v", err)
	}
}

// The error for records that are too large suggests the largest answer that fits.
func TestTheLargestAnswerWhoseRecordsFit(t *testing.T) {
	in := still(t, tinyGLM, Config{CacheTokens: 512}).intake
	s := *in.setup
	in = &intake{setup: &s}
	r := Request{Prompt: tokens(1, 9), Sampling: greedy(), Record: &Record{Experts: true}}
	for _, fits := range []int{1, 2, 7, 40} {
		for _, set := range []int{0, 100} {
			for _, less := range []int64{0, 1} { // one byte less is too little for the last token
				s.cfg.RecordBytes = in.recordedBytes(&r, fits) - less
				most := fits - int(less)
				r.MaxTokens = set
				got := in.fittingAnswer(&r, 100)
				want := fmt.Sprintf("send max_tokens of at most %d", most)
				if most == 0 {
					want = "no max_tokens is small enough"
				}
				if !strings.Contains(got, want) || strings.Contains(got, "max_tokens is not set") != (set == 0) {
					t.Errorf("%d bytes, max_tokens %d: %q, want %q", s.cfg.RecordBytes, set, got, want)
				}
			}
		}
	}
}

// A request whose records have no place now is counted as refused, and reserves nothing. The same holds for a request
// that finds the queue full.
func TestRefusedRequestsReserveNothing(t *testing.T) {
	e := still(t, tinyGLM, Config{CacheTokens: 512, MaxQueue: 6})
	running(t, e)
	r := Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 4, Record: &Record{Experts: true}}
	each := e.intake.recordedBytes(&r, 4)
	e.inbox.mostRecorded = each // of four requests in all
	for i := range 6 {
		if _, err := e.Submit(r); (err == nil) != (i < recordFactor) || err != nil && !errors.Is(err, ErrQueueFull) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	check := func(refused int64) {
		t.Helper()
		if st := e.Stats(); st.Refused != refused || st.Requests != recordFactor || e.inbox.records != 4*each {
			t.Errorf("%d requests, %d refused, %d bytes of records; want %d refused", st.Requests, st.Refused,
				e.inbox.records, refused)
		}
	}
	check(2)
	e.inbox.mostRecorded *= 2
	r.Sampling.N = 3
	if _, err := e.Submit(r); !errors.Is(err, ErrQueueFull) {
		t.Errorf("three choices beside four of six: %v", err)
	}
	check(3)
}
