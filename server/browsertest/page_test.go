package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/server"
)

var (
	wanted = flag.Bool("browser", false, "open the page in Chromium")
	shots  = flag.String("shots", "", "folder for the pictures of the documentation")
	looks  = flag.String("looks", "", "folder for pictures of what the tests see, to be looked at")
)

// prefix is the path of a second address that serves the same page, as behind a proxy.
const prefix = "/models/sparrow"

// world holds what all tests of the page share: a browser, a server of the built-in model, and scripted answers that
// the model cannot generate.
type world struct {
	*browser
	url    string // ends with a slash
	script *scripted
	axe    string // source of axe-core, or empty if it cannot be installed
}

// TestPage runs a test for every part of the page in one browser.
func TestPage(t *testing.T) {
	if !*wanted {
		t.Skip("make browser opens the page in Chromium")
	}
	program, err := findChromium(t.Context())
	if err != nil {
		fmt.Printf("skipped: the browser tests: %v\n", err)
		t.SkipNow()
	}
	w := &world{browser: startBrowser(t, program)}
	if w.axe, err = findAxe(t.Context()); err != nil {
		fmt.Printf("skipped: accessibility by axe-core: %v\n", err)
	}
	w.script = &scripted{next: openServer(t, sparrow.Config{}, server.Options{}), left: make(chan struct{}, 4)}
	w.url = listen(t, w.script)
	if *shots != "" {
		w.pictures(t, *shots)
		return
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"first visit", w.firstVisit},
		{"chat", w.chat},
		{"stop", w.stopping},
		{"edit and retry", w.editing},
		{"tools and reasoning", w.toolsAndReasoning},
		{"files", w.files},
		{"code", w.code},
		{"modules", w.modules},
		{"explorer", w.explorer},
		{"explorer at first", w.explorerAtFirst},
		{"pooled keys", w.pooledKeys},
		{"candidates", w.candidates},
		{"sharing", w.sharing},
		{"long prompt", w.longPrompt},
		{"plans", w.plans},
		{"long answer", w.longAnswer},
		{"reading", w.reading},
		{"conversations", w.conversations},
		{"versions", w.versions},
		{"drafts", w.drafts},
		{"focus", w.focus},
		{"two answers at once", w.twoAnswers},
		{"found", w.foundWords},
		{"long code", w.longCode},
		{"list by keys", w.listByKeys},
		{"export of all", w.exportOfAll},
		{"other exports", w.otherExports},
		{"empty chat", w.emptyChat},
		{"attached", w.attached},
		{"markdown", w.markdown},
		{"hostile markdown", w.markdownOfFoes},
		{"hostile answer", w.hostileAnswer},
		{"keyboard", w.keyboard},
		{"key", w.keyAsked},
		{"key later", w.keyLater},
		{"widths", w.widths},
		{"own question", w.ownQuestion},
		{"in view", w.inView},
		{"short text", w.shortText},
		{"example in chat", w.exampleInChat},
		{"nothing recorded", w.nothingRecorded},
		{"server gone", w.serverGone},
		{"path prefix", w.pathPrefix},
		{"one origin and a policy", w.oneOrigin},
		{"accessibility", w.accessibility},
	} {
		t.Run(c.name, c.run)
	}
}

// openServer serves the built-in model.
func openServer(t *testing.T, c sparrow.Config, o server.Options) http.Handler {
	t.Helper()
	c.CacheTokens = 16384
	e, err := sparrow.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s, err := server.New(server.Adapt(e), o)
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// listen returns the address of a handler, with a slash at its end.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return hs.URL + "/"
}

// firstVisit asks the example question, and checks that the line with the answer is highlighted.
func (w *world) firstVisit(t *testing.T) {
	p := w.open(t, w.url, desktop)
	if !strings.Contains(p.text("h1"), "looks at") {
		t.Errorf("a first visit shows %q", p.text("h1"))
	}
	p.wait(`document.querySelector(".tokens").innerText.includes("queue length")`)
	begun := time.Now()
	p.press("Ask")
	p.wait(`document.querySelector(".lit")`)
	t.Logf("question to lit line: %v", time.Since(begun).Round(10*time.Millisecond))
	if got := p.text(".answer-line"); got != "The access code of Wanda is 2479." {
		t.Errorf("the answer is %q", got)
	}
	var lit string
	p.eval(`[...document.querySelectorAll(".lit")].map((e) => e.textContent).join("")`, &lit)
	if !strings.Contains(lit, "The access code of Wanda is 2479.") {
		t.Errorf("lit is %q", lit)
	}
	var inView bool
	p.eval(`(() => { const e = document.querySelector(".lit").getBoundingClientRect();
		const box = document.querySelector(".log .tokens").getBoundingClientRect();
		return e.top >= box.top && e.bottom <= box.bottom; })()`, &inView)
	if !inView {
		t.Error("the lit line is not in view")
	}
	if got := p.text(".told"); !strings.Contains(got, "gave its highest score to the ") {
		t.Errorf("told: %q", got)
	}
	if got := p.text(".told"); !strings.Contains(got, "each of 5 layers chose 256 of 3,99") {
		t.Errorf("told: %q", got)
	}
	p.press("Show it token by token")
	p.wait(`location.hash === "#explorer" && document.querySelector(".explore:not([hidden])")`)
}

// plans checks that the view of plans shows the steps that ran and the cache, and explains another batch.
func (w *world) plans(t *testing.T) {
	p := w.open(t, w.url+"#chat", desktop)
	p.wait(`document.getElementById("model").textContent`)
	p.ask("What are you called?")
	p.eval(`location.hash = "plans"`, nil)
	p.wait(`document.querySelector(".plans .tag")?.innerText.includes("\u2192")`)
	for _, want := range []string{"running", "What are you called?", "prefill", "256 pages of 64 tokens"} {
		if !strings.Contains(p.text(".plans"), want) {
			t.Errorf("%q is not shown in\n%s", want, p.text(".plans"))
		}
	}
	p.eval(`document.querySelector(".plans tbody [aria-expanded]").click()`, nil)
	p.wait(`document.querySelector("tr.details .reasons li")`)
	// The view updates itself: a request of another client appears without a click, and opened details stay open.
	var before, after float64
	steps := `Number(document.querySelector(".plans tr[data-step]").dataset.step)`
	p.eval(steps, &before)
	res, err := http.Post(w.url+"v1/completions", "application/json",
		strings.NewReader(`{"model":"sparrow-tiny","prompt":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	p.wait(fmt.Sprintf(`%s > %v`, steps, before))
	p.eval(steps, &after)
	p.wait(`document.querySelector("tr.details")`)
	p.wait(`document.querySelector(".plans form button")`)
	p.eval(`(() => { const all = [...document.querySelectorAll("form select")];
		["deepseek_v32", "sm100", "public", "fp8"].forEach((v, i) => { all[i].value = v; }); })()`, nil)
	p.press("Pause") // without a pause, the content above the form changes every second
	p.press("Explain")
	p.wait(`document.querySelector(".explained .segment")`)
	if got := p.text(".explained"); !strings.Contains(got, "sm100") || !strings.Contains(got, "kernel") {
		t.Errorf("explained:\n%s", got)
	}
	p.eval(`(() => { document.querySelector("form input").value = "nonsense"; })()`, nil)
	p.press("Explain")
	p.wait(`document.querySelector(".explained .fault")`)
	if got := p.text(".explained .fault"); !strings.Contains(got, "extend:LEN") {
		t.Errorf("a batch that cannot be read: %q", got)
	}
}

// pathPrefix checks that the page works below a path prefix, as behind a proxy.
func (w *world) pathPrefix(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, w.script))
	p := w.open(t, listen(t, mux)+strings.TrimPrefix(prefix, "/")+"/#chat", desktop)
	p.wait(`document.getElementById("model").textContent === "sparrow-tiny"`)
	p.ask("What are you called?")
	if got := p.text(".message.assistant .prose:not(.reasoning .prose)"); !strings.Contains(got, "Sparrow") {
		t.Errorf("the answer is %q", got)
	}
	for _, name := range []string{"explorer", "plans"} {
		p.eval(`location.hash = "`+name+`"`, nil)
		p.wait(`document.querySelector(".` + name + `")`)
	}
	p.wait(`document.querySelector(".numbers dd")`)
}

// keyAsked checks that the dialog for the key appears once if a server requires a key, and again after a wrong one.
func (w *world) keyAsked(t *testing.T) {
	keys, err := server.ReadKeys(strings.NewReader("k-right"))
	if err != nil {
		t.Fatal(err)
	}
	url := listen(t, openServer(t, sparrow.Config{}, server.Options{Keys: keys}))
	declined := w.open(t, url+"#plans", desktop)
	declined.wait(`document.getElementById("key").open`)
	declined.key("Escape", 0) // one Escape closes the dialog for all requests that the page sent at its start
	declined.wait(`document.querySelector(".plans .fault:not([hidden])")`)
	declined.wait(`document.getElementById("trouble").offsetParent && !document.getElementById("key").open`)
	declined.eval(`new Promise((r) => setTimeout(r, 1500))`, nil)
	var again bool
	if declined.eval(`document.getElementById("key").open`, &again); again {
		t.Error("the dialog comes back after it was closed")
	}
	p := w.open(t, url+"#chat", desktop)
	p.wait(`document.getElementById("key").open`)
	p.enter("k-wrong")
	p.key("Enter", 0)
	p.wait(`document.getElementById("key").open && document.getElementById("key-why").textContent.includes("does not accept this key")`)
	p.enter("k-right")
	p.key("Enter", 0)
	p.wait(`!document.getElementById("key").open && document.getElementById("model").textContent === "sparrow-tiny"`)
	p.ask("What are you called?")
	p.press("Copy as code")
	p.wait(`document.querySelector(".as pre").innerText.includes("$SPARROW_KEY")`)
	var kept bool
	p.eval(`Object.values(localStorage).includes("k-right")`, &kept)
	if kept {
		t.Error("the key was stored for later without being asked to")
	}
	if code := p.text(".as pre"); strings.Contains(code, "k-right") {
		t.Errorf("the key is in the code to copy:\n%s", code)
	}
}

// oneOrigin loads every view and checks that all requests go to the page's own origin and that the content security
// policy holds.
func (w *world) oneOrigin(t *testing.T) {
	p := w.open(t, w.url, desktop)
	for _, name := range []string{"start", "chat", "explorer", "plans"} {
		p.eval(`location.hash = "`+name+`"`, nil)
		p.wait(`document.body.dataset.view === "` + name + `"`)
	}
	p.wait(`document.querySelector(".numbers dd")`)
	if got := p.origins(); len(got) != 1 || got[strings.TrimSuffix(w.url, "/")] < 10 {
		t.Errorf("requests went to %v, want %s alone", got, w.url)
	}
	p.mu.Lock()
	policy := p.headers[w.url]["content-security-policy"]
	p.mu.Unlock()
	if policy == "" || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the policy is %q", policy)
	}
	// The browser blocks actions that the policy forbids.
	var ran bool
	p.eval(`new Promise((done) => { const s = document.createElement("style"); s.textContent = "body { color: red }";
		document.head.append(s); const ok = getComputedStyle(document.body).color === "rgb(255, 0, 0)"; s.remove(); done(ok); })`, &ran)
	if ran {
		t.Error("an inline style took effect")
	}
	p.eval(`(() => { try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); return true; }
		catch { return false; } })()`, &ran)
	if ran {
		t.Error("text became markup")
	}
	p.forgive("Refused", "violates", "TrustedHTML", "requires")
}

// accessibility runs axe-core on every view with light and dark colours, on a wide and a narrow screen.
func (w *world) accessibility(t *testing.T) {
	if w.axe == "" {
		t.Skip("axe-core is not to be had")
	}
	for _, s := range []screen{desktop, {390, 844, true}} {
		p := w.open(t, w.url, s)
		p.wait(`document.getElementById("model").textContent`)
		p.press("Ask")
		p.wait(`document.querySelector(".lit")`)
		w.axed(p, "start")
		p.press("Show it token by token")
		p.wait(`document.querySelector(".explore:not([hidden])")`)
		p.eval(`document.querySelector(".best button").click()`, nil)
		w.axed(p, "explorer")
		p.set(0, "never")
		p.axedIn(w, ".columns .tokens", "explorer, never looked at")
		p.set(0, "looked")
		p.set(2, "4")
		p.set(3, "0")
		p.axedIn(w, ".columns .tokens", "explorer, two layers")
		p.eval(`location.hash = "chat"`, nil)
		p.wait(`document.querySelector(".composer")`)
		p.axedIn(w, ".chat", "chat, empty")
		p.ask(sayThought)
		p.eval(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
		w.axed(p, "chat")
		p.press("New conversation")
		p.ask(sayMarkdown)
		p.press("Edit")
		p.press("Send again")
		p.wait(`document.querySelector(".versions") && document.querySelector(".stats")`)
		p.press("Side by side")
		w.axed(p, "chat, Markdown and versions")
		p.eval(`location.hash = "plans"`, nil)
		p.wait(`document.querySelector(".plans tbody [aria-expanded]")`)
		p.eval(`document.querySelector(".plans tbody [aria-expanded]").click()`, nil)
		p.wait(`document.querySelector(".plans form button")`)
		// The content above the button changes every second.
		p.eval(`document.querySelector(".plans form button").click()`, nil)
		p.wait(`document.querySelector(".explained .segment")`)
		w.axed(p, "plans")
	}
}

// axed fails the test for each violation that axe-core finds in the current page.
func (w *world) axed(p *tab, where string) {
	p.t.Helper()
	p.axedIn(w, "html", where)
}

// axedIn fails the test for each violation that axe-core finds in a part of the page.
func (p *tab) axedIn(w *world, part, where string) {
	p.t.Helper()
	p.eval(`typeof axe === "object" || (() => { `+w.axe+` })()`, nil)
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct {
			HTML           string
			FailureSummary string
		}
	}
	// All blocks of tokens are built alike, so only the first block of a text is checked.
	p.eval(fmt.Sprintf(`axe.run({include: [%q], exclude: [".tokens .block:nth-child(n + 2)"]},
		{resultTypes: ["violations"]}).then((r) => r.violations)`, part), &found)
	for _, f := range found {
		p.t.Errorf("%s: %s (%s): %s: %.300s: %.300s", where, f.ID, f.Impact, f.Help, f.Nodes[0].HTML,
			f.Nodes[0].FailureSummary)
	}
}
