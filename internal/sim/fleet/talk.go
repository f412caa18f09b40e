package fleet

import (
	"fmt"
	"time"
)

// talk is a running conversation with its tokens so far.
type talk struct {
	seed    uint64
	session *Session
	history []int32
}

// pause returns the time before turn i: from the beginning of the trace for the first turn, otherwise from the last
// answer.
func (t *talk) pause(i int) time.Duration {
	seconds := t.session.Turns[i].After
	if i == 0 {
		seconds = t.session.Turns[0].At
	}
	return time.Duration(seconds * float64(time.Second))
}

// prompt returns the prompt of turn i. The caller appends the answer to history before the next call.
func (t *talk) prompt(i int) []int32 {
	turn := &t.session.Turns[i]
	if i == 0 {
		t.add(turn.SystemTokens, "system "+turn.Tenant+" "+turn.System)
	}
	t.add(turn.NewTokens, fmt.Sprintf("%s %d", t.session.Name, i))
	return t.history
}

// Range of token ids in prompts: in every vocabulary, and without the first ids, which may be control tokens.
const (
	firstToken = 10
	tokenBits  = 6
	vocabulary = firstToken + 1<<tokenBits
)

// add appends n tokens that are derived from the seed and a name.
func (t *talk) add(n int, name string) {
	h := t.seed
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for i := range n {
		x := (h + uint64(i)) * 0x9e3779b97f4a7c15
		t.history = append(t.history, firstToken+int32((x^x>>29)*0xbf58476d1ce4e5b9>>(64-tokenBits)))
	}
}
