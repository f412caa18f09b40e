package load

import (
	"fmt"
	"strings"
	"time"
)

// Goals holds the latency limits (SLOs) of a good request; 0 means no limit.
type Goals struct {
	FirstToken time.Duration // maximum time to the first token
	PerToken   time.Duration // maximum mean time of a later token
	EndToEnd   time.Duration // maximum time to the end of the answer
}

// goalNames lists the names that ParseGoals accepts.
var goalNames = []string{"ttft", "tpot", "e2e"}

// times returns pointers to the goals, in the order of goalNames.
func (g *Goals) times() []*time.Duration {
	return []*time.Duration{&g.FirstToken, &g.PerToken, &g.EndToEnd}
}

// ParseGoals parses goals such as "ttft=500ms,tpot=40ms,e2e=10s"; each goal is optional.
func ParseGoals(s string) (Goals, error) {
	var g Goals
	if s == "" {
		return g, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		d, err := time.ParseDuration(text)
		known := false
		for i, t := range g.times() {
			if name == goalNames[i] && *t == 0 {
				*t, known = d, true
			}
		}
		if !known || err != nil || d <= 0 {
			return Goals{}, fmt.Errorf("load: %w: goal %q is not valid, want ttft (first token), tpot (time per "+
				"output token) or "+
				"e2e (whole answer) with a time, each once, such as ttft=500ms,tpot=40ms", ErrOptions, part)
		}
	}
	return g, nil
}

// String returns the goals in the format of ParseGoals.
func (g Goals) String() string {
	var parts []string
	for i, t := range g.times() {
		if *t > 0 {
			parts = append(parts, goalNames[i]+"="+t.String())
		}
	}
	return strings.Join(parts, ",")
}

// met reports whether a successful request meets all goals.
func (g *Goals) met(o *outcome) bool {
	within := func(t, most time.Duration) bool { return most == 0 || t <= most }
	return within(o.first, g.FirstToken) && within(o.perToken(), g.PerToken) && within(o.end, g.EndToEnd)
}
