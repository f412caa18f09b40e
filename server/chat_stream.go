package server

import (
	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/record"
)

// chatStream streams a chat: for each choice a chunk with the role, chunks with content, and a chunk with the finish
// reason; then usage and trace if requested.
type chatStream struct {
	*sse
	chatShape
	wire    *openai.ChatStream
	choices []chatStreamChoice
	running
}

func newChatStream(e *sse, shape chatShape) *chatStream {
	return &chatStream{e, shape, openai.NewChatStream(shape.head, shape.usage), make([]chatStreamChoice, shape.n),
		running{on: shape.continuous}}
}

type chatStreamChoice struct {
	open     bool
	logprobs []openai.TokenLogprob // log probabilities of tokens whose text was not sent yet
	recorded *record.Rows          // recorded rows of these tokens
}

func (s *chatStream) event(_ int, ev *sparrow.Event) error {
	c := &s.choices[ev.Choice]
	s.count(ev)
	if !c.open {
		c.open = true
		s.chunk(ev.Choice, openai.ChunkChoice{Delta: openai.Delta{Role: openai.RoleAssistant}})
	}
	c.logprobs = s.tokens(c.logprobs, ev)
	c.recorded = c.recorded.With(ev.Recorded)
	// Rows of a prompt belong to no generated token. They are sent immediately, because there may be many.
	prompt := ev.Recorded != nil && len(ev.Tokens) == 0
	if d, any := s.delta(ev); any || prompt || s.on && len(ev.Tokens) > 0 {
		s.chunk(ev.Choice, openai.ChunkChoice{Delta: d, Logprobs: s.take(c), Sparrow: c.rows()})
	}
	if ev.Finish != "" {
		s.chunk(ev.Choice, openai.ChunkChoice{Logprobs: s.take(c), FinishReason: s.reason(ev.Finish),
			Sparrow: c.rows()})
	}
	return s.flush()
}

func (s *chatStream) chunk(choice int, c openai.ChunkChoice) {
	c.Index = choice
	s.buf = s.wire.Append(s.buf, &c, s.so())
}

// rows returns the recorded rows that were not sent yet, or nil.
func (c *chatStreamChoice) rows() *record.Rows {
	r := c.recorded
	c.recorded = nil
	return r
}

// take returns the log probabilities that were not sent yet, or nil.
func (s *chatStream) take(c *chatStreamChoice) *openai.ChatLogprobs {
	if len(c.logprobs) == 0 {
		return nil
	}
	l := &openai.ChatLogprobs{Content: c.logprobs}
	c.logprobs = nil
	return l
}

func (s *chatStream) end(r *result) error { return s.finish(s.wire.AppendClosing, s.usage, r) }

// delta joins the deltas of one event for a chunk; any is false if there are none.
func (c *chatShape) delta(ev *sparrow.Event) (d openai.Delta, any bool) {
	deltas := c.deltas(ev)
	for i := range deltas {
		switch in := &deltas[i]; in.Kind {
		case chat.DeltaReasoning:
			d.ReasoningContent += in.Text
		case chat.DeltaContent:
			d.Content += in.Text
		case chat.DeltaToolCall:
			d.ToolCalls = addCall(d.ToolCalls, &in.Call, c.inputs.custom(ev.Choice, in.Call.Index))
		}
	}
	any = d.ReasoningContent != "" || d.Content != "" || len(d.ToolCalls) > 0
	if c.functions && len(d.ToolCalls) > 0 {
		d.FunctionCall, d.ToolCalls = &d.ToolCalls[0].Function, nil
	}
	return d, any
}

// addCall appends a piece of a call, or adds it to the last piece if that belongs to the same call.
func addCall(list []openai.ToolCallDelta, c *chat.CallDelta, custom bool) []openai.ToolCallDelta {
	if n := len(list); n > 0 && list[n-1].Index == c.Index && c.Name == "" {
		list[n-1].Function.Arguments += c.Arguments
		return list
	}
	piece := openai.ToolCallDelta{Index: c.Index, ID: c.ID, Custom: custom,
		Function: openai.FunctionDelta{Name: c.Name, Arguments: c.Arguments}}
	if c.ID != "" {
		piece.Type = "function"
		if custom {
			piece.Type = openai.TypeCustom
		}
	}
	return append(list, piece)
}
