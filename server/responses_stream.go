package server

import (
	"net/http"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// responseStream streams a response: two events for its beginning, events for each item, and one with the whole
// response.
type responseStream struct {
	*sse
	answer *responseAnswer
	wire   openai.ResponseStream
	begun  bool
}

func newResponseStream(e *sse, a *responseAnswer) *responseStream {
	s := &responseStream{sse: e, answer: a}
	a.turn.watch = s
	return s
}

// begin writes the first events. It is called at the first token, so that earlier errors can be sent with an HTTP
// status.
func (s *responseStream) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	if err := s.whole(openai.EventCreated); err != nil {
		return err
	}
	return s.whole(openai.EventInProgress)
}

func (s *responseStream) whole(event string) (err error) {
	s.buf, err = s.wire.Response(s.buf, event, s.answer.response)
	return err
}

func (s *responseStream) event(prompt int, ev *sparrow.Event) error {
	if err := s.begin(); err != nil {
		return err
	}
	if err := s.answer.turn.event(prompt, ev); err != nil {
		return err
	}
	return s.flush()
}

func (s *responseStream) end(r *result) error {
	if _, err := s.answer.finish(r); err != nil {
		return err
	}
	event := openai.EventCompleted
	if s.answer.response.Status == openai.StatusIncomplete {
		event = openai.EventIncomplete
	}
	if err := s.whole(event); err != nil {
		return err
	}
	return s.flush()
}

// fail ends the stream with an event for a failed response.
func (s *responseStream) fail(e *wire.Error) error {
	if err := s.begin(); err != nil {
		return err
	}
	r := s.answer.response
	r.Status = openai.StatusFailed
	r.Error = &openai.ResponseError{Code: string(e.Code), Message: e.Message}
	if e.Status() >= http.StatusInternalServerError {
		r.Error.Code = openai.TypeServer // OpenAI's name of the code
	}
	if err := s.answer.turn.end(true); err != nil {
		return err
	}
	r.Output = s.answer.items()
	if err := s.whole(openai.EventFailed); err != nil {
		return err
	}
	return s.flush()
}

// itemEvents holds the types of events for an item's text: the part was added, the text grew, the text is done, the
// part is done. Calls have no parts.
type itemEvents struct{ added, grew, text, done string }

func eventsOf(item *openai.Item) itemEvents {
	switch {
	case item.Type == openai.ItemCall:
		return itemEvents{"", openai.EventArgumentsDelta, openai.EventArgumentsDone, ""}
	case item.Type == openai.ItemCustom:
		return itemEvents{"", openai.EventInputDelta, openai.EventInputDone, ""}
	case item.Type == openai.ItemReasoning && item.Summary:
		return itemEvents{openai.EventSummaryAdded, openai.EventSummaryDelta, openai.EventSummaryText,
			openai.EventSummaryDone}
	case item.Type == openai.ItemReasoning:
		return itemEvents{openai.EventPartAdded, openai.EventReasoningDelta, openai.EventReasoningDone,
			openai.EventPartDone}
	}
	return itemEvents{openai.EventPartAdded, openai.EventTextDelta, openai.EventTextDone, openai.EventPartDone}
}

// text writes an event for the text of an item.
func (s *responseStream) text(i int, item *openai.Item, event, text string, logprobs []openai.TokenLogprob) {
	if item.Type == openai.ItemCall || item.Type == openai.ItemCustom {
		s.buf = s.wire.Arguments(s.buf, event, place(i, item), item.Name, text)
		return
	}
	s.buf = s.wire.Text(s.buf, event, place(i, item), text, logprobs)
}

func (s *responseStream) began(i int, p *piece) (err error) {
	item := s.answer.item(i, p, openai.StatusInProgress)
	if s.buf, err = s.wire.Item(s.buf, openai.EventItemAdded, i, &item); err != nil {
		return err
	}
	if event := eventsOf(&item).added; event != "" {
		s.buf, err = s.wire.Part(s.buf, event, place(i, &item), partOf(&item))
	}
	return err
}

func (s *responseStream) grew(i int, p *piece, text string, logprobs []openai.TokenLogprob) error {
	item := s.answer.item(i, p, openai.StatusInProgress)
	s.text(i, &item, eventsOf(&item).grew, text, logprobs)
	return nil
}

func (s *responseStream) ended(i int, p *piece) (err error) {
	item := s.answer.item(i, p, ended(p))
	events := eventsOf(&item)
	s.text(i, &item, events.text, p.text, item.Logprobs)
	if events.done != "" {
		if s.buf, err = s.wire.Part(s.buf, events.done, place(i, &item), partOf(&item)); err != nil {
			return err
		}
	}
	s.buf, err = s.wire.Item(s.buf, openai.EventItemDone, i, &item)
	return err
}

func place(i int, item *openai.Item) openai.Place { return openai.Place{Output: i, ItemID: item.ID} }

// partOf returns the content of an item; before the item is done it is empty.
func partOf(item *openai.Item) openai.Part {
	switch {
	case item.Type == openai.ItemReasoning && item.Summary:
		return openai.SummaryText(item.Content.Text())
	case item.Type == openai.ItemReasoning:
		return openai.ReasoningText(item.Content.Text())
	}
	return openai.OutputText(item.Content.Text(), item.Logprobs)
}
