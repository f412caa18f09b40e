package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The script streams these answers: one with all of Markdown, and one of 20,000 tokens.
const (
	sayMarkdown  = "script:markdown"
	sayLongReply = "script:long reply"
	sayReading   = "script:reading"
)

const longReply = 20_000 // tokens

const markdownAnswer = "# A heading\n\nSome **bold**, *slanted*, ~~struck~~ and `code` text with a " +
	"[link](https://example.org/a?b=c) and https://example.com/bare.\n\n" +
	"1. first\n2. second\n   - inner\n   - [x] done\n\n> a quote\n> of two lines\n\n" +
	"| name | price |\n|:--|--:|\n| apple | 3 |\n| `a|b` | **4** |\n\n" +
	"```go\nfunc main() { // starts\n\tfmt.Println(\"hi\", 42)\n}\n```\n\n" +
	"The sum is $\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}$, it costs $5 and $6.\n\n" +
	"$$\n\\sqrt{x^2 + \\alpha}\n$$\n\n---\nThe end."

// sendMarkdown streams an answer in small pieces that split its marks.
func sendMarkdown(s stream) {
	for rest := []rune(markdownAnswer); len(rest) > 0; {
		n := min(3, len(rest))
		s.delta(map[string]any{"content": string(rest[:n])})
		rest = rest[n:]
	}
	s.end(200)
}

// sendLongReply streams paragraphs, lists, a table and code, as fast as the connection allows.
func sendLongReply(s stream, r *http.Request) {
	for i := range longReply {
		piece := fmt.Sprintf(" word%d", i%7)
		switch {
		case i%997 == 996:
			piece = "\n\n```python\nfor i in range(3):\n    print(i)\n```\n\n"
		case i%301 == 300:
			piece = "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
		case i%60 == 59:
			piece = ".\n\n"
		case i%150 == 100:
			piece = "\n- an item"
		}
		s.delta(map[string]any{"content": piece})
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if r.Context().Err() != nil {
			return
		}
	}
	s.delta(map[string]any{"content": "\n\nThe very end."})
	s.end(longReply)
}

// atEnd reports whether the end of the conversation is visible.
const atEnd = `(() => { const t = document.querySelector(".thread");
	return t.scrollHeight - t.scrollTop - t.clientHeight < 30; })()`

// longAnswer shows an answer of 20,000 tokens: the page follows it, stays where the reader scrolls to, and returns to
// the end.
func (w *world) longAnswer(t *testing.T) {
	for _, s := range []screen{desktop, {390, 844, true}} {
		p := w.open(t, w.url+"#chat", s)
		p.wait(`document.getElementById("model").textContent`)
		p.frames()
		p.say(sayLongReply)
		p.wait(lastAnswer + `.length > 20000`)
		for range 5 {
			p.wait(atEnd) // true at any time, except in the frame in which text was added
		}
		// After the reader scrolls back, the page no longer scrolls by itself.
		p.eval(`(() => { const t = document.querySelector(".thread"); t.scrollTop -= 3000; })()`, nil)
		p.wait(`!document.querySelector(".to-end").hidden`)
		var before, after float64
		var length, later int
		p.eval(`document.querySelector(".thread").scrollTop`, &before)
		p.eval(lastAnswer+`.length`, &length)
		p.wait(fmt.Sprintf(lastAnswer+`.length > %d || document.querySelector(".stats")`, length+5000))
		p.eval(`document.querySelector(".thread").scrollTop`, &after)
		if before != after {
			t.Errorf("%d wide: the text that is read moved from %v to %v", s.width, before, after)
		}
		p.wait(`document.querySelector(".stats")`)
		p.eval(`document.querySelector(".thread").scrollTop`, &after)
		if before != after {
			t.Errorf("%d wide: at the end of the answer the view jumped from %v to %v", s.width, before, after)
		}
		f := p.framesEnd()
		t.Logf("%d wide: frames while %d tokens arrive: %s", s.width, longReply, f)
		p.press("Go to the end")
		p.wait(atEnd + ` && document.querySelector(".to-end").hidden`)
		if p.eval(lastAnswer+`.length`, &later); later < 100_000 || !strings.HasSuffix(p.lastParagraph(),
			"The very end.") {
			t.Errorf("%d characters, the last paragraph is %q", later, p.lastParagraph())
		}
		// After the next message is sent, it is visible, and so is the end of the stopped answer.
		p.say(sayForever)
		p.wait(lastAnswer + `.includes("word word")`)
		p.wait(atEnd)
		p.press("Stop")
		w.streamLeft(t)
		p.wait(`document.querySelectorAll(".stats").length === 2`)
		p.wait(atEnd)
		// A conversation that is opened again is scrolled to its end.
		p.reload()
		p.wait(`document.readyState === "complete" && document.querySelectorAll(".message").length === 4`)
		p.wait(atEnd)
	}
}

// sendReading streams the progress of a prompt, up to 3,000 of 10,000 tokens, until the client disconnects.
func sendReading(s stream, r *http.Request) {
	for i := 0; r.Context().Err() == nil; i = min(i+1, 2) {
		s.send(map[string]any{"choices": []any{}, "prompt_progress": map[string]any{"total": 10000, "cache": 1000,
			"processed": 1000 + 1000*i, "time_ms": 2000 * i}})
		time.Sleep(50 * time.Millisecond)
	}
}

// reading checks that the page shows how much of a prompt has been computed, with a button that stops the request.
func (w *world) reading(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.say(sayReading)
	p.wait(`document.querySelector(".message .reading").innerText.includes(
		"Reading the prompt: 3,000 of 10,000 tokens, about 14 s left")`)
	p.wait(`document.querySelector(".message progress").value === 0.3`)
	p.look("reading")
	p.press("Stop")
	w.streamLeft(t)
	p.wait(`document.querySelector(".stats")?.innerText.includes("stopped") && !document.querySelector(".message progress").offsetParent`)
	// The start view shows the progress too. Stopping there is not reported as an error.
	p.eval(`location.hash = "start"`, nil)
	p.wait(`document.querySelector(".ask-card input")`)
	p.eval(`(() => { document.querySelector(".ask-card input").value = "script:reading"; })()`, nil)
	p.press("Ask")
	p.wait(`document.querySelector(".ask-card .reading").innerText.includes("of 10,000 tokens")`)
	p.press("Stop")
	w.streamLeft(t)
	p.wait(`!document.querySelector(".ask-card .reading").offsetParent && document.querySelector(".ask-card .fault").hidden`)
	p.wait(`[...document.querySelectorAll(".ask-card button")].some((b) => b.innerText === "Ask again")`)
}

func (p *tab) lastParagraph() string {
	p.t.Helper()
	var s string
	p.eval(`[...document.querySelectorAll(".message.assistant .paragraph")].at(-1)?.textContent ?? ""`, &s)
	return s
}

// markdown checks that an answer in Markdown is rendered while it arrives in pieces.
func (w *world) markdown(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	// A complete block must not be created again, because that would flicker and lose the selection in the block.
	p.eval(`(() => { window.removed = 0; new MutationObserver((list) => { for (const m of list) for (const n of m.removedNodes)
		if (m.target.classList?.contains("rich") && n.nextSibling) removed++; })
		.observe(document.querySelector(".thread"), {childList: true, subtree: true}); })()`, nil)
	p.ask(sayMarkdown)
	for selector, want := range map[string]string{
		".rich .level1":                  "A heading",
		".rich strong":                   "bold",
		".rich em":                       "slanted",
		".rich del":                      "struck",
		".rich p code":                   "code",
		".rich ol > li:nth-child(2) li":  "inner",
		".rich blockquote":               "a quote\nof two lines",
		".rich thead th.right":           "price",
		".rich tbody td":                 "apple",
		".rich tbody tr:last-child code": "a|b",
		".listing .keyword":              "func",
		".listing .string":               "\"hi\"",
		".listing .number":               "42",
		".listing .comment":              "// starts",
		".bar-of-code span":              "go",
	} {
		if got := strings.TrimSpace(p.text(selector)); got != want {
			t.Errorf("%s shows %q, want %q", selector, got, want)
		}
	}
	var links []string
	p.eval(`[...document.querySelectorAll(".message a")].map((a) => a.href + " " + a.rel + " " + a.target)`, &links)
	safe := " noopener noreferrer nofollow _blank"
	if want := []string{"https://example.org/a?b=c" + safe,
		"https://example.com/bare" + safe}; !reflect.DeepEqual(links, want) {
		t.Errorf("links are %q", links)
	}
	var formulas struct {
		Inline, Block int
		Prices        bool
	}
	p.eval(`({inline: document.querySelectorAll(".rich math munderover, .rich math mfrac").length,
		block: document.querySelectorAll(".display math[display=block] msqrt").length,
		prices: document.querySelector(".thread").innerText.includes("it costs $5 and $6.")})`, &formulas)
	if formulas.Inline != 2 || formulas.Block != 1 || !formulas.Prices {
		t.Errorf("formulas: %+v", formulas)
	}
	var removed int
	if p.eval(`removed`, &removed); removed > 0 {
		t.Errorf("%d blocks were drawn again after they were complete", removed)
	}
	p.eval(`(() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; })()`, nil)
	p.press("Copy the code")
	p.wait(`document.getElementById("status").textContent === "Copied"`)
	var copied string
	p.eval(`copied`, &copied)
	if want := "func main() { // starts\n\tfmt.Println(\"hi\", 42)\n}"; copied != want {
		t.Errorf("copied %q", copied)
	}
	p.look("markdown")
}

// hostileMarkdown lists texts with which a model or a user could attack the page, and the parts that must appear as
// text.
var hostileMarkdown = []struct{ text, want string }{
	{"<script>window.harmed = 1</script>", "<script>window.harmed = 1</script>"},
	{"<img src=x onerror=window.harmed=1>", "<img src=x onerror"},
	{"[x](javascript:window.harmed=1)", "x (javascript:window.harmed=1)"},
	{"[x](JaVaScRiPt:alert(1))", "JaVaScRiPt"},
	{"[x](data:text/html,<script>alert(1)</script>)", "data:text/html"},
	{"[x](vbscript:x) [y](file:///etc/passwd) [z](//evil.example)", "file:///etc/passwd"},
	{"<javascript:alert(1)>", "<javascript:alert(1)>"},
	{"![x](https://evil.example/pixel.gif)", "x"},
	{"[![a](https://evil.example/a.png)](https://evil.example/b)", "a"},
	{"[a [b](https://b.example) c](https://c.example)", "b"},
	{"[x](https://evil.example\" onclick=\"window.harmed=1)", "onclick"},
	{"[\u202eevil](https://a.example)", "⟨U+202E⟩evil"},
	{"| a | b |\n|---|---|\n| <b>x</b> | \\| [y](javascript:1) |\n| | a | b | c | d |", "<b>x</b>"},
	{"> | a | b |\n> |---|---|\n> | > | a | |\n> > | c | d |\n> > |---|---|\n> > | 1 | 2 |", "1"},
	{"```html\n<script>window.harmed = 1</script>", "<script>window.harmed = 1</script>"},
	{"```\"><img src=x onerror=window.harmed=1>\nx", "x"},
	{"`unclosed <b>code", "`unclosed <b>code"},
	{"$\\href{javascript:window.harmed=1}{x}$ $x^{", "$x^{"},
	{"$$\\frac{1}{", "\\frac{1}{"},
	{"$\\text{<script>window.harmed=1</script>}_a$", "<script>"},
	{strings.Repeat("*", 3000) + "a", "a"},
	{strings.Repeat("[", 3000) + "a", "[[[["},
	{strings.Repeat("> ", 2000) + "a", "a"},
	{strings.Repeat("- ", 2000) + "a", "a"},
	{strings.Repeat("a**b_c", 2000), "a**b"},
	{strings.Repeat("`", 1000) + "x" + strings.Repeat("`", 999), "x"},
	{strings.Repeat("{", 3000), "{{{"},
	{"$" + strings.Repeat("{", 300) + "x^2$", "x"},
	{strings.Repeat("|a", 3000) + "|\n" + strings.Repeat("|-", 3000) + "|\n", "a"},
	{strings.Repeat("![a](b", 500), "![a](b"},
	{"\x00\x1b[31m \ufeff", "␀␛[31m ⟨U+FEFF⟩"},
}

// markdownOfFoes renders each hostile text as a whole and byte by byte, and checks the result.
func (w *world) markdownOfFoes(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	for _, c := range hostileMarkdown {
		text, err := json.Marshal(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Text, Grown string
			Bad         []string
			Same        bool
			Took        float64
		}
		p.eval(`(async () => { const { Rich } = await import("./page/markdown.js"); const text = `+string(text)+`;
			const whole = document.createElement("div"), grown = document.createElement("div");
			document.querySelector(".thread").replaceChildren(whole, grown);
			const begun = performance.now(); new Rich(whole).set(text, true); const took = performance.now() - begun;
			const r = new Rich(grown); const step = Math.max(1, Math.floor(text.length / 200));
			for (let i = step; i < text.length; i += step) r.set(text.slice(0, i)); r.set(text, true);
			await new Promise((done) => setTimeout(done, 20));
			const allowed = new Set("P SPAN A EM STRONG DEL CODE PRE DIV BUTTON UL OL LI BLOCKQUOTE TABLE THEAD TBODY TR TH TD HR H3 H4 H5 H6"
				.split(" "));
			const bad = [...whole.querySelectorAll("*"),
				...grown.querySelectorAll("*")].filter((n) => n.namespaceURI.endsWith("MathML")
				? [...n.attributes].some((a) => /^on|href|src/.test(a.name))
				: !allowed.has(n.tagName) || [...n.attributes].some((a) => /^on|^src|^style/.test(a.name))
					|| n.tagName === "A" && !/^(https?|mailto):/.test(n.href) || n.tagName === "A" && n.querySelector("a"));
			return {text: whole.textContent, grown: grown.textContent, same: whole.textContent === grown.textContent,
				took,
				bad: bad.map((n) => n.outerHTML.slice(0, 200))}; })()`, &got)
		if len(got.Bad) > 0 {
			t.Errorf("%.80q became %q", c.text, got.Bad)
		}
		if !got.Same {
			t.Errorf("%.80q: what grew shows %.200q, the whole shows %.200q", c.text, got.Grown, got.Text)
		}
		if !strings.Contains(got.Text, c.want) {
			t.Errorf("%.80q shows %.200q, without %q", c.text, got.Text, c.want)
		}
		t.Logf("%.40q: %.1f ms", c.text, got.Took)
	}
	var harmed bool
	if p.eval(`"harmed" in window`, &harmed); harmed {
		t.Error("a script ran")
	}
	if got := p.origins(); len(got) != 1 {
		t.Errorf("requests went to %v", got)
	}
}
