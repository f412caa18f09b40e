package anthropic

import (
	"fmt"
	"strconv"

	"sparrow/internal/wire"
)

// The functions below append the events of a stream to dst: a start with the empty message, for each block a start,
// deltas and a stop, then the stop reason with usage, and the stop of the message.

// AppendStart writes the first event.
func AppendStart(dst []byte, r *Response) ([]byte, error) {
	return appendValue(open(dst, "message_start"), dst, "message", r)
}

// AppendBlockStart writes that block i begins. Its texts are empty and its input is an empty object, whatever the block
// contains.
func AppendBlockStart(dst []byte, i int, b Block) ([]byte, error) {
	empty := Block{Type: b.Type, ID: b.ID, Name: b.Name}
	out := appendIndex(open(dst, "content_block_start"), i)
	if b.Type == BlockThinking {
		out = append(out, `,"content_block":{"type":"thinking","thinking":"","signature":""}`...)
		return end(out), nil
	}
	return appendValue(out, dst, "content_block", empty)
}

// AppendDelta writes more of block i: text, thinking, or JSON of a call's input.
func AppendDelta(dst []byte, i int, kind, text string) []byte {
	out := appendIndex(open(dst, "content_block_delta"), i)
	switch kind {
	case BlockThinking:
		out = append(out, `,"delta":{"type":"thinking_delta","thinking":`...)
	case BlockToolUse:
		out = append(out, `,"delta":{"type":"input_json_delta","partial_json":`...)
	default:
		out = append(out, `,"delta":{"type":"text_delta","text":`...)
	}
	return end(append(wire.AppendString(out, text), '}'))
}

// AppendBlockStop writes that block i is complete. Before that, it writes the signature of a thinking block.
func AppendBlockStop(dst []byte, i int, b Block) []byte {
	if b.Type == BlockThinking {
		dst = appendIndex(open(dst, "content_block_delta"), i)
		dst = append(dst, `,"delta":{"type":"signature_delta","signature":`...)
		dst = end(append(wire.AppendString(dst, b.signature()), '}'))
	}
	return end(appendIndex(open(dst, "content_block_stop"), i))
}

// AppendStop writes the stop reason and usage of a message, and the last event.
func AppendStop(dst []byte, r *Response) ([]byte, error) {
	delta, err := wire.Marshal(struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
		StopDetails  *string `json:"stop_details"`
	}{r.StopReason, r.StopSequence, r.StopDetails})
	if err != nil {
		return dst, fmt.Errorf("anthropic: event: %w", err)
	}
	out := append(append(open(dst, "message_delta"), `,"delta":`...), delta...)
	if out, err = appendValue(out, dst, "usage", r.Usage); err != nil {
		return dst, err
	}
	return end(open(out, "message_stop")), nil
}

// AppendPing writes an event without content, so that proxies do not close the connection during a long prefill.
func AppendPing(dst []byte) []byte { return end(open(dst, "ping")) }

// AppendError writes an error in the middle of a stream, after the status was sent.
func AppendError(dst []byte, e *wire.Error) []byte {
	out := append(open(dst, "error"), `,"error":{"type":`...)
	out = wire.AppendString(out, errorType(e.Status()))
	out = wire.AppendString(append(out, `,"message":`...), e.Message)
	return end(append(out, '}'))
}

// open writes the start of an event, up to the value of its type.
func open(dst []byte, event string) []byte {
	dst = append(append(append(dst, "event: "...), event...), "\ndata: {\"type\":\""...)
	return append(append(dst, event...), '"')
}

func end(dst []byte) []byte { return append(dst, "}\n\n"...) }

func appendIndex(dst []byte, i int) []byte {
	return strconv.AppendInt(append(dst, `,"index":`...), int64(i), 10)
}

// appendValue writes the last member of an event and ends it; on an error it returns dst unchanged.
func appendValue(dst, before []byte, name string, v any) ([]byte, error) {
	text, err := wire.Marshal(v)
	if err != nil {
		return before, fmt.Errorf("anthropic: event: %s: %w", name, err)
	}
	dst = append(append(append(dst, ',', '"'), name...), '"', ':')
	return end(append(dst, text...)), nil
}
