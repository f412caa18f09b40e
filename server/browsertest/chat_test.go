package browsertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ask types a question into the chat, sends it by Enter and waits for the end of the answer.
func (p *tab) ask(question string) {
	p.t.Helper()
	p.wait(`document.querySelector(".composer textarea[aria-label=Message]")`)
	var before int
	p.eval(`document.querySelectorAll(".message .stats").length`, &before)
	p.say(question)
	p.wait(fmt.Sprintf(`document.querySelectorAll(".message .stats").length > %d`, before))
}

// say sends a message and does not wait for the answer.
func (p *tab) say(text string) {
	p.t.Helper()
	p.eval(`document.querySelector("textarea[aria-label=Message]").focus()`, nil)
	p.enter(text)
	p.key("Enter", 0)
}

// parameter sets the option of the chat that has the given label.
func (p *tab) parameter(label, value string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => { const l = [...document.querySelectorAll(".options label")].find((l) => l.textContent === %q);
		const c = document.getElementById(l.htmlFor); c.value = %q;
		for (const e of ["input", "change"]) c.dispatchEvent(new Event(e, {bubbles: true})); })()`, label, value), nil)
}

// lastAnswer is a JavaScript expression for the text of the latest answer without its reasoning.
const lastAnswer = `([...document.querySelectorAll(".message.assistant")].at(-1)?.querySelector(".body > .prose")
	?.textContent ?? "")`

// chat checks that answers are streamed, that their speed is shown, and that the conversation is kept.
func (w *world) chat(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.ask("What are you called?")
	var got, stats string
	p.eval(lastAnswer, &got)
	if !strings.Contains(got, "Sparrow") {
		t.Errorf("the answer is %q", got)
	}
	if stats = p.text(".stats"); !strings.Contains(stats, "tokens/s") || !strings.Contains(stats, "first token after") {
		t.Errorf("below the answer: %q", stats)
	}
	p.reload()
	p.wait(`document.readyState === "complete" && document.querySelector(".conversations .open")`)
	p.click(".conversations .open")
	p.wait(`document.querySelectorAll(".message").length === 2`)
	p.click(".conversations .delete")
	p.wait(`!document.querySelector(".conversations li") && !document.querySelector(".message")`)

	// A system prompt and parameters are sent with the request.
	p.press("System prompt and parameters")
	p.parameter("System prompt", "Be brief.")
	p.parameter("Most tokens", "2")
	p.parameter("Temperature", "0")
	p.ask("What are you called?")
	if stats := p.text(".stats"); !strings.Contains(stats, "2 out") || !strings.Contains(stats, "cut at the limit") {
		t.Errorf("two tokens: %q", stats)
	}
	p.press("Copy as code")
	p.wait(`document.querySelector(".as pre").innerText.includes("Be brief.")`)

	// The page shows the server's error messages.
	p.parameter("Temperature", "-1")
	p.say("Again")
	p.wait(`document.querySelector(".message .fault:not([hidden])")?.innerText.includes("temperature")`)
}

// stopping ends an answer with the button and with Escape, and checks that the server detects the disconnection and
// that the received text stays.
func (w *world) stopping(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	for i, stop := range []func(){func() { p.press("Stop") }, func() { p.key("Escape", 0) }} {
		p.say(sayForever)
		p.wait(lastAnswer + `.length > 40`)
		stop()
		w.streamLeft(t)
		p.wait(fmt.Sprintf(`document.querySelectorAll(".stats").length === %d`, i+1))
		var got string
		p.eval(lastAnswer, &got)
		if len(got) < 40 || !strings.Contains(p.text(".message:last-child .stats"), "stopped") {
			t.Errorf("what is left: %q", got)
		}
		p.wait(`document.getElementById("status").textContent.startsWith("Stopped: ")`)
		p.wait(`[...document.querySelectorAll("button")].some((b) => b.innerText === "Send" && b.offsetParent)`)
	}
	// A page that is loaded again shows the part of the answer that had arrived.
	p.say(sayForever)
	p.eval(`setInterval(async () => {
		const r = indexedDB.open("sparrow " + new URL(".", location).pathname);
		await new Promise((done) => r.onsuccess = done);
		const all = r.result.transaction("conversations").objectStore("conversations").getAll();
		await new Promise((done) => all.onsuccess = done);
		window.kept = all.result.some((c) => c.messages.length === 6 && c.messages[5].content.length > 40);
		}, 100)`, nil)
	p.wait(`window.kept`)
	p.reload()
	p.wait(`document.querySelectorAll(".stats").length === 3`)
	if got := p.text(".message:last-child .stats"); !strings.Contains(got, "stopped") {
		t.Errorf("after the page was loaded again: %q", got)
	}
	w.streamLeft(t)
}

// editing changes a question, regenerates an answer, and checks the result.
func (w *world) editing(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.ask(sayThought)
	p.press("Edit")
	p.wait(`document.activeElement.ariaLabel === "Edit the message"`)
	p.eval(`document.activeElement.select()`, nil)
	p.enter("What are you called?")
	p.press("Send again")
	p.wait(lastAnswer + `.includes("Sparrow") && document.querySelector(".stats")`)
	var n int
	p.eval(`document.querySelectorAll(".message").length`, &n)
	if n != 2 {
		t.Errorf("%d messages, want the question and its new answer", n)
	}
	p.eval(`document.querySelector(".message.assistant").id = "old"`, nil)
	p.press("Retry")
	p.wait(`!document.getElementById("old") && ` + lastAnswer + `.includes("Sparrow") && document.querySelector(".stats")`)

	// A question that is changed during its answer gets one answer. A conversation that is deleted during an answer
	// stays deleted.
	p.say(sayForever)
	p.wait(lastAnswer + `.includes("word word")`)
	p.press("Edit") // edits the first question
	p.press("Send again")
	w.streamLeft(t)
	p.wait(lastAnswer + `.includes("Sparrow") && document.querySelectorAll(".message").length === 2`)
	p.wait(`document.querySelectorAll(".stats").length === 1`)
	p.say(sayForever)
	p.wait(lastAnswer + `.includes("word word")`)
	p.click(".conversations .delete")
	w.streamLeft(t)
	p.eval(`new Promise((r) => setTimeout(r, 300))`, nil)
	if p.eval(`document.querySelectorAll(".message, .conversations li").length`, &n); n != 0 {
		t.Errorf("%d messages and conversations are left", n)
	}
}

// streamLeft waits until the server has detected that the client of an endless answer disconnected.
func (w *world) streamLeft(t *testing.T) {
	t.Helper()
	select {
	case <-w.script.left:
	case <-time.After(answerTime):
		t.Fatal("the server still streams")
	}
}

// toolsAndReasoning checks that reasoning is folded and a tool call is shown, and that the user can send the result of
// the call.
func (w *world) toolsAndReasoning(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.ask(sayThought)
	var got string
	p.eval(lastAnswer, &got)
	if got != "Four." {
		t.Errorf("the answer is %q", got)
	}
	var folded bool
	p.eval(`!document.querySelector(".reasoning").open && document.querySelector(".reasoning").textContent.includes("First I count.")`,
		&folded)
	if !folded {
		t.Error("the reasoning is not folded")
	}
	p.press("New conversation")
	p.press("System prompt and parameters")
	p.press("Insert an example tool")
	p.ask("Who is user 5381?")
	p.wait(`document.querySelector(".call code")?.innerText === "get_user"`)
	if call := p.text(".call pre"); !strings.Contains(call, `"user_id": 5381`) {
		t.Errorf("the call is %q", call)
	}
	p.eval(`document.querySelector(".results textarea").focus()`, nil)
	p.enter(`{"name": "Nora"}`)
	p.key("Enter", 0)
	p.wait(`document.querySelectorAll(".stats").length === 2`)
	p.eval(lastAnswer, &got)
	if !strings.Contains(got, "Nora") {
		t.Errorf("after the result: %q", got)
	}
}

// files checks that dropped text files are put before the question, and that other files are refused.
func (w *world) files(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	drop := func(content string) {
		p.eval(fmt.Sprintf(`(() => { const d = new DataTransfer(); d.items.add(new File([%s], "notes.txt"));
			document.querySelector(".composer").dispatchEvent(new DragEvent("drop", {dataTransfer: d, bubbles: true, cancelable: true}));
			})()`, content), nil)
	}
	drop(`new Uint8Array([0, 255, 1])`)
	p.wait(`document.querySelector(".attached .fault")?.innerText.includes("not a text")`)
	drop(`"[07:15:59] queue length is 45\n[16:51:56] The access code of Wanda is 2479.\n[08:01:00] retry 1 of task 6958\n"`)
	p.wait(`document.querySelector(".chip")`)
	p.ask("What is the access code of Wanda?")
	var got string
	p.eval(lastAnswer, &got)
	if !strings.Contains(got, "2479") {
		t.Errorf("the answer is %q", got)
	}
	if shown := p.text(".message.user"); !strings.Contains(shown, "notes.txt") || strings.Contains(shown, "retry 1") {
		t.Errorf("the message shows %q", shown)
	}
}

// code runs the programs of the "copy as" menu, for a question with characters that need quoting.
func (w *world) code(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.press("System prompt and parameters")
	p.parameter("Temperature", "0")
	p.ask("What's your name? \"$HOME\" `id` \\ 'x'")
	var answer string
	p.eval(lastAnswer, &answer)
	p.press("Copy as code")
	read := func(language string) string {
		p.eval(fmt.Sprintf(`(() => { const s = document.querySelector(".as select"); s.value = %q;
			s.dispatchEvent(new Event("change")); })()`, language), nil)
		var out string
		p.eval(`document.querySelector(".as code").textContent`, &out)
		return out
	}
	dir := t.TempDir()
	for _, c := range []struct {
		language, file string
		run            []string
	}{
		{"curl", "ask.sh", []string{"sh", "ask.sh"}},
		{"Go", "ask.go", []string{"go", "run", "ask.go"}},
		// OpenAI's client may not be installed; the program must at least be valid.
		{"Python", "ask.py", []string{"python3", "-c",
			"import ast; print(ast.dump(ast.parse(open('ask.py').read())))"}},
	} {
		text := read(c.language)
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.language == "curl" && !found(t, "curl") || c.language == "Python" && !found(t, "python3") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), c.run[0], c.run[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", c.language, err, out, text)
		}
		want := answer
		if c.language == "Python" {
			want = "\"$HOME\" `id`"
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("%s printed %.900q, want %q", c.language, out, want)
		}
	}
}

func found(t *testing.T, program string) bool {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Logf("skipped: %v", err)
		return false
	}
	return true
}

// hostileAnswer checks that a hostile answer is shown completely as text, and that the page still works.
func (w *world) hostileAnswer(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.frames()
	p.ask(sayHostile)
	f := p.framesEnd()
	t.Logf("frames while %d MiB arrive in one line: %s", hostileLine>>20, f)
	var shown string
	p.eval(`document.querySelector(".message.assistant .prose + .calls").previousSibling.textContent`, &shown)
	for _, want := range []string{"<script>window.harmed = 1</script>", "<img src=x onerror=", "<style>body",
		"<iframe src=", "␀␇␛[31mred", "⟨U+202E⟩evil⟨U+202C⟩ ⟨U+FEFF⟩ end", "the end"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	if len(shown) < hostileLine {
		t.Errorf("%d bytes are shown of more than %d", len(shown), hostileLine)
	}
	var harm struct {
		Harmed   bool
		Elements int
		Visible  bool
	}
	p.eval(`({harmed: "harmed" in window, visible: getComputedStyle(document.body).display !== "none",
		elements: document.querySelectorAll(".message script, .message img, .message style, .message iframe, .message a").length})`, &harm)
	if harm.Harmed || harm.Elements > 0 || !harm.Visible {
		t.Errorf("the answer was more than text: %+v", harm)
	}
	p.ask(sayThought)
	p.reload()
	p.wait(`document.readyState === "complete" && document.querySelector(".conversations .open")`)
	if f.worst > 4000 { // the limit is for a busy machine; an idle one takes a tenth of it
		t.Errorf("the page stood still for %.0f ms", f.worst)
	}
}

// keyboard uses the page without a mouse.
func (w *world) keyboard(t *testing.T) {
	p := w.open(t, w.url, desktop)
	p.wait(`document.getElementById("model").textContent`)
	reach := func(name string) {
		t.Helper()
		for range 60 {
			if p.focused() == name {
				return
			}
			p.key("Tab", 0)
		}
		t.Fatalf("Tab does not reach %q", name)
	}
	p.key("Tab", 0)
	if got := p.focused(); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	reach("Ask")
	p.key("Enter", 0)
	p.wait(`document.querySelector(".lit")`)
	if got := p.focused(); got != "Ask again" {
		t.Errorf("after the answer the focus is on %q", got)
	}
	reach("Show it token by token")
	p.key("Enter", 0)
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	reach("range")
	before := p.text(".which")
	p.key("ArrowRight", 0)
	p.wait(fmt.Sprintf(`document.querySelector(".which").innerText !== %q`, before))
	p.eval(`document.querySelector(".explorer form textarea").focus()`, nil)
	reach("Record")
	p.key("Enter", 0)
	p.wait(`document.activeElement.type === "range"`)
	p.eval(`document.querySelector("a[data-view=chat]").focus()`, nil)
	p.key("Enter", 0)
	p.wait(`document.activeElement.ariaLabel === "Message"`)
	p.enter("first line")
	p.key("Enter", 8)
	p.enter("second line")
	var value string
	p.eval(`document.activeElement.value`, &value)
	if value != "first line\nsecond line" {
		t.Errorf("the message is %q", value)
	}
}
