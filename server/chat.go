package server

import (
	"errors"
	"net/http"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/record"
)

// openaiAPI implements OpenAI's endpoints, except the Responses API, with extensions of vLLM and SGLang.
type openaiAPI struct{ *service }

// chatCompletion handles POST /v1/chat/completions.
func (s openaiAPI) chatCompletion(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeChat)
	if err != nil {
		return err
	}
	if err := s.admit(&req.Options); err != nil {
		return err
	}
	x := exchangeOf(r)
	s.fitEffort(w, x, req)
	noteTools(w, x, req, openai.LeftOut(req.Tools))
	ask := []sparrow.Request{chatRequest(req, s.origin(x, x.id))}
	if err := s.pullFrom(&req.Options, ask); err != nil {
		return err
	}
	roll, err := s.rollout(&req.Options, ask)
	if err != nil {
		return err
	}
	shape := chatShape{
		rollout: roll,
		head:    s.head("chatcmpl-"+x.id, openai.ObjectChat, req.Model), usage: req.WantsUsage(), n: req.Choices(),
		continuous: req.WantsContinuousUsage(), progress: req.Progress,
		spelling: newSpelling(s.engine, req.TokensAsIDs), logprobs: req.Logprobs, singleCall: singleCall(req),
		inputs: &inputs{tools: newToolbox(req.Tools)}, functions: req.Functions,
		scored: req.PromptLogprobs, transfer: s.transferOf(&req.Options),
	}
	if req.Stream {
		err = s.stream(w, r, ask, func(e *sse) sink { return newChatStream(e, shape) })
	} else {
		to := &chatAnswer{chatShape: shape, choices: make([]chatChoice, shape.n)}
		err = s.collect(w, r, ask, to, s.flushed(r, shape.transfer, to.response))
	}
	return renameField(err, req)
}

// renameField replaces the field name in an error of the engine, prompt or max_tokens, by the name in this request.
func renameField(err error, r *openai.ChatRequest) error {
	var field *sparrow.RequestError
	if !errors.As(err, &field) {
		return err
	}
	name := field.Field
	switch {
	case name == "prompt":
		name = "messages"
	case name == "max_tokens" && r.MaxTokens == nil && r.MaxCompletionTokens != nil:
		name = "max_completion_tokens"
	}
	return &sparrow.RequestError{Field: name, Reason: field.Reason, Err: err}
}

// chatShape holds the fields of a chat request that affect the format of the response.
type chatShape struct {
	head       openai.Head
	usage      bool // whether a stream ends with usage
	continuous bool // whether every chunk of a stream has usage
	progress   bool // whether a stream reports the progress of the prompt
	n          int  // number of choices
	spelling   *spelling
	logprobs   bool
	singleCall bool
	inputs     *inputs // converts arguments of custom tools to their inputs
	functions  bool    // whether the request used the older field functions
	scored     *int    // number of alternatives for prompt_logprobs; nil if not requested
	transfer   *openai.KVTransfer
	rollout    *rollout // fields for training; nil if none is requested
}

// deltas returns the deltas of an event. Without parallel calls, those of the second and later calls are omitted.
func (c *chatShape) deltas(ev *sparrow.Event) []chat.Delta {
	list := c.inputs.translate(ev)
	if !c.singleCall {
		return list
	}
	kept := make([]chat.Delta, 0, len(list))
	for _, d := range list {
		if d.Kind != chat.DeltaToolCall || d.Call.Index == 0 {
			kept = append(kept, d)
		}
	}
	return kept
}

// tokens appends the log probabilities of an event to list, if they are requested.
func (c *chatShape) tokens(list []openai.TokenLogprob, ev *sparrow.Event) []openai.TokenLogprob {
	if !c.logprobs {
		return nil
	}
	for i := range ev.Tokens {
		list = append(list, c.spelling.chatToken(&ev.Tokens[i]))
	}
	return list
}

// chatAnswer collects the events of a chat for a response without streaming.
type chatAnswer struct {
	chatShape
	choices []chatChoice
	prompt  []sparrow.Token // scored prompt tokens
}

type chatChoice struct {
	message  chat.Collector
	logprobs []openai.TokenLogprob
	recorded *record.Rows
	finish   sparrow.Finish
}

func (a *chatAnswer) event(_ int, ev *sparrow.Event) error {
	c := &a.choices[ev.Choice]
	a.rollout.take(ev.Choice, ev)
	c.message.Add(a.deltas(ev)...)
	c.logprobs = a.tokens(c.logprobs, ev)
	a.prompt = append(a.prompt, ev.Scored...)
	c.recorded = c.recorded.With(ev.Recorded)
	if ev.Finish != "" {
		c.finish = ev.Finish
	}
	return nil
}

func (a *chatAnswer) response(res *result) (any, error) {
	trace, err := traceJSON(res.traces)
	if err != nil {
		return nil, err
	}
	out := &openai.ChatResponse{Head: a.head, Usage: *usageOf(&res.usage), Sparrow: trace,
		Choices: make([]openai.ChatChoice, len(a.choices)), KVTransfer: a.transfer}
	for i := range a.choices {
		c := &a.choices[i]
		out.Choices[i] = openai.ChatChoice{Index: i, Message: a.message(i, c.message.Message()),
			FinishReason: a.reason(c.finish)}
		one := &out.Choices[i]
		if one.Rollout, one.Sparrow, err = a.rollout.of(i, 0, c.recorded); err != nil {
			return nil, err
		}
		if len(a.choices) == 1 {
			out.SGLExt = sglext(&one.Rollout)
		}
		if a.logprobs {
			out.Choices[i].Logprobs = &openai.ChatLogprobs{Content: c.logprobs}
		}
	}
	out.PromptTokenIDs = a.rollout.prompt(0)
	if a.scored != nil {
		out.PromptLogprobs = a.spelling.prompt(a.prompt, *a.scored)
	}
	return out, nil
}

// message returns the message of a choice. Content is null if it has only tool calls.
func (c *chatShape) message(choice int, m chat.Message) openai.ResponseMessage {
	out := openai.ResponseMessage{Role: openai.RoleAssistant, ReasoningContent: m.Reasoning}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		out.Content = &m.Content
	}
	for i, call := range m.ToolCalls {
		t := openai.ToolCall{ID: call.ID, Type: "function",
			Function: openai.FunctionCall{Name: call.Name, Arguments: call.Arguments}}
		if c.inputs.custom(choice, i) {
			t.Type = openai.TypeCustom
		}
		out.ToolCalls = append(out.ToolCalls, t)
	}
	if c.functions && len(out.ToolCalls) > 0 {
		out.FunctionCall, out.ToolCalls = &out.ToolCalls[0].Function, nil
	}
	return out
}

// reason returns the finish reason in OpenAI's format.
func (c *chatShape) reason(f sparrow.Finish) openai.FinishReason {
	if c.functions && f == sparrow.FinishToolCalls {
		return openai.FinishFunction
	}
	return finishOf(f)
}
