package model

import (
	"errors"
	"testing"
	"time"

	"sparrow"
)

// The decode rate counts only tokens from the time at which all sequences decode until the first of them ends, and the
// drafts of all sequences.
func TestRateOfSequencesTogether(t *testing.T) {
	tokens := func(n int) *sparrow.Event { return &sparrow.Event{Tokens: make([]sparrow.Token, n)} }
	usage := func(drafted, accepted int) *sparrow.Event {
		return &sparrow.Event{Usage: &sparrow.Usage{DraftedTokens: drafted, AcceptedTokens: accepted}}
	}
	var d decoded
	d.add(tokens(1), true, 2)
	d.add(tokens(3), false, 2) // the other sequence has not begun
	if _, err := d.perSecond(2); err == nil || d.tokens != 0 || !d.from.IsZero() {
		t.Errorf("before all sequences decode: %+v, %v", d, err)
	}
	d.add(&sparrow.Event{}, true, 2)
	d.add(tokens(1), true, 2)
	if d.begun != 2 || d.tokens != 0 || d.from.IsZero() {
		t.Errorf("when all sequences decode: %+v", d)
	}
	d.add(tokens(2), false, 2)
	d.add(tokens(3), false, 2)
	d.add(usage(7, 4), false, 2)
	d.add(tokens(5), false, 2) // a sequence has ended
	d.add(usage(1, 1), false, 2)
	if d.tokens != 5 || d.ended != 2 || d.proposed != 8 || d.accepted != 5 || d.err != nil {
		t.Errorf("%+v", d)
	}
	d.to = d.from.Add(500 * time.Millisecond)
	if rate, err := d.perSecond(2); err != nil || rate != 10 {
		t.Errorf("%v tokens per second, %v", rate, err)
	}
	if _, err := d.perSecond(3); err == nil {
		t.Error("a sequence that did not begin has a rate")
	}
	d.to = d.from
	if _, err := d.perSecond(2); err == nil {
		t.Error("tokens in no time have a rate")
	}
	broken := errors.New("broken")
	if d.add(&sparrow.Event{Err: broken}, false, 2); !errors.Is(d.err, broken) {
		t.Errorf("error %v", d.err)
	}
}

func TestAcceptingIsWritten(t *testing.T) {
	a := &Accepting{Context: 1, Batch: 2, Setting: "3", Accept: 0.75, Plain: 4, Drafted: 6, Ratio: 1.5, Proposed: 7,
		Accepted: 5}
	const want = "drafts 3, 75 % accepted: context 1, batch 2: 6.0 tokens/s against 4.0 without, 1.50 x; 5 of 7 " +
		"drafts were accepted"
	if a.String() != want {
		t.Errorf("%s, want %s", a, want)
	}
}
