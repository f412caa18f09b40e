package server

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
	"sparrow/record"
)

// rollout holds the fields of a response for training: token ids, and experts of all rows. It is nil if none is
// requested.
type rollout struct {
	ids, experts bool
	shape        record.Shape
	prompts      [][]int32
	tokens       map[int][]int32 // token ids by index of the choice
}

// rollout prepares engine requests for these fields, or returns an error if a field is not available.
func (s *service) rollout(o *openai.Options, ask []sparrow.Request) (*rollout, error) {
	if !o.TokenIDs && !o.RoutedExperts {
		return nil, nil
	}
	r := &rollout{ids: o.TokenIDs, experts: o.RoutedExperts, shape: s.info.Config.Model.Choices(),
		tokens: map[int][]int32{}}
	refuse := func(field, format string, args ...any) (*rollout, error) {
		return nil, wire.NewError(wire.CodeUnsupportedValue, field, "%s", fmt.Sprintf(format, args...))
	}
	switch {
	case o.Stream && r.ids:
		return refuse("return_token_ids", "is not supported with stream; omit stream, or send "+
			"return_tokens_as_token_ids "+
			"with logprobs")
	case o.Stream:
		return refuse("return_routed_experts", "is not supported with stream; omit stream, or request sparrow.experts")
	case r.experts && r.shape.Mixing() == 0:
		return refuse("return_routed_experts", "this model has no experts; omit it")
	case r.experts && o.Choices() > 1:
		return refuse("return_routed_experts", "is supported for one choice, but n is %d; send a request for "+
			"each", o.Choices())
	case r.experts && (ask[0].Record != nil || ask[0].Replay != nil):
		return refuse("return_routed_experts", "cannot be combined with the records and replays of sparrow; request "+
			"one of them")
	}
	for i := range ask {
		if r.experts {
			wholeRows(&ask[i], false, true)
		}
		ids, err := s.promptIDs(&ask[i])
		if err != nil {
			return nil, err
		}
		r.prompts = append(r.prompts, ids)
	}
	return r, nil
}

// promptIDs returns the token ids of a request's prompt.
func (s *service) promptIDs(ask *sparrow.Request) ([]int32, error) {
	switch {
	case ask.Chat != nil:
		return s.engine.EncodeChat(ask.Chat, false)
	case ask.Tokens != nil:
		return ask.Tokens, nil
	}
	return s.engine.Encode(ask.Prompt, true)
}

// take stores the token ids of an event.
func (r *rollout) take(choice int, ev *sparrow.Event) {
	if r == nil {
		return
	}
	for i := range ev.Tokens {
		r.tokens[choice] = append(r.tokens[choice], ev.Tokens[i].ID)
	}
}

// of returns the fields of a choice, and the recorded rows that remain for the field sparrow.
func (r *rollout) of(choice, prompt int, rows *record.Rows) (out openai.Rollout, own *record.Rows, err error) {
	if r == nil {
		return out, rows, nil
	}
	if r.ids {
		out.TokenIDs = append([]int32{}, r.tokens[choice]...)
	}
	if !r.experts {
		return out, rows, nil
	}
	n := len(r.prompts[prompt]) + len(r.tokens[choice]) - 1
	array, err := rows.ExpertArray(&r.shape, n)
	if err != nil {
		return out, nil, err
	}
	out.RoutedExperts = encodeNPY(array, []int{n, len(r.shape.Layers), r.shape.Chosen}, r.shape.Experts)
	out.Array = encodeArray(array)
	return out, nil, nil
}

// prompt returns the token ids of prompt i, if requested.
func (r *rollout) prompt(i int) []int32 {
	if r == nil || !r.ids {
		return nil
	}
	return r.prompts[i]
}

// sglext returns SGLang's field with the experts of a choice, or nil.
func sglext(c *openai.Rollout) *openai.SGLExt {
	if c.Array == "" {
		return nil
	}
	return &openai.SGLExt{RoutedExperts: c.Array}
}

// encodeNPY encodes numbers below most as a NumPy array file in base64, of type uint8 if possible, otherwise uint16.
func encodeNPY(v []int32, shape []int, most int) string {
	kind := "|u1"
	if most > 256 {
		kind = "<u2"
	}
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d, %d), }", kind, shape[0], shape[1],
		shape[2])
	const before = 10 // bytes of magic number, version and length of the header
	pad := 64 - (before+len(head)+1)%64
	head += string(bytes.Repeat([]byte{' '}, pad)) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	b = append(b, head...)
	for _, x := range v {
		if most > 256 {
			b = binary.LittleEndian.AppendUint16(b, uint16(x))
		} else {
			b = append(b, byte(x))
		}
	}
	return base64.StdEncoding.EncodeToString(b)
}
