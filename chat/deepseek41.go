package chat

import (
	"fmt"
	"strconv"
	"strings"
)

// DeepSeekV41 is the format of DeepSeek-V4.1: the format of V4 with a marker before system messages, which may occur
// anywhere, an effort line with a number, and a space in the tags of calls (v41 spec, 7).
//
//	BOS [System [effort] system] User text Assistant </think> answer EOS System text Assistant <think>
//
// Template arguments are those of [DeepSeekV4], without effort_profile; reasoning_effort is low, high, xhigh, max or a
// number from 1 to 100.
type DeepSeekV41 struct{}

const deepseekSystem = "<｜System｜>"

var v41 = dialect{block: "calls", gap: " ", toolsPrefix: v41Tags.Replace(v4ToolsPrefix), toolsSuffix: v4ToolsSuffix}

// v41Tags replaces the tags of V4 by those of V4.1.
var v41Tags = strings.NewReplacer(dsml+"tool_calls", dsml+" calls", dsml+"invoke", dsml+" invoke", dsml+"parameter",
	dsml+" parameter")

// Name is "deepseek-v4.1".
func (DeepSeekV41) Name() string { return "deepseek-v4.1" }

// Parser returns a parser for DSML calls.
func (f DeepSeekV41) Parser(req Request) Parser { return newDSMLParser(v41, req, begun(f, req)) }

// CallSyntax returns DSML with a space in its tags.
func (DeepSeekV41) CallSyntax() (CallSyntax, bool) { return dsmlCalls(v41), true }

// Render writes the prompt.
func (f DeepSeekV41) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, Developer, User, Assistant, ToolRole, Reminder)
	if err != nil {
		return Prompt{}, err
	}
	if err := checkKwargs(req, "thinking", "enable_thinking", "drop_thinking", "reasoning_effort", "task"); err != nil {
		return Prompt{}, err
	}
	e := &v4Encoder{req: req, dialect: v41, systems: true}
	if e.thinking, err = thinkingMode(req, false); err != nil {
		return Prompt{}, err
	}
	if e.task, err = v4Task(req); err != nil {
		return Prompt{}, err
	}
	drop, err := boolKwarg(req, "drop_thinking")
	if err != nil {
		return Prompt{}, err
	}
	if e.turns, err = v4Merge(declareFirst(req, turns)); err != nil {
		return Prompt{}, err
	}
	e.drop = drop == nil || *drop
	for _, t := range e.turns {
		e.drop = e.drop && len(t.Tools) == 0
	}
	if e.thinking && e.drop {
		e.turns = dropDevelopers(e.turns)
	}
	e.last = -1
	for i := range e.turns {
		if e.asks(i) {
			e.last = i
		}
	}
	effort, err := f.effort(req)
	if err != nil {
		return Prompt{}, err
	}
	e.b.WriteString(deepseekBOS)
	if e.thinking || len(e.turns) > 0 && e.turns[0].Role == System {
		e.b.WriteString(deepseekSystem)
	}
	if e.thinking {
		e.b.WriteString(effort)
	}
	return e.encode()
}

// effort returns the line that states the reasoning effort.
func (f DeepSeekV41) effort(req Request) (string, error) {
	word, err := effortWord(req)
	if err != nil {
		return "", err
	}
	n, ok := map[string]int{"": 75, "low": 50, "high": 75, "xhigh": 75, "max": 100}[word]
	if !ok {
		if n, err = strconv.Atoi(word); err != nil || n < 1 || n > 100 {
			return "", fmt.Errorf("%w: reasoning_effort: %q is not supported: %s supports low, high, xhigh, max and "+
				"numbers from 1 to 100", ErrUnsupported, word, f.Name())
		}
	}
	return fmt.Sprintf("Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the "+
			"reasoning)\n\n", n),
		nil
}
