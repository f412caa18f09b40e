package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// Turn is one line of a trace: a turn of a conversation, with the lengths of question and answer. The prompt is the
// conversation so far and NewTokens new tokens.
type Turn struct {
	Session string `json:"session"`
	Tenant  string `json:"tenant,omitempty"`
	// At is the time of a session's first turn, in seconds from the beginning. A later turn is sent After seconds after
	// the end of the previous answer.
	At    float64 `json:"at,omitempty"`
	After float64 `json:"after,omitempty"`
	// System names a system prompt of SystemTokens tokens, with which the first turn begins. Sessions of one tenant
	// with the same System have the same tokens.
	System       string `json:"system,omitempty"`
	SystemTokens int    `json:"system_tokens,omitempty"`
	NewTokens    int    `json:"new_tokens"`
	OutputTokens int    `json:"output_tokens"`
}

// mostTokens is the maximum of every number of tokens in a trace.
const mostTokens = 1 << 24

func (t *Turn) check() error {
	bad := func(x float64) bool { return !(x >= 0 && x < math.MaxInt32) }
	switch {
	case t.Session == "":
		return fmt.Errorf("session is missing; want the name of the conversation")
	case bad(t.At) || bad(t.After):
		return fmt.Errorf("at is %v and after %v, want seconds, 0 or more", t.At, t.After)
	case t.NewTokens < 1 || t.NewTokens > mostTokens || t.OutputTokens < 1 || t.OutputTokens > mostTokens:
		return fmt.Errorf("new_tokens is %d and output_tokens %d, want 1 to %d", t.NewTokens, t.OutputTokens,
			mostTokens)
	case t.SystemTokens < 0 || t.SystemTokens > mostTokens:
		return fmt.Errorf("system_tokens is %d, want 0 to %d", t.SystemTokens, mostTokens)
	}
	return nil
}

// Session is a conversation of several turns.
type Session struct {
	Name  string
	Turns []Turn
}

// ReadTrace reads a trace of JSON lines. Sessions may be in any order; the lines of each session are in order.
func ReadTrace(r io.Reader) ([]Session, error) {
	var out []Session
	places := map[string]int{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var t Turn
		err := json.Unmarshal(lines.Bytes(), &t)
		if err == nil {
			err = t.check()
		}
		if err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", n, err)
		}
		at, known := places[t.Session]
		if !known {
			at = len(out)
			places[t.Session] = at
			out = append(out, Session{Name: t.Session})
		}
		out[at].Turns = append(out[at].Turns, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("trace: no lines; want one turn of a conversation per line")
	}
	return out, nil
}

// Load holds the parameters of Generate. Lengths are means of exponential distributions with a minimum of one token.
type Load struct {
	Sessions     int
	Rate         float64 // mean number of sessions that begin per second
	Turns        int     // mean number of turns of a session
	Tenants      int
	Systems      int // number of different system prompts
	SystemTokens int
	NewTokens    int
	OutputTokens int
	Think        float64 // mean seconds between an answer and the next question
	Seed         uint64
}

// Generate returns a random trace of conversations, ordered by their start.
func Generate(l Load) []Session {
	d := rand.New(rand.NewPCG(l.Seed, 3))
	length := func(mean int) int { return 1 + int(d.ExpFloat64()*float64(mean-1)) }
	at := 0.0
	out := make([]Session, l.Sessions)
	for i := range out {
		at += d.ExpFloat64() / l.Rate
		s := &out[i]
		s.Name = fmt.Sprintf("session-%d", i)
		first := Turn{Session: s.Name, At: round(at), System: fmt.Sprintf("system-%d", d.IntN(max(l.Systems, 1))),
			SystemTokens: l.SystemTokens}
		if l.Tenants > 1 {
			first.Tenant = fmt.Sprintf("tenant-%d", d.IntN(l.Tenants))
		}
		for turn := range length(l.Turns) {
			t := Turn{Session: s.Name, Tenant: first.Tenant, After: round(d.ExpFloat64() * l.Think)}
			if turn == 0 {
				t = first
			}
			t.NewTokens, t.OutputTokens = length(l.NewTokens), length(l.OutputTokens)
			s.Turns = append(s.Turns, t)
		}
	}
	return out
}

// round rounds seconds to whole milliseconds.
func round(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// WriteTrace writes a trace, one session after the other, ordered by the times of their first turns.
func WriteTrace(w io.Writer, sessions []Session) error {
	sessions = slices.Clone(sessions)
	slices.SortStableFunc(sessions, func(a, b Session) int {
		return int(math.Copysign(1, a.Turns[0].At-b.Turns[0].At))
	})
	e := json.NewEncoder(w)
	for _, s := range sessions {
		for i := range s.Turns {
			if err := e.Encode(&s.Turns[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
