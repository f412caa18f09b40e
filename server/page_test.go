package server

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow/server/internal/page"
)

// A browser gets the page at /; other clients get the line that clients of Ollama check.
func TestRootAnswersBrowsersWithThePage(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	html := get(t, hs.URL+"/", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if html.status != http.StatusOK || !strings.Contains(html.body, "<title>Sparrow</title>") {
		t.Errorf("a browser gets %d %.100q", html.status, html.body)
	}
	if got := html.header.Get("Content-Security-Policy"); got != page.Policy {
		t.Errorf("the policy is %q", got)
	}
	if got := html.header.Get("Vary"); got != "Accept" {
		t.Errorf("Vary is %q", got)
	}
	if plain := get(t, hs.URL+"/"); plain.body != "Sparrow is running" {
		t.Errorf("a tool gets %.100q", plain.body)
	}
	tag := html.header.Get("ETag")
	again := get(t, hs.URL+"/", "Accept", "text/html", "If-None-Match", tag)
	if again.status != http.StatusNotModified {
		t.Errorf("a known page is sent again: %d", again.status)
	}
}

// namespaces lists addresses that only name XML formats and are not loaded.
var namespaces = []string{"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}

// Every file that the page refers to exists and has a content type that browsers accept, and no file refers to another
// host.
func TestPageNamesOnlyItsOwnFiles(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	names := regexp.MustCompile(`(?:src|href)="(page/[^"]+)"|from "\./([^"]+)"|fetchText\("(page/[^"]+)"\)`)
	other := regexp.MustCompile(`https?://[^"'\s]+`)
	seen := map[string]bool{}
	var follow func(path string)
	follow = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		got := get(t, hs.URL+path, "Accept", "text/html")
		if got.status != http.StatusOK || got.header.Get("Content-Type") == "" ||
			got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v", path, got.status, got.header)
		}
		for _, m := range names.FindAllStringSubmatch(got.body, -1) {
			if m[2] != "" {
				follow(page.Prefix + m[2])
			} else {
				follow("/" + m[1] + m[3])
			}
		}
		for _, address := range other.FindAllString(got.body, -1) {
			if !slices.Contains(namespaces, address) {
				t.Errorf("%s names %s", path, address)
			}
		}
	}
	follow("/")
	if len(seen) < 15 {
		t.Errorf("only %d files were found: %v", len(seen), seen)
	}
}

func TestNoPage(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{NoPage: true})
	if got := get(t, hs.URL+"/", "Accept", "text/html"); got.body != "Sparrow is running" {
		t.Errorf("/ answers %.100q", got.body)
	}
	if got := get(t, hs.URL+"/page/app.js"); got.status != http.StatusNotFound {
		t.Errorf("/page/app.js: %d", got.status)
	}
	_, hs = start(t, newFake(saying("x")), Options{})
	if got := get(t, hs.URL+"/page/../server.go"); got.status != http.StatusNotFound {
		t.Errorf("a file outside: %d %.100s", got.status, got.body)
	}
}

// The page loads without a key; its requests to the API need one.
func TestPageNeedsNoKey(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("k"))
	if err != nil {
		t.Fatal(err)
	}
	_, hs := start(t, newFake(saying("x")), Options{Keys: keys})
	for path, want := range map[string]int{"/": 200, "/page/app.js": 200, "/debug/explain": 401, "/debug/plans": 401} {
		if got := get(t, hs.URL+path, "Accept", "text/html"); got.status != want {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
}
