package browsertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// focused returns the name of the element with the focus: its label, its text, or its type; empty if no element has it.
func (p *tab) focused() (name string) {
	p.t.Helper()
	p.eval(`(() => { const e = document.activeElement; return e === document.body ? "" :
		(e.ariaLabel || e.innerText || e.type || e.tagName).trim(); })()`, &name)
	return name
}

// message returns the text in the message box.
func (p *tab) message() (text string) {
	p.t.Helper()
	p.eval(`document.querySelector("textarea[aria-label=Message]").value`, &text)
	return text
}

// explorerAtFirst opens the explorer when nothing is recorded, after an answer in the start view, and after an answer
// in the chat.
func (w *world) explorerAtFirst(t *testing.T) {
	p := w.open(t, w.url+"#explorer", desktop)
	p.wait(`document.getElementById("model").textContent`)
	shown := func() (line string) {
		t.Helper()
		p.wait(`document.querySelector(".explore:not([hidden])")`)
		p.eval(`[...document.querySelectorAll(".columns .needle")].map((e) => e.textContent).join("")`, &line)
		return line
	}
	if got := p.text(".explorer"); !strings.Contains(got, "Nothing is recorded yet") ||
		!strings.Contains(got, "press Record") || strings.Contains(got, "latest answer of the chat") {
		t.Errorf("at first it shows %q", got)
	}
	p.look("explorer-at-first")
	p.press("Send the example")
	if got := shown(); !strings.Contains(got, "The access code of Wanda is 2479.") {
		t.Errorf("the example opens at %q", got)
	}
	if got := p.text(".explorer"); strings.Contains(got, "Nothing is recorded") ||
		strings.Contains(got, "none recorded") {
		t.Errorf("after the example it shows %q", got)
	}
	p.wait(`document.activeElement.type === "range"`)
	// Stopping a recording keeps the previous one.
	p.eval(`document.querySelector(".explorer textarea").value = "`+sayForever+`"`, nil)
	p.press("Record")
	p.press("Stop")
	w.streamLeft(t)
	p.wait(`document.querySelector(".explore:not([hidden])") && document.activeElement.innerText === "Record"`)

	p = w.open(t, w.url, desktop)
	p.press("What is the locker number of Nora?")
	p.wait(`document.querySelector(".lit")`)
	p.eval(`location.hash = "explorer"`, nil)
	if got := shown(); !strings.Contains(got, "The locker number of Nora") {
		t.Errorf("after an answer of the start it opens at %q", got)
	}

	p = w.open(t, w.url+"#chat", desktop)
	p.ask("What are you called?")
	p.eval(`location.hash = "explorer"`, nil)
	p.reload()
	p.press("Record the latest answer of the chat")
	p.wait(`document.querySelector(".tokens.short")?.innerText.includes("Sparrow")`)
}

// drafts checks that unsent text is kept with its conversation.
func (w *world) drafts(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	want := func(when, text string) {
		t.Helper()
		if got := p.message(); got != text {
			t.Errorf("%s the message is %q, want %q", when, got, text)
		}
	}
	p.ask("What are you called?")
	want("after it was sent,", "")
	p.enter("for the first")
	p.eval(`(() => { const d = new DataTransfer(); d.items.add(new File(["text"], "first.txt"));
		const picker = document.querySelector("input[type=file][aria-label=Files]"); picker.files = d.files;
		picker.dispatchEvent(new Event("change")); })()`, nil)
	p.wait(`document.querySelector(".chip")`)
	p.press("New conversation")
	want("in a new conversation", "")
	var chips int
	if p.eval(`document.querySelectorAll(".chip").length`, &chips); chips > 0 {
		t.Error("a file goes to another conversation")
	}
	p.enter("one\ntwo\nthree\nfour\nfive\nsix")
	p.click(".conversations .open")
	want("back in the first", "for the first")
	p.wait(`document.querySelector(".chip")?.innerText.includes("first.txt")`)
	p.reload()
	p.wait(`document.querySelectorAll(".message").length === 2`)
	want("after a reload", "for the first")
	p.press("New conversation")
	want("in the new one, after a reload,", "one\ntwo\nthree\nfour\nfive\nsix")
	var high float64
	if p.eval(`document.querySelector("textarea[aria-label=Message]").clientHeight`, &high); high < 100 {
		t.Errorf("six lines are shown in %.0f pixels", high)
	}
	// Deleting a conversation removes its unsent text, and undoing it restores the text.
	p.eval(`document.querySelector(".conversations .delete").click()`, nil)
	p.press("Undo")
	p.wait(`document.querySelectorAll(".message").length === 2`)
	want("after the undo", "for the first")
	p.key("Enter", 0)
	p.wait(`document.querySelectorAll(".stats").length === 2`)
	p.reload()
	p.wait(`document.querySelectorAll(".message").length === 4`)
	want("after it was sent and a reload", "")
}

// focus checks that after each action the focus is on the element that a keyboard user needs next.
func (w *world) focus(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	want := func(after, name string) {
		t.Helper()
		p.wait(fmt.Sprintf(`[document.activeElement.ariaLabel, document.activeElement.innerText].includes(%q) || `+
			`(window.tries++, window.tries > 100)`, name))
		p.eval(`window.tries = 0`, nil)
		if got := p.focused(); got != name {
			t.Errorf("after %s the focus is on %q, want %q", after, got, name)
		}
	}
	p.eval(`window.tries = 0`, nil)
	on := func(name string) {
		t.Helper()
		p.wait(fmt.Sprintf(`[...document.querySelectorAll("button")].some((b) => b.offsetParent && !b.disabled &&
			(b.innerText === %q || b.ariaLabel === %q) && (b.focus(), true))`, name, name))
		p.key("Enter", 0)
	}
	p.eval(`document.querySelector("textarea[aria-label=Message]").focus()`, nil)
	p.enter(sayForever)
	on("Send")
	want("Send", "Stop")
	p.wait(lastAnswer + `.length > 40`)
	p.key("Enter", 0)
	w.streamLeft(t)
	p.wait(`document.querySelector(".stats")`)
	want("Stop", "Message")
	p.press("New conversation")
	p.ask("What are you called?")
	on("Retry")
	p.wait(`document.querySelector(".versions")`)
	want("another answer", "Message")
	for range 3 {
		p.ask("See you") // so that the thread is longer than the window
	}
	p.eval(`document.querySelector(".thread").scrollTop = 0`, nil)
	before := p.top(".versions")
	on("The previous version")
	p.wait(`document.querySelector(".versions").innerText.includes("1 / 2")`)
	want("going to the first version", "The next version")
	if after := p.top(".versions"); after != before {
		t.Errorf("the version before is shown at %.0f, the other one was at %.0f", after, before)
	}
	p.key("Enter", 0)
	p.wait(`document.querySelector(".versions").innerText.includes("2 / 2")`)
	want("going to the last version", "The previous version")
	on("Edit")
	want("Edit", "Edit the message")
	p.key("Escape", 0)
	want("Escape", "Edit")
	p.key("Enter", 0)
	on("Cancel")
	want("Cancel", "Edit")
	p.eval(`document.querySelector(".thread").scrollTop = 0`, nil)
	p.wait(`document.querySelector(".to-end:not([hidden])")`)
	on("Go to the end")
	want("going to the end", "Message")

	p = w.open(t, w.url+"#chat", phone)
	p.eval(`window.tries = 0`, nil)
	p.ask("What are you called?")
	on("Retry")
	p.wait(`document.querySelector(".versions")`)
	want("another answer on a phone", "Conversation") // on a phone the keyboard would cover the messages
}

// top returns the vertical position of an element in the window.
func (p *tab) top(selector string) (y float64) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`Math.round(document.querySelector(%q).getBoundingClientRect().top)`, selector), &y)
	return y
}

// listByKeys checks that arrow keys move through the list of conversations, and that the list is a single tab stop.
func (w *world) listByKeys(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	for i, q := range []string{"What are you called?", "See you", "Goodbye"} {
		p.press("New conversation")
		p.ask(q)
		p.wait(fmt.Sprintf(`document.querySelectorAll(".conversations li").length === %d`, i+1))
	}
	// Selecting a conversation moves no row of the list: otherwise a second click would hit a button that appeared
	// below the pointer.
	tops := func() (list string) {
		p.eval(`JSON.stringify([...document.querySelectorAll(".conversations .open")].map((x) => x.offsetTop))`, &list)
		return list
	}
	before := tops()
	for _, row := range []int{1, 0} {
		at := fmt.Sprintf(`document.querySelectorAll(".conversations .open")[%d]`, row)
		p.eval(at+`.click()`, nil)
		p.wait(at + `.ariaCurrent === "true"`)
		if got := tops(); got != before {
			t.Errorf("conversation %d is shown, and rows are at %s; they were at %s", row, got, before)
		}
	}
	want := func(key, name string) {
		t.Helper()
		p.key(key, 0)
		if got := p.focused(); got != name {
			t.Errorf("%s leads to %q, want %q", key, got, name)
		}
	}
	p.eval(`document.querySelector(".side input[type=search]").focus()`, nil)
	want("Tab", "Goodbye") // the conversation that is shown
	want("Tab", "Import")
	p.eval(`document.querySelector(".side input[type=search]").focus()`, nil)
	want("Tab", "Goodbye")
	want("ArrowDown", "See you")
	want("ArrowDown", "What are you called?")
	want("ArrowDown", "What are you called?") // the last conversation
	want("ArrowUp", "See you")
	want("ArrowRight", "Rename See you")
	want("ArrowRight", "Export See you as Markdown")
	want("ArrowRight", "Export See you as JSON")
	want("ArrowRight", "Delete See you")
	want("ArrowLeft", "Export See you as JSON")
	want("ArrowUp", "Goodbye")
	want("ArrowDown", "See you")
	// An answer that arrives meanwhile changes neither the focus nor a title that is being edited.
	want("F2", "Title")
	p.enter("Farewell")
	p.eval(`document.querySelector(".side input[type=search]").dispatchEvent(new Event("input"))`, nil)
	p.key("Enter", 0)
	p.wait(`document.activeElement.innerText === "Farewell"`)
	p.key("Delete", 0)
	p.wait(`document.querySelectorAll(".conversations li").length === 2`)
	p.wait(`document.activeElement.innerText === "What are you called?"`)
	p.key("Enter", 0)
	p.wait(`document.activeElement.ariaLabel === "Message" && ` + lastAnswer + `.includes("Sparrow")`)
}

// exportOfAll exports all conversations to one file and imports the missing ones from that file.
func (w *world) exportOfAll(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.catch()
	p.ask(sayThought)
	p.press("New conversation")
	p.ask("What are you called?")
	p.press("Retry")
	p.wait(`document.querySelector(".versions") && document.querySelector(".stats")`)
	p.wait(`document.querySelectorAll(".conversations li").length === 2`)
	p.press("Export all")
	text := p.caught(".json")
	p.give("all.json", text)
	p.wait(`document.querySelector(".note")?.innerText === "0 conversations read. 2 were here already."`)
	p.press("Delete " + sayThought)
	p.wait(`document.querySelectorAll(".conversations li").length === 1`)
	p.give("all.json", text)
	p.wait(`document.querySelector(".note")?.innerText === "1 conversation read. 1 was here already."`)
	p.wait(lastAnswer + ` === "Four."`)
	// A new tab without stored data stands for another browser.
	p = w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.give("all.json", text)
	p.wait(`document.querySelector(".note")?.innerText === "2 conversations read."`)
	p.wait(`document.querySelector(".versions")?.innerText.includes("2 / 2")`)
	var titles []string
	p.eval(`[...document.querySelectorAll(".conversations .open")].map((b) => b.innerText)`, &titles)
	if got := strings.Join(titles, ", "); got != "What are you called?, "+sayThought {
		t.Errorf("the conversations are %s", got)
	}
	p.fits("the list", ".side")
}

// otherExports imports conversations of Open WebUI and ChatGPT, and refuses other files.
func (w *world) otherExports(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	webUI := []any{map[string]any{"id": "x", "title": "A <b>web</b> chat", "updated_at": 1700000000,
		"chat": map[string]any{"history": map[string]any{"currentId": "d", "messages": map[string]any{
			"d": map[string]any{"id": "d", "parentId": "a", "role": "assistant", "content": "second answer"},
			"a": map[string]any{"id": "a", "parentId": nil, "role": "user", "content": "a question"},
			"c": map[string]any{"id": "c", "parentId": "a", "role": "assistant", "content": "first answer"},
			// Messages that are each other's parent are not reached from the root.
			"y": map[string]any{"id": "y", "parentId": "z", "role": "user", "content": "y"},
			"z": map[string]any{"id": "z", "parentId": "y", "role": "user", "content": "z"},
		}}}}}
	node := func(id, parent, role, kind string, parts ...any) map[string]any {
		return map[string]any{"id": id, "parent": parent, "message": map[string]any{
			"author": map[string]any{"role": role}, "content": map[string]any{"content_type": kind, "parts": parts}}}
	}
	gpt := []any{
		map[string]any{"title": "Nothing", "mapping": map[string]any{}},
		map[string]any{"title": "A talk", "update_time": 1600000000.5, "current_node": "e", "mapping": map[string]any{
			"root": map[string]any{"id": "root", "parent": nil, "message": nil},
			"s":    node("s", "root", "system", "text", "Be brief."),
			"b": node("b", "s", "user", "multimodal_text", map[string]any{"content_type": "image_asset_pointer"},
				"What is it?"),
			"t": node("t", "b", "assistant", "code", "search()"),
			"e": node("e", "t", "assistant", "text", "A bird."),
		}}}
	send := func(name string, v any) {
		t.Helper()
		text, err := json.Marshal(v)
		p.must(err)
		p.give(name, string(text))
	}
	send("webui.json", webUI)
	p.wait(`document.querySelectorAll(".message").length === 2`)
	if got := p.shown(); got[0] != "a question" || got[1] != "second answer" {
		t.Errorf("Open WebUI: %q", got)
	}
	p.wait(`document.querySelector(".versions")?.innerText.includes("2 / 2")`)
	send("conversations.json", gpt)
	p.wait(`document.querySelectorAll(".conversations li").length === 2 && document.querySelector(".message")`)
	if got := p.shown(); len(got) != 2 || got[0] != "[image_asset_pointer]\nWhat is it?" || got[1] != "A bird." {
		t.Errorf("ChatGPT: %q", got)
	}
	var system string
	p.eval(`document.querySelector(".options textarea").value`, &system)
	if system != "Be brief." {
		t.Errorf("ChatGPT: the system prompt is %q", system)
	}
	// Imported conversations are exported with all others and imported again.
	p.catch()
	p.press("Export all")
	all := p.caught(".json")
	p.press("Delete A talk")
	p.wait(`document.querySelectorAll(".conversations li").length === 1`)
	p.give("all.json", all)
	p.wait(`document.querySelectorAll(".conversations li").length === 2 && document.querySelector(".message")`)
	send("claude.json", []any{map[string]any{"uuid": "x", "name": "n", "chat_messages": []any{}}})
	p.wait(`document.querySelector(".side .fault:not([hidden])")?.innerText.includes(
		"claude.json cannot be read: want a file of this page")`)
	if got := p.text(".side .fault"); !strings.Contains(got, "Open WebUI or ChatGPT") ||
		!strings.Contains(got, "chat_messages") {
		t.Errorf("a file of another program: %q", got)
	}
	var n int
	if p.eval(`document.querySelectorAll(".conversations li").length`, &n); n != 2 {
		t.Errorf("%d conversations, want 2", n)
	}
}

// emptyChat checks that the empty chat fits the screen of a phone, less the bars of its browser.
func (w *world) emptyChat(t *testing.T) {
	p := w.open(t, w.url+"#chat", screen{width: 390, height: 664})
	p.wait(`document.querySelectorAll(".empty .question").length === 4`)
	p.look("empty")
	p.resize(screen{width: 390, height: 664})
	var cut float64
	p.eval(`(() => { const t = document.querySelector(".thread").getBoundingClientRect();
		const b = [...document.querySelectorAll(".empty > *")].map((e) => e.getBoundingClientRect());
		return Math.max(t.top - b[0].top, b.at(-1).bottom - t.bottom); })()`, &cut)
	if cut > 0 {
		t.Errorf("%.0f pixels of the empty chat are cut off", cut)
	}
	p.fits("the empty chat", ".thread")
}

// twoAnswers switches to another conversation while an answer arrives: the answer continues, and is shown on return.
func (w *world) twoAnswers(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.say(sayForever)
	p.wait(lastAnswer + `.length > 40`)
	p.press("New conversation")
	p.wait(`[...document.querySelectorAll("button")].some((b) => b.innerText === "Send" && b.offsetParent)`)
	p.ask("What are you called?")
	var before, after int
	p.eval(`document.querySelectorAll(".message").length`, &before)
	if before != 2 {
		t.Errorf("the second conversation has %d messages", before)
	}
	if got := p.text(".conversations li:nth-child(2)"); !strings.Contains(got, "answering") {
		t.Errorf("in the list the first conversation is %q", got)
	}
	p.click(".conversations li:nth-child(2) .open")
	p.wait(lastAnswer + `.length > 40 && document.querySelectorAll(".message").length === 2`)
	p.eval(lastAnswer+`.length`, &before)
	p.wait(fmt.Sprintf(lastAnswer+`.length > %d`, before+40))
	// Cancelling an edit keeps the arriving answer.
	p.press("Edit")
	p.press("Cancel")
	p.eval(lastAnswer+`.length`, &after)
	p.wait(fmt.Sprintf(lastAnswer+`.length > %d`, after+40))
	p.press("Stop")
	w.streamLeft(t)
	p.wait(`document.querySelector(".message:last-child .stats")?.innerText.includes("stopped")`)
	p.wait(`!document.querySelector(".answering")`)
	// An answer that ends while another conversation is shown is complete on return.
	p.press("Retry")
	p.wait(lastAnswer + `.length > 40`)
	p.click(".conversations li:nth-child(2) .open")
	p.wait(lastAnswer + `.includes("Sparrow")`)
	// Deletes the first conversation, whose answer is arriving.
	p.eval(`document.querySelector(".conversations .delete").click()`, nil)
	w.streamLeft(t)
	p.wait(`document.querySelectorAll(".conversations li").length === 1 && ` + lastAnswer + `.includes("Sparrow")`)
}

// foundWords checks that a conversation that is opened from a search is scrolled to the words that were found.
func (w *world) foundWords(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.ask("What are you called?")
	for range 6 {
		p.ask("Goodbye")
	}
	p.press("New conversation")
	p.ask(sayThought)
	p.eval(`(() => { const f = document.querySelector(".side input[type=search]"); f.value = "SPARROW";
		f.dispatchEvent(new Event("input")); })()`, nil)
	p.wait(`document.querySelectorAll(".conversations li").length === 1`)
	p.click(".conversations .open")
	p.wait(`CSS.highlights.get("found")?.size > 0`)
	p.wait(`(() => { const b = [...CSS.highlights.get("found")][0].getBoundingClientRect();
		const t = document.querySelector(".thread").getBoundingClientRect();
		return b.height > 0 && b.top >= t.top && b.bottom <= t.bottom; })()`)
	p.look("found")
}

// longCode checks that all lines of a code block are shown without a scrolling box, and that the bar of the block stays
// visible.
func (w *world) longCode(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.ask(sayCode)
	var hidden float64
	p.eval(`(() => { const c = document.querySelector(".listing .code"); return c.scrollHeight - c.clientHeight; })()`,
		&hidden)
	if hidden > 0 {
		t.Errorf("%.0f pixels of the code are hidden in its box", hidden)
	}
	p.eval(`document.querySelector(".thread").scrollTop -= 800`, nil)
	p.look("code")
	p.eval(`document.querySelector(".thread").scrollTop = document.querySelector(".thread").scrollHeight - 1500`, nil)
	if bar, thread := p.top(".bar-of-code"), p.top(".thread"); bar != thread {
		t.Errorf("in the middle of code its bar begins at %.0f, the thread at %.0f", bar, thread)
	}
}
