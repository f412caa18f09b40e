package server

import (
	"net/http"
	"slices"

	"sparrow"
	"sparrow/api/openai"
)

// effortHeader states how much the model was told to think, where the request has a wish.
const effortHeader = "X-Sparrow-Effort"

// effortOn is the level of models that can be told whether to think, and not how much.
const effortOn = "on"

// effort is how much to think: the word of the request, and what the model was told. Both are empty without a wish.
type effort struct{ asked, used string }

func (e effort) String() string {
	if e.asked == e.used {
		return e.used
	}
	return e.used + "; asked=" + e.asked
}

// fitEffort replaces a request's word for how much to think by what the model has, and says so in the response.
func (s *service) fitEffort(w http.ResponseWriter, x *exchange, c *openai.ChatRequest) {
	if x.effort = fitEffort(&s.info, c); x.effort.asked != "" {
		w.Header().Set(effortHeader, x.effort.String())
	}
}

// fitEffort maps the word to a level of the model. A word other than none switches thinking on, unless another switch
// of the request says no: then there is nothing to measure out.
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

// levelOf is the least level of the model that is at least what a word asks for, or its greatest one. A model that
// cannot stop thinking has its least level for none.
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
