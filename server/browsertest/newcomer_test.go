package browsertest

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"sparrow"
	"sparrow/server"
)

// phone is a small screen.
var phone = screen{width: 360, height: 640}

// overflows is a JavaScript expression that lists the elements that extend beyond the right edge of the page, except
// boxes that scroll by themselves.
const overflows = `(() => { const wide = document.documentElement.clientWidth;
	const scrolls = (e) => e && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
	return [...document.querySelectorAll("main *, header *")].filter((e) => e.getBoundingClientRect().right > wide + 1 &&
		!scrolls(e.parentElement)).map((e) => e.tagName + "." + e.className).slice(0, 5).join(" "); })()`

// fits fails if the page, or an element that a selector names, is wider than the window.
func (p *tab) fits(where, selector string) {
	p.t.Helper()
	var wide int
	p.eval(`document.documentElement.scrollWidth - innerWidth`, &wide)
	var out string
	if p.eval(overflows, &out); out != "" || wide > 0 {
		p.t.Errorf("%s: %d pixels too wide: %s", where, wide, out)
	}
	if selector == "" {
		return
	}
	p.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); return e.scrollWidth - e.clientWidth; })()`,
		selector), &wide)
	if wide > 0 {
		p.t.Errorf("%s: %s scrolls sideways by %d pixels", where, selector, wide)
	}
}

// visible reports whether an element is inside the window.
func (p *tab) visible(selector string) (ok bool) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => { const r = document.querySelector(%q)?.getBoundingClientRect();
		return !!r && r.height > 0 && r.top >= -1 && r.bottom <= innerHeight + 1; })()`, selector), &ok)
	return ok
}

// widths checks on a wide and a narrow screen that only boxes of code scroll sideways in every view, and that the
// question stays visible.
func (w *world) widths(t *testing.T) {
	for _, s := range []screen{desktop, phone} {
		name := fmt.Sprintf("%d pixels", s.width)
		p := w.open(t, w.url+"#chat", s)
		p.ask("What are you called?")
		p.press("Copy as code")
		p.wait(`document.querySelector(".as code").textContent.includes("curl")`)
		p.fits(name+", code", ".thread")
		p.press("System prompt and parameters")
		p.fits(name+", options", ".thread")
		var sent, thread float64
		p.eval(`[...document.querySelectorAll("button")].find((b) => b.innerText === "Send").getBoundingClientRect().bottom -
			innerHeight`, &sent)
		p.eval(`document.querySelector(".thread").clientHeight`, &thread)
		if sent > 0 || thread < 120 {
			t.Errorf("%s, options: Send lies %.0f pixels below the window, the thread has %.0f", name, sent, thread)
		}
		p.eval(`location.hash = "start"`, nil)
		p.wait(`document.querySelector(".start")`)
		p.press("Ask")
		p.wait(`document.querySelector(".lit")`)
		p.fits(name+", start", "")
		if !p.visible(".answer-line") {
			t.Errorf("%s: the answer is not in view after Ask", name)
		}
		p.press("Show it token by token")
		p.wait(`document.querySelector(".explore:not([hidden])")`)
		p.fits(name+", explorer", "")
		p.eval(`location.hash = "plans"`, nil)
		p.wait(`document.querySelector(".plans form button")`)
		p.fits(name+", plans", "")
	}
}

// ownQuestion asks one question with a button and one by typing, and checks that the explorer opens with the result.
func (w *world) ownQuestion(t *testing.T) {
	p := w.open(t, w.url, desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.press("What is the locker number of Nora?")
	p.wait(`document.querySelector(".lit")`)
	if got := p.text(".answer-line"); !strings.Contains(got, "598") {
		t.Errorf("Nora: %q", got)
	}
	p.eval(`document.querySelector(".start input").select()`, nil)
	p.eval(`document.querySelector(".start input").focus()`, nil)
	p.enter("What is the home city of Liam?")
	p.key("Enter", 0)
	p.wait(`document.querySelector(".answer-line").innerText.includes("Berlin") && document.querySelector(".lit")`)
	told := p.text(".told")
	p.press("Show it token by token")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	_, token, _ := strings.Cut(p.text(".which"), ": ")
	if !strings.Contains(told, "to write "+token) {
		t.Errorf("the explorer opens on %s; told was %q", p.text(".which"), told)
	}
	p.wait(`(() => { const e = document.querySelector(".columns .needle")?.getBoundingClientRect();
		const box = document.querySelector(".columns .tokens").getBoundingClientRect();
		return e && e.top >= box.top && e.bottom <= box.bottom; })()`)
	var line string
	p.eval(`[...document.querySelectorAll(".columns .tokens .needle")].map((e) => e.textContent).join("")`, &line)
	if !strings.Contains(line, "Liam is Berlin") {
		t.Errorf("the marked line is %q", line)
	}
}

// inView scrolls through the explorer and checks that the answer and its slider stay visible and that the window does
// not scroll by itself.
func (w *world) inView(t *testing.T) {
	p := w.open(t, w.url+"#explorer", desktop)
	p.press("Use the log of the example")
	p.wait(`document.querySelector(".explorer textarea").value.includes("Wanda")`)
	p.press("Record")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	for _, part := range []string{".controls", ".layered canvas", ".columns .tokens"} {
		if !p.visible(part) {
			t.Errorf("%s is not in view beside the rest", part)
		}
	}
	p.eval(`scrollBy(0, 300)`, nil)
	if !p.visible(".controls") {
		t.Error("the answer and its slider scroll away")
	}
	var before, after float64
	p.eval(`scrollY`, &before)
	p.eval(`document.querySelector(".columns .tokens").scrollTop = 0`, nil)
	p.eval(`(() => { const c = document.querySelector(".layered canvas"); const r = c.getBoundingClientRect();
		for (const kind of ["pointerdown", "pointerup"]) c.dispatchEvent(new PointerEvent(kind, {bubbles: true,
			clientX: r.x + r.width * 0.7, clientY: r.y + 4, pointerId: 1})); })()`, nil)
	p.forgive("setPointerCapture") // the test sends no pointer event before it
	p.eval(`scrollY`, &after)
	p.wait(`document.querySelector(".columns .tokens").scrollTop > 500`)
	if before != after {
		t.Errorf("a click on the picture moved the window from %.0f to %.0f", before, after)
	}
	p.eval(`document.querySelector(".columns .tokens").scrollTop = 0`, nil)
	p.press("Play")
	p.wait(`document.querySelector(".columns .tokens").scrollTop > 100`)
	p.press("Pause")
	// The union of two layers has more positions than one of them.
	never := func() (n int) {
		t.Helper()
		_, rest, _ := strings.Cut(p.text(".summary"), "only layer 0 at ")
		if rest == "" {
			rest = p.text(".summary")
		}
		for _, sentence := range strings.Split(rest, ". ") {
			if strings.Contains(sentence, "were never looked at") {
				fmt.Sscanf(strings.ReplaceAll(sentence, ",", ""), "%d of", &n)
			}
		}
		return n
	}
	p.set(2, "4")
	one := never()
	p.set(3, "0")
	two := never()
	got := p.text(".summary")
	if !strings.Contains(got, "never looked at by layers 4 and 0") || two == 0 || two >= one {
		t.Errorf("%d never looked at by layer 4 and %d by both: %q", one, two, got)
	}
	if got := p.text("p:has(+ .best)"); !strings.Contains(got, "layers 4 and 0") {
		t.Errorf("looked at most: %q", got)
	}
}

// shortText checks that the page explains why layers attend to all tokens of a short chat.
func (w *world) shortText(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.querySelector(".empty")?.innerText.includes("finds facts in long texts")`)
	p.press("What are you called?")
	p.wait(`document.querySelector(".message .stats")`)
	p.press("What did it look at?")
	p.wait(`document.querySelector(".summary")?.innerText.includes("texts of up to 256 tokens are read whole")`)
	if got := p.text(".choices"); !strings.Contains(got, "every token was read") {
		t.Errorf("beside the switch for scores: %q", got)
	}
}

// exampleInChat asks the example question that the empty chat offers, and checks that the model finds the fact and that
// the conversation is shown after a reload.
func (w *world) exampleInChat(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.press("What is the locker number of Nora? (with a server's log of 160 lines)")
	p.wait(`document.querySelector(".message .stats")`)
	var got string
	if p.eval(lastAnswer, &got); !strings.Contains(got, "598") {
		t.Errorf("the answer is %q", got)
	}
	p.press("System prompt and parameters")
	p.parameter("Temperature", "0")
	p.parameter("System prompt", "Be brief.")
	if got := p.text(".options summary"); !strings.HasSuffix(got, ": a system prompt, temperature 0") {
		t.Errorf("the closed options say %q", got)
	}
	p.reload()
	p.wait(`document.readyState === "complete" && document.querySelectorAll(".message").length === 2`)
	// Enter also sends an edited message.
	p.press("Edit")
	p.wait(`document.activeElement.ariaLabel === "Edit the message"`)
	p.eval(`document.activeElement.select()`, nil)
	p.enter("What is the locker number of Rosa?")
	p.key("Enter", 0)
	p.wait(lastAnswer + `.includes("853") && document.querySelector(".stats")`)
}

// keyLater closes the dialog that asks for the API key and enters the key later.
func (w *world) keyLater(t *testing.T) {
	keys, err := server.ReadKeys(strings.NewReader("k-right"))
	if err != nil {
		t.Fatal(err)
	}
	url := listen(t, openServer(t, sparrow.Config{}, server.Options{Keys: keys}))
	give := func(p *tab) {
		t.Helper()
		p.wait(`document.getElementById("key").open`)
		p.enter("k-right")
		p.key("Enter", 0)
		p.wait(`!document.getElementById("key").open && document.getElementById("model").textContent &&
			document.getElementById("trouble").hidden`)
	}
	p := w.open(t, url+"#chat", desktop)
	p.wait(`document.getElementById("key").open`)
	p.key("Escape", 0)
	p.wait(`document.getElementById("trouble").offsetParent`)
	p.say("What are you called?")
	give(p)
	p.wait(lastAnswer + `.includes("Sparrow") && document.querySelector(".stats")`)
	p.press("Forget key")
	p.wait(`document.getElementById("trouble").innerText.includes("was removed")`)
	var kept bool
	if p.eval(`[localStorage, sessionStorage].some((s) => Object.values(s).includes("k-right"))`, &kept); kept {
		t.Error("a forgotten key is still stored")
	}
	p.press("Enter key")
	give(p)
	plans := w.open(t, url+"#plans", desktop)
	for range 2 { // the page requests the model's name and the plans at once, and the form causes the second dialog
		plans.wait(`document.getElementById("key").open`)
		plans.press("Not now")
		plans.wait(`!document.getElementById("key").open`)
		plans.eval(`new Promise((r) => setTimeout(r, 300))`, nil)
		if plans.eval(`document.getElementById("key").open`, &kept); !kept {
			break
		}
	}
	plans.press("Enter key")
	give(plans)
	plans.wait(`document.querySelector(".numbers dd") && document.querySelector(".plans form button")`)
}

// nothingRecorded checks that the page shows an answer of a server that records nothing, and states why no line is
// highlighted.
func (w *world) nothingRecorded(t *testing.T) {
	p := w.open(t, listen(t, openServer(t, sparrow.Config{RecordBytes: -1}, server.Options{})), desktop)
	p.press("Ask")
	p.wait(`document.querySelector(".told")?.innerText.includes("No line is highlighted")`)
	if got := p.text(".answer-line"); !strings.Contains(got, "2479") {
		t.Errorf("the answer is %q", got)
	}
}

// serverGone checks that the page shows an error message, and no actions for an answer that does not exist.
func (w *world) serverGone(t *testing.T) {
	hs := httptest.NewServer(w.script)
	p := w.open(t, hs.URL+"/#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	hs.CloseClientConnections()
	hs.Close()
	p.say("What are you called?")
	p.wait(`document.querySelector(".message .fault:not([hidden])")?.innerText.includes("the server does not answer")`)
	p.wait(`document.querySelector(".message.assistant .foot")`)
	if got := p.text(".message.assistant .foot"); strings.Contains(got, "look at") || strings.HasPrefix(got, "Copy\n") {
		t.Errorf("a failed answer offers %q", got)
	}
}
