package server

import (
	"context"
	"testing"

	"sparrow"
)

// finished is an engine whose streams have all their events available, even after their context has ended.
type finished struct{ *fakeEngine }

func (e finished) Stream(context.Context, sparrow.Request) (Stream, error) {
	s, err := e.fakeEngine.Stream(context.Background(), sparrow.Request{})
	return s, err
}

// A stream whose context ends while its last events are read yields a prefix of the events. An answer that lacked a
// token but had its end would look complete.
func TestFlowsHaveNoGaps(t *testing.T) {
	e := finished{newFake(saying("a", "b", "c", "d", "e", "f"))}
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		f, err := openFlow(ctx, e, []sparrow.Request{{}}, func(int, *sparrow.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		text, ended := "", false
		for it := range f.items {
			text += it.event.Text
			ended = ended || it.event.Usage != nil
		}
		if whole := "abcdef"; text != whole[:len(text)] || ended && text != whole {
			t.Fatalf("%q, ended %t", text, ended)
		}
		f.close()
	}
}
