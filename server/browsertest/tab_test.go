package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// tab is one page in its own context: no cookies and no storage are shared with other tabs.
type tab struct {
	t       *testing.T
	b       *browser
	session string
	loaded  chan struct{} // a document was loaded

	mu      sync.Mutex
	sent    []string // addresses of requests
	faults  []string // exceptions, messages of the policy, errors on the console
	headers map[string]map[string]string
}

// screen is the size of a window; scale is 1 unless a picture needs more.
type screen struct {
	width, height int
	dark          bool
}

var desktop = screen{width: 1280, height: 900}

// open loads an address in a new tab. Every exception and every violation of the policy fails the test at its end.
func (b *browser) open(t *testing.T, address string, s screen) *tab {
	t.Helper()
	p := &tab{t: t, b: b, loaded: make(chan struct{}, 1), headers: map[string]map[string]string{}}
	var context struct{ BrowserContextID string }
	var target struct{ TargetID string }
	var attached struct{ SessionID string }
	p.must(b.call("", "Target.createBrowserContext", nil, &context))
	p.must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank",
		"browserContextId": context.BrowserContextID}, &target))
	p.must(b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	p.session = attached.SessionID
	b.mu.Lock()
	b.tabs[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.do(domain+".enable", nil)
	}
	p.resize(s)
	p.do("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite"}})
	t.Cleanup(func() {
		for _, f := range p.problems() {
			t.Errorf("the page: %s", f)
		}
		b.call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID}, nil)
		b.mu.Lock()
		delete(b.tabs, p.session)
		b.mu.Unlock()
	})
	p.do("Page.navigate", map[string]any{"url": address})
	p.wait(`document.readyState === "complete" && document.querySelector("main").childElementCount > 0`)
	return p
}

func (p *tab) resize(s screen) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": s.width, "height": s.height,
		"deviceScaleFactor": 1, "mobile": s.width < 600})
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}})
}

func (p *tab) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) do(method string, params map[string]any) {
	p.t.Helper()
	if err := p.b.call(p.session, method, params, nil); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// event stores the events that the tests need. It runs in the browser's reader.
func (p *tab) event(method string, params json.RawMessage) {
	var e struct {
		Request  struct{ URL string }
		Response struct {
			URL     string
			Headers map[string]string
		}
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Entry struct{ Source, Level, Text string }
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Network.requestWillBeSent":
		p.sent = append(p.sent, e.Request.URL)
	case "Network.responseReceived":
		lower := map[string]string{}
		for name, v := range e.Response.Headers {
			lower[strings.ToLower(name)] = v
		}
		p.headers[e.Response.URL] = lower
	case "Runtime.exceptionThrown":
		p.faults = append(p.faults, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if e.Entry.Level == "error" && e.Entry.Source != "network" {
			p.faults = append(p.faults, e.Entry.Source+": "+e.Entry.Text)
		}
	}
}

func (p *tab) problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// origins returns the origins of requests.
func (p *tab) origins() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for _, s := range p.sent {
		u, err := url.Parse(s)
		if err != nil {
			p.t.Errorf("a request to %q", s)
			continue
		}
		out[u.Scheme+"://"+u.Host]++
	}
	return out
}

// eval runs an expression, waits for its promise, and decodes its value into result unless that is nil.
func (p *tab) eval(expression string, result any) {
	p.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.b.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
		"returnByValue": true, "userGesture": true}, &out)
	if err == nil && out.ExceptionDetails != nil {
		err = fmt.Errorf("%s %s", out.ExceptionDetails.Text, out.ExceptionDetails.Exception.Description)
	}
	if err == nil && result != nil {
		err = json.Unmarshal(out.Result.Value, result)
	}
	if err != nil {
		p.t.Fatalf("%.200s: %v", expression, err)
	}
}

// text returns the visible text of the first element that a selector finds.
func (p *tab) text(selector string) string {
	p.t.Helper()
	var out string
	p.eval(fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector), &out)
	return out
}

// wait waits until an expression is true.
func (p *tab) wait(condition string) {
	p.t.Helper()
	for deadline := time.Now().Add(answerTime); ; time.Sleep(20 * time.Millisecond) {
		var ok bool
		p.eval("!!("+condition+")", &ok)
		if ok {
			return
		}
		if time.Now().After(deadline) {
			var shown string
			p.eval("document.body.innerText", &shown)
			p.t.Fatalf("waited in vain for %s; the page shows\n%.1500s\n%v", condition, shown, p.problems())
		}
	}
}

// reload reloads the page, and waits for the new document, because until then the old one would respond.
func (p *tab) reload() {
	p.t.Helper()
	select {
	case <-p.loaded: // a value from an earlier document
	default:
	}
	p.do("Page.reload", nil)
	select {
	case <-p.loaded:
	case <-time.After(answerTime):
		p.t.Fatal("the page was not loaded again")
	}
}

// click clicks in the middle of a visible element, like a mouse.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.clickOn(fmt.Sprintf("document.querySelector(%q)", selector))
}

// press clicks the button whose text or label is name.
func (p *tab) press(name string) {
	p.t.Helper()
	p.clickOn(fmt.Sprintf(`[...document.querySelectorAll("button, a, summary")].find((b) =>
		(b.innerText.trim() === %q || b.ariaLabel === %q) && !b.disabled &&
		b.checkVisibility({ visibilityProperty: true }))`, name, name))
}

func (p *tab) clickOn(element string) {
	p.t.Helper()
	p.wait(element)
	// Data from the server may move elements: the position must be the same in two frames.
	var at struct{ X, Y float64 }
	p.eval(`(async () => { const frame = () => new Promise(requestAnimationFrame);
		for (let old; ; await frame()) {
			const e = `+element+`; e?.scrollIntoView({block: "center"}); const r = e?.getBoundingClientRect();
			if (r && old && r.x === old.x && r.y === old.y) return {x: r.x + r.width / 2, y: r.y + r.height / 2};
			old = r;
		} })()`, &at)
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left",
			"clickCount": 1})
	}
}

// enter types text into the focused element, like an input method.
func (p *tab) enter(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text})
}

// keys are the keys that tests press, with the fields that the DevTools protocol needs.
var keys = map[string]map[string]any{
	"Enter":      {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
	"Tab":        {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
	"Escape":     {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27},
	"ArrowRight": {"key": "ArrowRight", "code": "ArrowRight", "windowsVirtualKeyCode": 39},
	"ArrowDown":  {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40},
	"ArrowUp":    {"key": "ArrowUp", "code": "ArrowUp", "windowsVirtualKeyCode": 38},
	"ArrowLeft":  {"key": "ArrowLeft", "code": "ArrowLeft", "windowsVirtualKeyCode": 37},
	"Delete":     {"key": "Delete", "code": "Delete", "windowsVirtualKeyCode": 46},
	"F2":         {"key": "F2", "code": "F2", "windowsVirtualKeyCode": 113},
	"Space":      {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32, "text": " "},
}

// key presses and releases a key. modifiers is the bit mask of the DevTools protocol, where 8 is Shift.
func (p *tab) key(name string, modifiers int) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "modifiers": modifiers}
		for k, v := range keys[name] {
			if k != "text" || kind == "keyDown" {
				params[k] = v
			}
		}
		p.do("Input.dispatchKeyEvent", params)
	}
}

// shot returns a picture of the visible part of the page.
func (p *tab) shot() []byte {
	p.t.Helper()
	var out struct{ Data string }
	p.must(p.b.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &out))
	picture, err := base64.StdEncoding.DecodeString(out.Data)
	p.must(err)
	return picture
}

// look saves pictures of the current page, one wide and light, one narrow and dark, if -looks names a folder.
func (p *tab) look(name string) {
	p.t.Helper()
	if *looks == "" {
		return
	}
	for suffix, s := range map[string]screen{"-1280": desktop, "-390": {390, 844, true}} {
		p.resize(s)
		p.eval(`new Promise((done) => setTimeout(done, 200))`, nil)
		p.must(os.WriteFile(filepath.Join(*looks, name+suffix+".png"), p.shot(), 0o644))
	}
	p.resize(desktop)
}

// forgive removes the recorded errors that contain one of the words, because the test caused them on purpose.
func (p *tab) forgive(words ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []string
	for _, f := range p.faults {
		meant := false
		for _, w := range words {
			meant = meant || strings.Contains(f, w)
		}
		if !meant {
			left = append(left, f)
		}
	}
	p.faults = left
}
