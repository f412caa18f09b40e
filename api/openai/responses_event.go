package openai

import (
	"fmt"
	"sparrow/internal/wire"
	"strconv"
)

// The types of events in a stream of /v1/responses.
const (
	EventCreated        = "response.created"
	EventInProgress     = "response.in_progress"
	EventCompleted      = "response.completed"
	EventIncomplete     = "response.incomplete"
	EventFailed         = "response.failed"
	EventItemAdded      = "response.output_item.added"
	EventItemDone       = "response.output_item.done"
	EventPartAdded      = "response.content_part.added"
	EventPartDone       = "response.content_part.done"
	EventTextDelta      = "response.output_text.delta"
	EventTextDone       = "response.output_text.done"
	EventReasoningDelta = "response.reasoning_text.delta"
	EventReasoningDone  = "response.reasoning_text.done"
	EventArgumentsDelta = "response.function_call_arguments.delta"
	EventArgumentsDone  = "response.function_call_arguments.done"
	EventInputDelta     = "response.custom_tool_call_input.delta"
	EventInputDone      = "response.custom_tool_call_input.done"
	EventSummaryAdded   = "response.reasoning_summary_part.added"
	EventSummaryDone    = "response.reasoning_summary_part.done"
	EventSummaryDelta   = "response.reasoning_summary_text.delta"
	EventSummaryText    = "response.reasoning_summary_text.done"
)

// ResponseStream writes the events of one response and numbers them from 0. All methods append to dst and return it.
type ResponseStream struct {
	next int
}

// Place identifies an item of the output.
type Place struct {
	Output int    // index of the item
	ItemID string // id of the item
}

// open writes the start of an event: its type and its sequence number.
func (s *ResponseStream) open(dst []byte, event string) []byte {
	dst = append(append(append(dst, "event: "...), event...), "\ndata: {\"type\":"...)
	dst = wire.AppendString(dst, event)
	dst = append(dst, `,"sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(s.next), 10)
	s.next++
	return dst
}

func end(dst []byte) []byte { return append(dst, "}\n\n"...) }

// member appends a member whose value is encoded as JSON.
func member(dst []byte, name string, v any) ([]byte, error) {
	text, err := wire.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("openai: event: %s: %w", name, err)
	}
	dst = append(append(append(dst, ',', '"'), name...), '"', ':')
	return append(dst, text...), nil
}

// Response writes an event that contains the whole response.
func (s *ResponseStream) Response(dst []byte, event string, r *Response) ([]byte, error) {
	out, err := member(s.open(dst, event), "response", r)
	if err != nil {
		return dst, err
	}
	return end(out), nil
}

// Item writes the event for an item that was added or is done.
func (s *ResponseStream) Item(dst []byte, event string, output int, item *Item) ([]byte, error) {
	out := append(s.open(dst, event), `,"output_index":`...)
	out, err := member(strconv.AppendInt(out, int64(output), 10), "item", item)
	if err != nil {
		return dst, err
	}
	return end(out), nil
}

// Part writes the event for the only part of an item, when the part was added or is done.
func (s *ResponseStream) Part(dst []byte, event string, at Place, part Part) ([]byte, error) {
	out, err := member(appendPart(s.open(dst, event), event, at), "part", part)
	if err != nil {
		return dst, err
	}
	return end(out), nil
}

// Text writes an event with more text of a part or, if the event is a done event, with all of its text. Only
// output_text has log probabilities.
func (s *ResponseStream) Text(dst []byte, event string, at Place, text string, logprobs []TokenLogprob) []byte {
	dst = appendPart(s.open(dst, event), event, at)
	switch event {
	case EventTextDelta, EventReasoningDelta, EventSummaryDelta:
		dst = append(dst, `,"delta":`...)
	default:
		dst = append(dst, `,"text":`...)
	}
	dst = wire.AppendString(dst, text)
	if event == EventTextDelta || event == EventTextDone {
		dst = appendTokens(append(dst, `,"logprobs":`...), logprobs)
	}
	return end(dst)
}

// Arguments writes an event with more arguments of a call, or more input of a custom tool. If the event is a done
// event, it contains all of them.
func (s *ResponseStream) Arguments(dst []byte, event string, at Place, name, arguments string) []byte {
	dst = appendPlace(s.open(dst, event), at)
	switch event {
	case EventArgumentsDelta, EventInputDelta:
		dst = append(dst, `,"delta":`...)
	case EventInputDone:
		dst = append(dst, `,"input":`...)
	default:
		dst = wire.AppendString(append(dst, `,"name":`...), name)
		dst = append(dst, `,"arguments":`...)
	}
	return end(wire.AppendString(dst, arguments))
}

func appendPlace(dst []byte, at Place) []byte {
	dst = wire.AppendString(append(dst, `,"item_id":`...), at.ItemID)
	return strconv.AppendInt(append(dst, `,"output_index":`...), int64(at.Output), 10)
}

// appendPart writes the place and the index of the only part of an item: content_index or, in a summary, summary_index.
func appendPart(dst []byte, event string, at Place) []byte {
	switch event {
	case EventSummaryAdded, EventSummaryDone, EventSummaryDelta, EventSummaryText:
		return append(appendPlace(dst, at), `,"summary_index":0`...)
	}
	return append(appendPlace(dst, at), `,"content_index":0`...)
}
