package nn

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// extra is a kind of tensor that released checkpoints contain and that the text network does not use.
type extra struct {
	what  string
	holds func(name string) bool
}

// extras lists the tensors that are skipped; any other tensor that is not loaded is a problem.
var extras = []extra{
	{"rotary frequencies, which are computed", suffixes(".inv_freq")},
	{"static scales of cached keys and values; the cache has scales of its own", suffixes(".k_scale", ".v_scale",
		".k_proj.output_scale", ".v_proj.output_scale")},
	{"vision tower; images are not read", prefixes("vision.", "vision_tower.", "visual.", "model.vision",
		"model.visual.", "mm_projector.", "multi_modal_projector.", "model.mm_projector.", "image_",
		"projector.", "aligner.")},
}

func suffixes(ends ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
	}
}

func prefixes(begins ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(name, begin) })
	}
}

// Skip marks the tensors that holds accepts as skipped, because their part of the checkpoint is not run.
func (l *Loader) Skip(what string, holds func(name string) bool) {
	n := 0
	for _, name := range l.from.Names() {
		if !l.used[name] && holds(name) {
			l.used[name] = true
			n++
		}
	}
	if n > 0 {
		l.skipped = append(l.skipped, fmt.Sprintf("%d tensors: %s", n, what))
	}
}

// Skipped lists the kinds of tensors that were not loaded, with their numbers.
func (l *Loader) Skipped() []string { return l.skipped }

// checkSuperfluous skips the tensors in extras and adds a problem for every other tensor that was not loaded.
func checkSuperfluous(l *Loader) {
	for _, e := range extras {
		l.Skip(e.what, e.holds)
	}
	for _, name := range l.from.Names() {
		if !l.used[name] {
			t, _ := l.from.Tensor(name)
			l.addProblem("unexpected %s, shape %v, in %s", name, t.Shape, filepath.Base(t.File))
		}
	}
}
