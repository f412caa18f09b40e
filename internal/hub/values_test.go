package hub

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// The range of a partial response is accepted only if it lies inside the file and states no other size than the listed
// one.
func TestRangesOfTheListedFile(t *testing.T) {
	for text, want := range map[string]int64{"bytes 5-9/10": 5, "bytes 0-9/10": 0, "bytes 5-9/*": 5,
		"bytes 5-10/10": -1, "bytes 5-9/11": -1,
		"bytes -1-9/10": -1, "bytes 5-9": -1, "": -1, "items 5-9/10": -1, "bytes 5-12/*": -1} {
		if start, ok := rangeStart(text, 10); ok != (want >= 0) || ok && start != want {
			t.Errorf("%q: %d, %v", text, start, ok)
		}
	}
}

// A part is joined to an earlier part with a strong ETag only if its own ETag is the same; a weak ETag does not
// identify bytes.
func TestWhichPartsAreJoined(t *testing.T) {
	for _, c := range []struct {
		before, now string
		status      int
		joined      bool
		after       string
	}{
		{`"a"`, `"a"`, 206, true, `"a"`}, {"", `W/"a"`, 206, true, ""}, {"", `"a"`, 206, true, `"a"`},
		{`"a"`, `"b"`, 206, false, ""}, {`"a"`, `W/"a"`, 206, false, ""}, {`"a"`, "", 206, false, ""},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "part"))
		if err != nil {
			t.Fatal(err)
		}
		tr := &transfer{p: &Puller{meter: &meter{}}, f: File{Size: 10, Hash: fmt.Sprintf("%064d", 0)}, file: file,
			done: 5, etag: c.before}
		tr.sum = newDigest(tr.f)
		err = tr.accept(&http.Response{StatusCode: c.status, Header: http.Header{"Etag": {c.now},
			"Content-Range": {"bytes 5-9/10"}}})
		if (err == nil) != c.joined || tr.etag != c.after || (tr.done == 5) != c.joined {
			t.Errorf("%+v: %v, tag %q, %d bytes", c, err, tr.etag, tr.done)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Neither the first nor a later redirect may lead from https to http; a redirect from http to https is allowed.
func TestEveryRedirectStaysEncrypted(t *testing.T) {
	at := func(text string) *http.Request {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{URL: u, Header: http.Header{"Authorization": {"Bearer t"}}}
	}
	hub := at("https://hub").URL
	check := newClient(hub, 1).CheckRedirect
	for _, c := range []struct {
		via     []string
		to      string
		refused bool
	}{
		{[]string{"https://hub"}, "http://store", true}, {[]string{"https://hub", "https://a"}, "http://store", true},
		{[]string{"https://hub", "https://a", "https://b"}, "http://store", true},
		{[]string{"http://hub"}, "https://store", false}, {[]string{"https://hub"}, "https://store", false},
		{[]string{"http://hub", "https://a"}, "http://store", true}, {[]string{"http://hub"}, "http://store", false},
	} {
		var via []*http.Request
		for _, v := range c.via {
			via = append(via, at(v))
		}
		r := at(c.to)
		if err := check(r, via); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		if r.Header.Get("Authorization") != "" {
			t.Errorf("%+v: the token goes along", c)
		}
	}
	same := at("https://hub/other")
	if err := check(same, []*http.Request{at("https://hub")}); err != nil || same.Header.Get("Authorization") == "" {
		t.Errorf("inside the hub: %v, %v", err, same.Header)
	}
}
