package server

import (
	"net/http"
	"slices"

	"sparrow"
	"sparrow/api/openai"
)

// effortHeader is the response header with the effective reasoning effort, if the request sets one.
const effortHeader = "X-Sparrow-Effort"

// effortOn is the effective effort for models that can only turn reasoning on and off.
const effortOn = "on"

// effort holds the requested reasoning effort and the effective one. Both are empty if the request sets none.
type effort struct{ asked, used string }

func (e effort) String() string {
	if e.asked == e.used {
		return e.used
	}
	return e.used + "; asked=" + e.asked
}

// fitEffort replaces a request's reasoning effort by a level of the model, and sets the response header.
func (s *service) fitEffort(w http.ResponseWriter, x *exchange, c *openai.ChatRequest) {
	if x.effort = fitEffort(&s.info, c); x.effort.asked != "" {
		w.Header().Set(effortHeader, x.effort.String())
	}
}

// fitEffort maps the requested effort to a level of the model. An effort other than none turns reasoning on. If another
// field of the request turns reasoning off, the request has no level.
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

// levelOf returns the lowest level of the model that is at least the requested one, otherwise its highest. If the model
// always reasons, the effort none gives its lowest level.
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
