package server

import (
	"fmt"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
)

// responseOutput builds the items of a response. Reasoning, text and each call are an item of their own, in the order
// in which they come.
type responseOutput struct {
	name   string // of the response, for the ids of items
	shape  chatShape
	watch  itemWatcher
	items  []openai.Item
	finish sparrow.Finish

	open     bool // the last item may grow
	call     int  // the index of the call that it is, when it is one
	text     strings.Builder
	logprobs []openai.TokenLogprob // of tokens that no item has yet
}

// itemWatcher is told how the items of a response come about.
type itemWatcher interface {
	added(i int, item *openai.Item) error
	grew(i int, item *openai.Item, text string, logprobs []openai.TokenLogprob) error
	done(i int, item *openai.Item) error
}

// unwatched is for responses that are sent whole.
type unwatched struct{}

func (unwatched) added(int, *openai.Item) error                               { return nil }
func (unwatched) grew(int, *openai.Item, string, []openai.TokenLogprob) error { return nil }
func (unwatched) done(int, *openai.Item) error                                { return nil }

func (o *responseOutput) event(_ int, ev *sparrow.Event) error {
	o.logprobs = o.shape.tokens(o.logprobs, ev)
	for _, d := range o.shape.deltas(ev) {
		if err := o.add(&d); err != nil {
			return err
		}
	}
	if ev.Finish == "" {
		return nil
	}
	o.finish = ev.Finish
	if len(o.items) == 0 {
		if err := o.begin(openai.Item{Type: openai.ItemMessage, Role: openai.RoleAssistant}); err != nil {
			return err
		}
	}
	if ev.Finish == sparrow.FinishLength {
		return o.end(openai.StatusIncomplete)
	}
	return o.end(openai.StatusCompleted)
}

// add takes a delta: it begins an item, or lengthens the last one.
func (o *responseOutput) add(d *chat.Delta) error {
	next := openai.Item{Type: openai.ItemMessage, Role: openai.RoleAssistant}
	text := d.Text
	switch d.Kind {
	case chat.DeltaReasoning:
		next = openai.Item{Type: openai.ItemReasoning}
	case chat.DeltaToolCall:
		next = openai.Item{Type: openai.ItemCall, CallID: d.Call.ID, Name: d.Call.Name}
		text = d.Call.Arguments
	}
	if !o.open || o.last().Type != next.Type || d.Kind == chat.DeltaToolCall && o.call != d.Call.Index {
		if err := o.begin(next); err != nil {
			return err
		}
		o.call = d.Call.Index
	}
	var logprobs []openai.TokenLogprob
	if d.Kind == chat.DeltaContent {
		logprobs = o.logprobs
		o.last().Logprobs = append(o.last().Logprobs, logprobs...)
	}
	o.logprobs = nil
	if text == "" {
		return nil
	}
	o.text.WriteString(text)
	return o.watch.grew(len(o.items)-1, o.last(), text, logprobs)
}

func (o *responseOutput) last() *openai.Item { return &o.items[len(o.items)-1] }

// itemPrefixes begin the ids of items, by their type.
var itemPrefixes = map[string]string{openai.ItemMessage: "msg", openai.ItemReasoning: "rs", openai.ItemCall: "fc"}

// begin ends the last item and starts another.
func (o *responseOutput) begin(next openai.Item) error {
	if err := o.end(openai.StatusCompleted); err != nil {
		return err
	}
	i := len(o.items)
	next.ID = fmt.Sprintf("%s_%s_%d", itemPrefixes[next.Type], o.name, i)
	next.Status = openai.StatusInProgress
	o.items = append(o.items, next)
	o.open = true
	return o.watch.added(i, o.last())
}

// end completes the last item, if it is open.
func (o *responseOutput) end(status string) error {
	if !o.open {
		return nil
	}
	o.open = false
	item := o.last()
	item.Status = status
	if item.Type == openai.ItemCall {
		item.Arguments = o.text.String()
	} else {
		item.Content = openai.Content{o.text.String()}
	}
	o.text = strings.Builder{}
	return o.watch.done(len(o.items)-1, item)
}
