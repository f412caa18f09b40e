package browsertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sparrow"
	"sparrow/builtin"
	"sparrow/internal/model/synth"
	"sparrow/server"
)

// serveShape serves random weights of a named shape with the built-in tokenizer, and returns the address.
func serveShape(t *testing.T, name string) string {
	t.Helper()
	text, err := synth.PresetConfig(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := synth.New(name, text, synth.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	beside := []synth.File{{Name: "tokenizer.json", Data: builtin.TokenizerJSON()},
		{Name: "tokenizer_config.json", Data: builtin.TokenizerConfig()}}
	if err := c.Write(t.Context(), dir, beside, nil); err != nil {
		t.Fatal(err)
	}
	return listen(t, openServer(t, sparrow.Config{Model: dir, Kernels: "cpu"}, server.Options{}))
}

// recordShape records an answer to a text of about 900 tokens with a model of the named shape.
func (w *world) recordShape(t *testing.T, name string) *tab {
	t.Helper()
	p := w.open(t, serveShape(t, name)+"#explorer", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.eval(`document.querySelector(".explorer textarea").value =
		"The quick brown fox jumps over the lazy dog.\n".repeat(60);
		document.querySelector(".explorer input[type=number]").value = 4`, nil)
	p.press("Record")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	p.eval(`document.querySelector(".columns .tokens").scrollTop = 0`, nil)
	return p
}

// runs is a JavaScript function that returns the runs of consecutive tokens with a class, as {first: position, count}.
// Runs at the edge of the rendered tokens are left out, because the rest of them is not rendered.
const runs = `((name) => { const out = []; let last = -2;
	const at = (p) => document.querySelector(".columns .tokens span[data-p='" + p + "']");
	for (const s of document.querySelectorAll(".columns .tokens span." + name)) { const p = Number(s.dataset.p);
		if (p !== last + 1 || s.classList.contains("pool-first")) out.push({first: p, count: 0});
		out.at(-1).count++; last = p; }
	return out.filter((r) => (!r.first || at(r.first - 1)) && at(r.first + r.count)); })`

type run struct{ First, Count int }

// pooledKeys checks that the page shows the pools of tokens that the indexer of GLM-5.3-Flash chose, and describes its
// linear layers.
func (w *world) pooledKeys(t *testing.T) {
	p := w.recordShape(t, "glm53f-tiny")
	got := p.text(".summary")
	for _, want := range []string{"Its indexer chose 32 of ", " pools of 4 tokens",
		"3 layers have linear attention and choose nothing."} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if got := p.text(".columns .legend"); !strings.Contains(got, "a pool of 4 tokens") {
		t.Errorf("the legend is %q", got)
	}
	var list []run
	p.wait(runs + `("pool").length > 0`)
	p.eval(runs+`("pool")`, &list)
	for _, r := range list {
		if r.First%4 != 0 || r.Count != 4 {
			t.Errorf("a pool of %d tokens from %d on", r.Count, r.First)
		}
	}
	p.look("pooled")
	// The tokens after the last pool are attended to as well.
	p.eval(`document.querySelector(".explore input[type=checkbox]").click()`, nil)
	for i := range 2 { // at least one of two tokens of the answer has such tokens
		p.eval(fmt.Sprintf(`(() => { const s = document.querySelector(".player input[type=range]"); s.value = %d;
			s.dispatchEvent(new Event("input")); })()`, i), nil)
		var keys int
		p.eval(`Number(document.querySelector(".summary").innerText.match(/ of ([\d,]+) tokens:/)[1].replace(",", ""))`,
			&keys)
		p.eval(`document.querySelector(".columns .tokens").scrollTop = 1e6`, nil)
		var read bool
		p.wait(fmt.Sprintf(`document.querySelector(".columns .tokens span[data-p='%d']")`, keys-1))
		p.eval(fmt.Sprintf(`/\bh[1-6]\b/.test(document.querySelector(".columns .tokens span[data-p='%d']").className)`,
			keys-1), &read)
		if rest := keys % 4; rest > 0 && (!read || !strings.Contains(p.text(".summary"), " read as well.")) {
			t.Errorf("%d tokens lie behind the last pool; the last is read: %v: %q", rest, read, p.text(".summary"))
		}
	}
	p.set(0, "never")
	p.wait(runs + `("pool").length === 0`)
}

// candidates checks that the page shows the blocks that one layer of DeepSeek-V4.1 selects, and the keys that a later
// layer chose inside them.
func (w *world) candidates(t *testing.T) {
	p := w.recordShape(t, "v41-tiny")
	if got := p.text(".summary"); !strings.Contains(got, "Layer 4 kept 16 of ") || !strings.Contains(got,
		" blocks of 8 tokens; layer 6 chose 64 of its 64 keys inside them.") {
		t.Errorf("all layers: %q", got)
	}
	p.set(2, "6")
	var list []run
	p.wait(runs + `("kept").length > 0`)
	p.eval(runs+`("kept")`, &list)
	for _, r := range list {
		if r.First%8 != 0 || r.Count%8 != 0 {
			t.Errorf("a block of %d tokens from %d on", r.Count, r.First)
		}
	}
	if got := p.text(".columns .legend"); !strings.Contains(got, "kept by layer 4") || strings.Contains(got, "pool") {
		t.Errorf("the legend is %q", got)
	}
	p.look("candidates")
	p.set(2, "4")
	if got := p.text(".summary"); !strings.Contains(got, " blocks of 8 tokens for later layers.") {
		t.Errorf("layer 4: %q", got)
	}
	// Layer 2 has keys of two tokens and selects no blocks.
	p.set(2, "2")
	if got := p.text(".summary"); !strings.Contains(got, "Its indexer chose 64 of ") || !strings.Contains(got,
		" pools of 2 tokens; the last 128 tokens are read as well.") || strings.Contains(got, "kept") {
		t.Errorf("layer 2: %q", got)
	}
	p.wait(runs + `("pool").length > 0 && ` + runs + `("kept").length === 0`)
	p.eval(runs+`("pool")`, &list)
	for _, r := range list {
		if r.First%2 != 0 || r.Count != 2 {
			t.Errorf("a pool of %d tokens from %d on", r.Count, r.First)
		}
	}
}
