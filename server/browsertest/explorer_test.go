package browsertest

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// set chooses a value in the explorer's nth select element: 0 is the view, 1 the subject, 2 the layer, 3 the compared
// layer.
func (p *tab) set(nth int, value string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => { const s = document.querySelectorAll(".explore select")[%d]; s.value = %q;
		if (s.value !== %q) throw new Error("no such choice"); s.dispatchEvent(new Event("change")); })()`, nth, value,
		value), nil)
}

// sharing saves pictures of the explorer and compares two answers.
func (w *world) sharing(t *testing.T) {
	p := w.open(t, w.url+"#explorer", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.catch()
	p.press("Use the log of the example")
	p.wait(`document.querySelector(".explorer textarea").value.includes("Wanda")`)
	p.press("Record")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	p.press("Save a picture as SVG")
	picture := p.caught(".svg")
	var parsed struct {
		Rects []struct{} `xml:"rect"`
		Texts []string   `xml:"text"`
	}
	p.must(xml.Unmarshal([]byte(picture), &parsed))
	if text := strings.Join(parsed.Texts, "\n"); len(parsed.Rects) < 30 ||
		!strings.Contains(text, "What the model looked at to write") ||
		!strings.Contains(text, "The access code of Wanda is 2479.") {
		t.Errorf("the picture has %d boxes and says %s", len(parsed.Rects), text)
	}
	if *looks != "" {
		p.must(os.WriteFile(filepath.Join(*looks, "poster.svg"), []byte(picture), 0o644))
	}
	p.press("Save a picture as PNG")
	p.caught(".png")
	var size int
	var kind string
	p.eval(`files.at(-1).size`, &size)
	p.eval(`files.at(-1).type`, &kind)
	if size < 10_000 || kind != "image/png" {
		t.Errorf("the picture has %d bytes of %s", size, kind)
	}
	// A second question about the same text is recorded.
	p.eval(`(() => { const a = document.querySelector(".explorer textarea");
		a.value = a.value.replace("What is the access code of Wanda?",
			"What is the locker number of Nora?"); })()`, nil)
	p.press("Record")
	p.wait(`document.querySelector(".explore:not([hidden])") && !document.querySelectorAll(".explore select")[4].disabled`)
	p.set(4, "0")
	if got := p.text(".summary"); !strings.Contains(got, "for this answer alone") ||
		strings.Contains(got, " 0 for this") {
		t.Errorf("compared: %q", got)
	}
	p.eval(`[...document.querySelectorAll(".best button")].find((b) => b.innerText.includes("Nora"))?.click()`, nil)
	p.wait(`document.querySelector(".columns .tokens .a")`)
	p.set(4, "")
	if got := p.text(".summary"); !strings.Contains(got, "layers looked at") {
		t.Errorf("not compared: %q", got)
	}
}

// explorer records an answer and checks every mode of the explorer.
func (w *world) explorer(t *testing.T) {
	p := w.open(t, w.url+"#explorer", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.press("Use the log of the example")
	p.wait(`document.querySelector(".explorer textarea").value.includes("Wanda")`)
	p.press("Record")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	// The explorer opens at a token of the answer that attended to the line with the fact.
	var opened string
	p.eval(`[...document.querySelectorAll(".columns .needle")].map((e) => e.textContent).join("")`, &opened)
	if !strings.Contains(opened, "The access code of Wanda is 2479.") {
		t.Errorf("it opens at %q, with %q", p.text(".which"), opened)
	}
	p.look("explorer")
	p.eval(`(() => { const s = document.querySelector(".player input[type=range]"); s.value = 0;
		s.dispatchEvent(new Event("input")); })()`, nil)
	for _, want := range []string{"To write \u201cThe\u201d", "each of 5 layers looked at 256 of 3,99",
		"All layers selected", "never looked at during this answer"} {
		if got := p.text(".summary"); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	marked := func(class string) (n int) {
		t.Helper()
		p.eval(fmt.Sprintf(`document.querySelectorAll(".columns .tokens .%s").length`, class), &n)
		return n
	}
	hot := func() (n int) {
		p.eval(`document.querySelectorAll(".columns .tokens :is(.h1, .h2, .h3, .h4, .h5, .h6)").length`, &n)
		return n
	}
	if hot() == 0 {
		t.Error("no token is marked")
	}
	// The search finds the line with the fact.
	p.eval(`(() => { const f = document.querySelector("input[type=search]"); f.value = "code of Wanda is 2479";
		f.dispatchEvent(new Event("change")); })()`, nil)
	p.wait(`document.querySelector(".needle")`)
	if got := p.text(".path + p"); !strings.Contains(got, "first looked at for") ||
		!strings.Contains(got, "when layer 4 chose") {
		t.Errorf("the path: %q", got)
	}
	var needle string
	p.eval(`[...document.querySelectorAll(".columns .needle")].map((e) => e.textContent).join("")`, &needle)
	if strings.TrimSpace(needle) != "code of Wanda is 2479" {
		t.Errorf("the needle is %q", needle)
	}
	// The views show one layer, two layers, all layers, and the positions that were never selected.
	p.set(2, "1")
	if got := p.text(".summary"); !strings.Contains(got, "layer 1 looked at 256") {
		t.Errorf("one layer: %q", got)
	}
	p.set(3, "3")
	if got := p.text(".summary"); !strings.Contains(got, "layers 1 and 3 both looked at") {
		t.Errorf("two layers: %q", got)
	}
	if marked("a")+marked("b")+marked("ab") == 0 {
		t.Error("two layers mark nothing")
	}
	p.set(3, "")
	p.set(2, "all")
	p.set(0, "agree")
	p.set(0, "never")
	p.eval(`document.querySelector(".columns .tokens").scrollTop = 600`, nil)
	p.wait(`document.querySelector(".columns .tokens .never")`)
	p.set(0, "looked")
	p.set(1, "answer")
	// The first token and the question have high scores in every row; the line with the fact has the next highest.
	var best string
	p.eval(`[...document.querySelectorAll(".best li")].slice(0, 3).map((e) => e.textContent).join("\n")`, &best)
	if !strings.Contains(best, "The access code of Wanda is 2479.") {
		t.Errorf("looked at most during the answer: %q", best)
	}
	p.set(1, "token")
	// Play moves through the answer by itself and stops at its end.
	p.press("Play")
	p.wait(`document.querySelector("[aria-pressed=true]")?.innerText === "Pause"`)
	p.wait(`document.querySelector(".which").innerText.startsWith("3 of ")`)
	p.press("Pause")
	// A click on a token of the answer selects that token.
	p.clickOn(`[...document.querySelectorAll(".tokens.short span")].find((s) => s.textContent === " Wanda")`)
	p.wait(`document.querySelector(".which").innerText.includes("\u201cWanda")`)
	// Dragging over the picture zooms in.
	p.eval(`document.querySelector(".layered canvas").scrollIntoView({block: "center"})`, nil)
	var at struct{ X, Y, Width float64 }
	p.eval(`(() => { const r = document.querySelector(".layered canvas").getBoundingClientRect();
		return {x: r.x, y: r.y + 20, width: r.width}; })()`, &at)
	for _, e := range []struct {
		kind  string
		share float64
	}{{"mouseMoved", 0.25}, {"mousePressed", 0.25}, {"mouseMoved", 0.4}, {"mouseReleased", 0.5}} {
		p.do("Input.dispatchMouseEvent", map[string]any{"type": e.kind, "x": at.X + e.share*at.Width, "y": at.Y,
			"button": "left", "buttons": 1, "clickCount": 1})
	}
	var first, last string
	p.eval(`document.querySelector(".layered + .axis").firstChild.innerText`, &first)
	p.eval(`document.querySelector(".layered + .axis").lastChild.innerText`, &last)
	near := func(text string, want int) bool {
		n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
		return err == nil && n > want-20 && n < want+20
	}
	if !near(first, 1001) || !near(last, 2003) {
		t.Errorf("the middle of the picture was dragged over; it now spans %s to %s", first, last)
	}
	if got := p.text(".pointed"); !strings.Contains(got, "Position ") {
		t.Errorf("pointed at: %q", got)
	}
	p.press("Whole")
	if got := p.text(".explorer"); !strings.Contains(got, "experts computed this token") {
		t.Error("no experts are shown")
	}
	var drawn int
	p.eval(`[...document.querySelectorAll(".explore canvas")].filter((c) => {
		const d = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
		return new Set(d).size > 2; }).length`, &drawn)
	if drawn != 3 {
		t.Errorf("%d of 3 pictures show something", drawn)
	}
}

// stepTime is the maximum processor time of a step from one token to the next in a recording of 100,000 tokens.
// Processors that share caches and execution units with other work take up to twice as long: the measured times were 56
// to 126 ms.
const stepTime = 250 * time.Millisecond

// longPrompt plays a recording of 100,000 tokens and 61 layers, and measures the time of frames and steps.
func (w *world) longPrompt(t *testing.T) {
	p := w.open(t, w.url+"#explorer", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.eval(`document.querySelector(".explorer textarea").focus()`, nil)
	p.enter(sayLong)
	begun := time.Now()
	p.press("Record")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	t.Logf("%d tokens, %d layers of %d positions, %d rows: shown after %v", longTokens, longLayers, longSelected,
		longOutput, time.Since(begun).Round(10*time.Millisecond))
	if got := p.text(".summary"); !strings.Contains(got, "each of 61 layers looked at 2,048 of 100,000 tokens: 2.0 %") {
		t.Errorf("the summary is %q", got)
	}
	p.do("Performance.enable", map[string]any{"timeDomain": "threadTicks"})
	busy := p.busy()
	p.frames()
	p.press("Play")
	p.wait(`document.querySelector(".which").innerText.startsWith("5 of ")`)
	p.press("Pause")
	for i := range 20 { // the text is scrolled from end to end, and every token of the answer is visited
		p.eval(fmt.Sprintf(`(() => { const t = document.querySelector(".columns .tokens");
			t.scrollTop = t.scrollHeight * %d / 20; })()`, i), nil)
		p.press("Next")
	}
	f := p.framesEnd()
	step := (p.busy() - busy) / 24 // the page made four steps by playing and twenty by hand
	t.Logf("frames while playing and scrolling: %s; processor time of a step %v", f, step.Round(time.Millisecond/10))
	if step > stepTime {
		t.Errorf("a step takes %v of processor time, want at most %v", step, stepTime)
	}
	var elements int
	p.eval(`document.querySelectorAll("*").length`, &elements)
	if elements > 20_000 {
		t.Errorf("the page has %d elements", elements)
	}
}

// busy returns the processor time of the page's main thread.
func (p *tab) busy() time.Duration {
	p.t.Helper()
	var out struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	p.must(p.b.call(p.session, "Performance.getMetrics", nil, &out))
	for _, m := range out.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	p.t.Fatal("the browser does not tell its processor time")
	return 0
}

// timing holds frame times in milliseconds: the median, the 95th percentile and the maximum.
type timing struct {
	half, most, worst float64
	count             int
}

func (f timing) String() string {
	return fmt.Sprintf("%d, median %.0f ms, 95 %% within %.0f ms, slowest %.0f ms", f.count, f.half, f.most, f.worst)
}

// frames starts measuring frame times.
func (p *tab) frames() {
	p.t.Helper()
	p.eval(`(() => { window.frameTimes = []; let last = performance.now(); const next = (now) => {
		frameTimes.push(now - last); last = now; window.frameTimer = requestAnimationFrame(next); };
		window.frameTimer = requestAnimationFrame(next); })()`, nil)
}

// framesEnd returns the frame times since frames.
func (p *tab) framesEnd() timing {
	p.t.Helper()
	var f [4]float64
	p.eval(`(() => { cancelAnimationFrame(frameTimer); const t = frameTimes.slice(1).sort((a, b) => a - b);
		return [t[t.length >> 1], t[Math.floor(t.length * 0.95)], t.at(-1), t.length]; })()`, &f)
	return timing{f[0], f[1], f[2], int(f[3])}
}
