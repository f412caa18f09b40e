package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestsToOtherNamesAreRefused(t *testing.T) {
	s, err := New(newFake(saying("x")), Options{AllowHosts: []string{"models.example.org", "Box"},
		AllowOrigins: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "LOCALHOST.:8080": 200, "app.localhost:8080": 200,
		"127.0.0.1:8080": 200, "10.1.2.3": 200, "[::1]:8080": 200, "[::1]": 200, "[fe80::1%25eth0]:80": 200,
		"models.example.org": 200, "Models.Example.Org.:443": 200, "box:1": 200, "": 200,
		"example.org": 421, "evil.models.example.org": 421, "models.example.org.evil.com": 421,
		"localhost.evil.com": 421,
		"evil-localhost":     421, "127.0.0.1.evil.com:8080": 421, "127.1": 421, "0x7f.1": 421,
		"[::1]:8080.evil.com": 421,
		"localhost:8080:80":   421, "*": 421,
	} {
		for _, method := range []string{http.MethodGet, http.MethodOptions} {
			r := httptest.NewRequest(method, "/health", nil)
			r.Host = host
			r.Header.Set("Origin", "http://evil.com")
			// With this header, OPTIONS is a preflight request, which must be refused for the same hosts.
			r.Header.Set("Access-Control-Request-Method", "GET")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			refused := w.Code == http.StatusMisdirectedRequest
			if refused != (want == 421) {
				t.Errorf("%s %q: status %d: %s", method, host, w.Code, w.Body)
			}
			if refused && (!strings.Contains(w.Body.String(), "misdirected_request") ||
				!strings.Contains(w.Body.String(), "--allow-host") ||
				w.Header().Get("Access-Control-Allow-Origin") != "") {
				t.Errorf("%q: %v %s", host, w.Header(), w.Body)
			}
		}
	}
}

func TestWithoutAListEveryNameIsAccepted(t *testing.T) {
	s, err := New(newFake(saying("x")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/health", nil)
	r.Host = "anything.example"
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
}

func TestHostNamesAreChecked(t *testing.T) {
	for _, name := range []string{"", "*", "http://x", "x/y", "x:80", "x y", "*.example.org"} {
		if err := (Options{AllowHosts: []string{name}}).Validate(); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	if err := (Options{AllowHosts: []string{"Models.example.org", "box", "10.0.0.1"}}).Validate(); err != nil {
		t.Error(err)
	}
}
