package server

import (
	"net/http"
	"slices"

	"sparrow"
	"sparrow/api/openai"
)

// effortHeader holds the effective reasoning effort, if the request sets one.
const effortHeader = "X-Sparrow-Effort"

// effortOn is the level of models that can only turn reasoning on and off.
const effortOn = "on"

// effort is the requested word for the reasoning effort, and the effective level. Both are empty if the request sets
// none.
type effort struct{ asked, used string }

func (e effort) String() string {
	if e.asked == e.used {
		return e.used
	}
	return e.used + "; asked=" + e.asked
}

// fitEffort replaces a request's reasoning effort by a level of the model, and reports it in the response.
func (s *service) fitEffort(w http.ResponseWriter, x *exchange, c *openai.ChatRequest) {
	if x.effort = fitEffort(&s.info, c); x.effort.asked != "" {
		w.Header().Set(effortHeader, x.effort.String())
	}
}

// fitEffort maps the word to a level of the model. A word other than none turns reasoning on, unless another field of
// the request turns it off; the request then has no level.
func fitEffort(info *sparrow.Info, c *openai.ChatRequest) effort {
	if c.ReasoningEffort == "" {
		return effort{}
	}
	e := effort{asked: c.ReasoningEffort}
	word := e.asked
	if on := c.ThinkingMode(); on != nil && !*on {
		word = openai.EffortNone
	}
	e.used = levelOf(info, word)
	switch c.ReasoningEffort = e.used; e.used {
	case openai.EffortNone:
		c.Thinking = &openai.Thinking{Type: openai.ThinkingDisabled}
		return e
	case effortOn:
		c.ReasoningEffort = ""
	}
	if word != openai.EffortNone && c.ThinkingMode() == nil {
		c.Thinking = &openai.Thinking{Type: openai.ThinkingEnabled}
	}
	return e
}

// levelOf returns the lowest level of the model that is at least the requested one, or its highest. For a model that
// always reasons, none gives its lowest level.
func levelOf(info *sparrow.Info, word string) string {
	asked := slices.Index(openai.Efforts, word)
	if asked == 0 && !info.AlwaysThinks {
		return openai.EffortNone
	}
	for _, level := range openai.Efforts[max(asked, 1):] {
		if slices.Contains(info.Efforts, level) {
			return level
		}
	}
	if n := len(info.Efforts); n > 0 {
		return info.Efforts[n-1]
	}
	return effortOn
}
