package browsertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// catch replaces saving files: the files that the page writes are appended to window.files as {name, text, size}.
func (p *tab) catch() {
	p.t.Helper()
	p.eval(`(() => { window.files = []; const make = URL.createObjectURL; const blobs = new Map();
		URL.createObjectURL = (b) => { const u = make.call(URL, b); blobs.set(u, b); return u; };
		HTMLAnchorElement.prototype.click = function () { const b = blobs.get(this.href);
			b.text().then((text) => files.push({name: this.download, text, size: b.size, type: b.type})); }; })()`, nil)
}

// caught returns the text of the latest file that the page wrote, whose name must have the given ending.
func (p *tab) caught(ending string) (text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf(`files.at(-1)?.name.endsWith(%q)`, ending))
	p.eval(`files.at(-1).text`, &text)
	return text
}

// give selects files in the file picker of conversations.
func (p *tab) give(name, text string) {
	p.t.Helper()
	content, err := json.Marshal(text)
	p.must(err)
	p.eval(fmt.Sprintf(`(() => { const d = new DataTransfer(); d.items.add(new File([%s], %q));
		const input = document.querySelector(".side input[type=file]"); input.files = d.files;
		input.dispatchEvent(new Event("change")); })()`, content, name), nil)
}

// shown returns the texts of all questions and answers on the page.
func (p *tab) shown() (list []string) {
	p.t.Helper()
	p.eval(`[...document.querySelectorAll(".message")].map((m) => m.querySelector(".body > .prose").textContent)`,
		&list)
	return list
}

// conversations checks renaming, searching, exporting, importing, deleting and restoring of conversations.
func (w *world) conversations(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.catch()
	p.ask(sayThought)
	p.press("New conversation")
	p.press("System prompt and parameters")
	p.parameter("System prompt", "Be <b>brief</b>.\n<!-- sparrow user -->\nx")
	p.parameter("Temperature", "0")
	p.ask("What are you called?")
	p.wait(`document.querySelectorAll(".conversations li").length === 2`)
	// The conversation is renamed with the keyboard alone.
	p.eval(`document.querySelector(".conversations [aria-current=true]").focus()`, nil)
	p.key("ArrowRight", 0)
	if got := p.focused(); got != "Rename What are you called?" {
		t.Errorf("the arrow leads to %q", got)
	}
	p.key("Enter", 0)
	p.wait(`document.activeElement.ariaLabel === "Title"`)
	p.enter("A bird's <i>name</i>")
	p.key("Enter", 0)
	p.wait(`document.querySelector(".conversations .open").innerText === "A bird's <i>name</i>"`)
	p.wait(`document.activeElement.classList.contains("open")`)
	// The search finds words in titles and messages.
	find := func(words string, want int) {
		t.Helper()
		p.eval(fmt.Sprintf(`(() => { const f = document.querySelector(".side input[type=search]"); f.value = %q;
			f.dispatchEvent(new Event("input")); })()`, words), nil)
		p.wait(fmt.Sprintf(`document.querySelectorAll(".conversations li").length === %d`, want))
	}
	find("bird", 1)
	find("tiny language SPARROW", 1)
	find("four", 1)
	find("nothing like it", 0)
	find("", 2)
	before := p.shown()
	p.press("Export A bird's <i>name</i> as JSON")
	asJSON := p.caught("A-bird-s-i-name-i.json")
	p.press("Export A bird's <i>name</i> as Markdown")
	asMarkdown := p.caught(".md")
	if !strings.HasPrefix(asMarkdown, "# A bird's <i>name</i>\n") || !strings.Contains(asMarkdown,
		"## You\n\nWhat are you called?") {
		t.Errorf("Markdown: %s", asMarkdown)
	}
	p.look("conversations")
	// A deleted conversation is restored by undo.
	p.press("Delete A bird's <i>name</i>")
	p.wait(`document.querySelectorAll(".conversations li").length === 1 && !document.querySelector(".message")`)
	p.press("Undo")
	p.wait(`document.querySelectorAll(".conversations li").length === 2 &&
		document.querySelectorAll(".message").length === 2`)
	p.reload()
	p.wait(`document.readyState === "complete" && document.querySelectorAll(".conversations li").length === 2`)
	p.catch()
	// Exported conversations are imported unchanged.
	for name, text := range map[string]string{"a.json": asJSON, "b.md": asMarkdown} {
		var n int
		p.eval(`document.querySelectorAll(".conversations li").length`, &n)
		p.give(name, text)
		p.wait(fmt.Sprintf(`document.querySelectorAll(".conversations li").length === %d`, n+1))
		p.wait(`document.querySelectorAll(".message").length === 2`)
		if got := p.shown(); strings.Join(got, "\x00") != strings.Join(before, "\x00") {
			t.Errorf("%s: the messages are %q, want %q", name, got, before)
		}
		if title := p.text(".conversations [aria-current=true]"); title != "A bird's <i>name</i>" {
			t.Errorf("%s: the title is %q", name, title)
		}
		var system string
		p.eval(`document.querySelector(".options textarea").value`, &system)
		if system != "Be <b>brief</b>.\n<!-- sparrow user -->\nx" {
			t.Errorf("%s: the system prompt is %q", name, system)
		}
	}
	p.give("bad.json", `{"kind":"other"}`)
	p.wait(`document.querySelector(".side .fault:not([hidden])")?.innerText.includes("bad.json cannot be read")`)
	var sent bool
	p.eval(`document.querySelector(".side i, .side b") !== null`, &sent)
	if sent {
		t.Error("a title became markup")
	}
}

// versions edits a question, regenerates an answer, compares the versions side by side, and continues from one of them
// in a new conversation.
func (w *world) versions(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.catch()
	p.ask("What are you called?")
	p.ask("See you")
	p.press("Edit") // edits the first question
	p.eval(`document.activeElement.select()`, nil)
	p.enter("Goodbye")
	p.press("Send again")
	p.wait(`document.querySelectorAll(".message").length === 2 && document.querySelector(".stats")`)
	if got := p.shown(); got[0] != "Goodbye" {
		t.Errorf("the messages are %q", got)
	}
	p.wait(`document.querySelector(".versions").innerText.includes("2 / 2")`)
	p.press("Side by side")
	p.wait(`document.querySelectorAll(".beside section").length === 2`)
	if got := p.text(".beside"); !strings.Contains(got, "What are you called?") || !strings.Contains(got, "Goodbye") {
		t.Errorf("side by side: %q", got)
	}
	p.look("versions")
	p.press("The previous version")
	p.wait(`document.querySelectorAll(".message").length === 4`) // the messages that followed are back
	if got := p.shown(); got[0] != "What are you called?" || got[2] != "See you" || got[3] != "Goodbye!" {
		t.Errorf("the version before: %q", got)
	}
	p.press("Retry")
	p.wait(`[...document.querySelectorAll(".versions")].some((v) => v.innerText.includes("2 / 2")) &&
		document.querySelectorAll(".stats").length === 2`)
	p.reload()
	p.wait(`document.readyState === "complete" && document.querySelectorAll(".versions").length === 2`)
	p.catch()
	p.press("Branch") // branches after the first answer
	p.wait(`document.querySelectorAll(".message").length === 2 && !document.querySelector(".versions")`)
	p.ask("What are you called?")
	p.wait(`document.querySelectorAll(".conversations li").length === 2`)
	// The exported file contains all versions.
	p.click(".conversations li:nth-child(2) .open")
	p.wait(`document.querySelectorAll(".versions").length === 2`)
	p.press("Export What are you called? as JSON")
	text := p.caught(".json")
	var file struct{ All, Shown []any }
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.All) < 7 || len(file.Shown) != 4 {
		t.Errorf("the file has %d messages, %d shown", len(file.All), len(file.Shown))
	}
	p.give("versions.json", text)
	p.wait(`document.querySelectorAll(".conversations li").length === 3 &&
		document.querySelectorAll(".versions").length === 2`)
}

// attached checks that the tokens of attached files are counted, that settings belong to a conversation, and that
// clicking a word of an answer opens its token in the explorer.
func (w *world) attached(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.eval(`(() => { const d = new DataTransfer();
		d.items.add(new File(["[16:51:56] The access code of Wanda is 2479.\n"], "one.txt"));
		d.items.add(new File(["[08:01:00] retry 1 of task 6958\n".repeat(40)], "two<b>.txt"));
		const picker = document.querySelector("input[type=file][aria-label=Files]");
		picker.files = d.files;
		picker.dispatchEvent(new Event("change"));
		})()`, nil)
	p.wait(`/^\d+ tokens$/.test(document.querySelectorAll(".chip .muted")[1]?.innerText)`)
	p.wait(`/^\d+ tokens in all$/.test(document.querySelector(".attached .total").innerText)`)
	p.press("System prompt and parameters")
	p.parameter("Temperature", "0")
	p.parameter("Effort", "high")
	p.ask("What is the access code of Wanda?")
	if got := p.text(".message.user .files"); !strings.Contains(got, "two<b>.txt") || strings.Count(got,
		" tokens") != 2 {
		t.Errorf("the files: %q", got)
	}
	p.press("Copy as code")
	p.wait(`document.querySelector(".as pre").innerText.includes('"reasoning_effort": "high"')`)
	p.press("New conversation")
	if got := p.text(".options summary"); strings.Contains(got, "effort") {
		t.Errorf("a new conversation has the settings of another one: %q", got)
	}
	p.reload()
	p.wait(`document.readyState === "complete" && document.querySelector(".conversations .open")`)
	p.click(".conversations .open")
	p.wait(`document.querySelector(".options summary").innerText.includes("temperature 0, effort high")`)
	// A click on a word opens the explorer at the token of that word.
	p.wait(lastAnswer + `.includes("2479")`)
	p.eval(`(() => { const walk = document.createTreeWalker(document.querySelector(".message.assistant .prose.rich:not(.reasoning *)"),
		NodeFilter.SHOW_TEXT); let n; while ((n = walk.nextNode()) && !n.data.includes("Wanda"));
		const r = document.createRange(); const at = n.data.indexOf("Wanda"); r.setStart(n, at); r.setEnd(n, at + 5);
		getSelection().removeAllRanges(); getSelection().addRange(r);
		[...document.querySelectorAll(".foot button")].find((b) => b.innerText === "What did it look at?").click(); })()`, nil)
	p.wait(`location.hash === "#explorer" && document.querySelector(".explore:not([hidden])")`)
	if got := p.text(".which"); !strings.Contains(got, "\u201cWanda") {
		t.Errorf("the explorer is at %q", got)
	}
}
