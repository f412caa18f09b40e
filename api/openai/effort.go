package openai

import (
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Efforts lists the levels of reasoning effort, the lowest first. They are the same in all interfaces.
var Efforts = []string{EffortNone, "minimal", "low", "medium", "high", "xhigh", "max"}

// EffortNone is the effort that switches reasoning off.
const EffortNone = "none"

// CheckEffort refuses a word that is not one of [Efforts]. Empty means that the request sets none.
func CheckEffort(p *wire.Problems, param, word string) {
	if word != "" && !slices.Contains(Efforts, word) {
		p.AddNew(wire.CodeInvalidValue, param, "%q is not one of %s", jsonscan.Clip(word), strings.Join(Efforts, ", "))
	}
}
