package fleet

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"sparrow/internal/sim/clock"
	"sparrow/internal/sim/formula"
)

func small(p Policy) Config {
	return Config{Replicas: 3, Policy: p, Seed: 1, CacheTokens: 8192, ContextTokens: 4096, StepTokens: 128,
		MaxRunning: 8, MaxQueue: 64, Cost: formula.Cost{Pass: 5 * time.Millisecond, Row: 100 * time.Microsecond,
			Decode: 200 * time.Microsecond}}
}

func talks() []Session {
	return Generate(Load{Sessions: 40, Rate: 4, Turns: 5, Tenants: 2, Systems: 3, SystemTokens: 300, NewTokens: 60,
		OutputTokens: 40, Think: 2, Seed: 5})
}

func simulated(t *testing.T, c Config) *Report {
	t.Helper()
	r, err := Run(c, talks())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Routing by prefix finds more cached tokens than round-robin and gives earlier first tokens. Both answer all requests.
func TestPrefixRoutingFindsMore(t *testing.T) {
	turns, prefix := simulated(t, small(RoundRobin)), simulated(t, small(Prefix))
	asked := 0
	for _, s := range talks() {
		asked += len(s.Turns)
	}
	for _, r := range []*Report{turns, prefix, simulated(t, small(LeastLoaded))} {
		if r.Requests != asked || r.TooLong+r.Resent+r.Refused != 0 || r.TokensPerSecond <= 0 {
			t.Errorf("%d of %d requests were answered, %d refused, %d sent again", r.Requests, asked, r.Refused,
				r.Resent)
		}
	}
	if prefix.HitShare < turns.HitShare+0.1 || prefix.FirstToken.P90 >= turns.FirstToken.P90 {
		t.Errorf("routing by prefix: %.2f of prompt tokens cached, first tokens after %v; round-robin: %.2f and %v",
			prefix.HitShare,
			prefix.FirstToken.P90, turns.HitShare, turns.FirstToken.P90)
	}
	if again := simulated(t, small(Prefix)); !reflect.DeepEqual(again, prefix) {
		t.Error("two runs with equal trace and seed gave different reports")
	}
}

// Replicas that share a machine are as fast as replicas on separate machines if the machine can do the work of all of
// them, and slower otherwise.
func TestASharedMachine(t *testing.T) {
	c := small(LeastLoaded)
	own := simulated(t, c)
	c.Capacity = 3
	if all := simulated(t, c); !reflect.DeepEqual(own, all) {
		t.Errorf("one machine with capacity three: %+v; three machines: %+v", all, own)
	}
	c.Capacity = 0.5
	half := simulated(t, c)
	if half.Requests != own.Requests || half.FirstToken.Median < 2*own.FirstToken.Median {
		t.Errorf("half a machine: %d requests, first tokens after %v; three machines: %d requests, %v", half.Requests,
			half.FirstToken.Median, own.Requests, own.FirstToken.Median)
	}
	c.Capacity = -1
	if _, err := Run(c, talks()); err == nil || !strings.Contains(err.Error(), "capacity") {
		t.Errorf("a capacity of -1: error %v", err)
	}
}

// Work on a shared machine takes the time that its share of the machine implies.
func TestMachine(t *testing.T) {
	v := clock.New(time.Unix(0, 0))
	m := newMachine(v, 1)
	ended := map[string]time.Duration{}
	work := func(name string, after, long time.Duration) {
		v.Go(func() {
			v.Sleep(after)
			m.Sleep(long)
			ended[name] = v.Now().Sub(time.Unix(0, 0))
		})
	}
	err := v.Run(func() {
		work("a", 0, 10*time.Second)
		work("b", 4*time.Second, 3*time.Second)
		work("c", 30*time.Second, time.Second)
		v.Sleep(time.Minute)
	})
	// Work a runs alone until second 4. It then shares the machine with b until b has had 3 of 6 seconds, at second 10.
	// By then a has done 7 of 10 seconds.
	want := map[string]time.Duration{"a": 13 * time.Second, "b": 10 * time.Second, "c": 31 * time.Second}
	if err != nil || !reflect.DeepEqual(ended, want) {
		t.Errorf("end times %v, error %v; want %v", ended, err, want)
	}
}

// Requests on a replica that ends are sent again. If no replica is left, they wait until a replica starts again.
func TestDeaths(t *testing.T) {
	c := small(LeastLoaded)
	c.Deaths = []Death{{Replica: 1, At: 4 * time.Second}, {Replica: 0, At: 5 * time.Second, Back: time.Second},
		{Replica: 2, At: 5 * time.Second, Back: 2 * time.Second}}
	alive, r := simulated(t, small(LeastLoaded)), simulated(t, c)
	if r.Requests != alive.Requests || r.Resent == 0 || r.Refused == 0 || r.FirstToken.P99 < time.Second ||
		r.Replicas[1].Requests >= alive.Replicas[1].Requests {
		t.Errorf("with deaths %d requests, %d sent again, %d refused, first tokens %+v, %d requests on the dead one; "+
			"without %d and %d", r.Requests, r.Resent, r.Refused, r.FirstToken, r.Replicas[1].Requests, alive.Requests,
			alive.Replicas[1].Requests)
	}
	c.Deaths = []Death{{Replica: 3}}
	if _, err := Run(c, talks()); err == nil || !strings.Contains(err.Error(), "replica 3") {
		t.Errorf("the death of a replica that does not exist: error %v", err)
	}
}

func TestTraces(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTrace(&b, talks()); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadTrace(&b); err != nil || !reflect.DeepEqual(got, talks()) {
		t.Errorf("a trace that was written and read differs from the original, error %v", err)
	}
	for text, want := range map[string]string{
		``:                              "no lines",
		`{"session":"a"}`:               "line 1: new_tokens",
		"\n" + `{"new_tokens":1}`:       "line 2: session",
		`{"session":"a","at":-1}`:       "at is -1",
		`{"session":"a","new_tokens":x`: "line 1",
		`{"session":"a","new_tokens":5,"output_tokens":99999999999}`: "output_tokens",
	} {
		if _, err := ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("trace %q: error %v, want %q", text, err, want)
		}
	}
}

// Each setting outside its range is refused, and the error names it.
func TestConfigurationsAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		says   string // empty if the configuration is valid
	}{
		{func(c *Config) { c.Replicas = 0 }, "replicas is 0"},
		{func(c *Config) { c.CacheTokens = 0 }, "cache tokens is 0"},
		{func(c *Config) { c.ContextTokens = 0 }, "context tokens is 0"},
		{func(c *Config) { c.StepTokens = 0 }, "step tokens is 0"},
		{func(c *Config) { c.MaxRunning = 0 }, "running sequences is 0"},
		{func(c *Config) { c.MaxQueue = -1 }, "waiting sequences is -1"},
		{func(c *Config) { c.Cost.Pass = 0 }, "costs are 0s per pass"},
		{func(c *Config) { c.Cost.Row = -1 }, "-1ns per prompt row"},
		{func(c *Config) { c.Cost.Decode = -1 }, "-1ns per decode"},
		{func(c *Config) { c.Cost.Keys = -1 }, "-1ns per thousand keys"},
		{func(c *Config) { c.Capacity = -1 }, "capacity is -1"},
		{func(c *Config) { c.Capacity = math.NaN() }, "capacity is NaN"},
		{func(c *Config) { c.Deaths = []Death{{Replica: 3}} }, "replica 3 fails"},
		{func(c *Config) { c.Deaths = []Death{{Replica: -1}} }, "replica -1 fails"},
		{func(c *Config) { c.Deaths = []Death{{At: -1}} }, "fails after -1ns"},
		{func(c *Config) { c.Deaths = []Death{{Back: -1}} }, "works again after -1ns"},
		{func(c *Config) { c.Deaths = []Death{{Replica: 2}} }, ""},
		{func(c *Config) {
			c.Replicas, c.CacheTokens, c.ContextTokens, c.StepTokens, c.MaxRunning, c.MaxQueue = 1, 1, 1, 1, 1, 1
			c.Cost = formula.Cost{Pass: 1}
		}, ""},
	} {
		x := small(RoundRobin)
		c.change(&x)
		if err := x.check(); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}
