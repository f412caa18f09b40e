package grammar

import (
	"strings"
	"testing"
)

// usual lists addresses that are in common use and that RFC 3986 and RFC 5321 allow, so that a model can copy them.
var usual = map[string][]string{
	"uri": {
		"https://example.com", "http://localhost:8080/", "https://example.com:65535/a/b?c=d#e",
		"https://user:secret@example.com/private", "https://user@example.com", "http://[::1]:3000/",
		"http://[2001:db8::8a2e:370:7334]/index.html", "http://[::ffff:192.0.2.128]:80/x",
		"http://192.168.0.1:15672/#/queues",
		"https://www.a.b.c.d.example.co.uk/", "https://en.wikipedia.org/wiki/C%2B%2B",
		"https://example.com/search?q=a+b&lang=nl",
		"https://example.com/a%20b/c?d=%E2%82%AC", "https://maps.example.com/@52.37,4.89,12z",
		"https://example.com/path;v=1.2/x,y(z)'q'!", "https://example.com/?b=1&amp=2",
		"https://example.com//double//slash",
		"mailto:m4.van.dijk@vu.nl", "mailto:a@example.com?subject=Hello%20there&cc=b@example.com", "file:///etc/hosts",
		"file:///C:/Users/me/notes.txt", "file://server/share/file.txt", "urn:isbn:0451450523",
		"urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "urn:ietf:rfc:3986", "ws://example.com/socket",
		"wss://example.com:443/chat?room=1", "ftp://ftp.is.co.za/rfc/rfc1808.txt",
		"ldap://[2001:db8::7]/c=GB?objectClass?one",
		"tel:+1-816-555-1212", "news:comp.infosystems.www.servers.unix", "telnet://192.0.2.16:80/",
		"sip:alice@atlanta.com",
		"git+ssh://git@github.com/golang/go.git", "ssh://git@gitlab.com:22/a/b.git", "data:text/plain;base64,SGVsbG8=",
		"data:,Hello%2C%20World!", "s3://bucket/key/with/parts.parquet", "gs://bucket/object",
		"postgres://u:p@db:5432/app?sslmode=off",
		"redis://localhost:6379/0", "amqp://guest:guest@rabbit:5672/%2f", "mongodb+srv://u:p@cluster0.example.net/db",
		"doi:10.1000/182", "magnet:?xt=urn:btih:c12fe1c06bba254a9dc9f519b335aa7c1367a88a", "tag:example.com,2026:x",
		"about:blank", "HTTP://EXAMPLE.COM/", "http://xn--bcher-kva.example/", "https://example.com?",
	},
	"email": {
		"m4.van.dijk@vu.nl", "a@b.co", "first.last@sub.dept.example.co.uk", "a.b.c.d.e@example.org",
		"user+tag@example.com",
		"o'brien@example.ie", "customer/department=shipping@example.com", "$A12345@example.com",
		"!def!xyz%abc@example.com",
		"_somename@example.com", "1234567890@example.com", "x-y-z@my-host.example", "user@localhost",
		"postmaster@[192.0.2.1]",
		"user@[IPv6:2001:db8::1]", "\"john doe\"@example.com", "\"a@b\"@example.com", "\"a\\\"b\"@example.com",
		"info@xn--bcher-kva.example", "very.long.address.of.somebody.who.likes.dots.in.names.a.lot@example.museum",
		"a@123.example", "name@x.y.z.example.photography",
	},
	"hostname": {"localhost", "a.b.c.d.e.example.com", "xn--bcher-kva.example", "1.example", "a-b"},
	"ipv6": {"::", "::1", "2001:db8::8a2e:370:7334", "fe80::1:2:3:4", "::ffff:192.0.2.128", "1:2:3:4:5:6:7:8", "1::",
		"1:2:3:4:5:6:7::", "64:ff9b::192.0.2.33", "2001:DB8:0:0:8:800:200C:417A"},
}

// wrong lists texts that the RFCs do not allow as addresses.
var wrong = map[string][]string{
	"uri": {"", "example.com", "//example.com", "http://", "https:///path", "http:", "http:a", "https:/a",
		"http://user@/x",
		"http://:80/", "1http://example.com", "http://a b.com", "http://example.com/<x>", "http://example.com/%zz",
		"http://[::1", "http://[1:2]/", "http://example.com/a#b#c", "http://example.com/\"x\"",
		"http://example.com/\\x",
		"http://example.com:123456/", "https://example.com/?a[]=1", ":a", "http://exa\u00e9mple.com/"},
	"email": {"", "@b.de", "a@", "a b@c.de", "a..b@c.de", ".a@c.de", "a.@c.de", "a@-b.de", "a@b-.de", "a@b..de",
		"a@b@c.de",
		"a@[300.1.1.1]", "a@[IPv6:1:2]", "\"a@c.de", "a\"b@c.de", "a@b.de.", "a@b_c.de",
		strings.Repeat("a", 65) + "@example.com", "a@" + strings.Repeat("b", 64) + ".de",
		"a@" + strings.Repeat("abcdefghi.", 26) + "de"},
	"hostname": {"", "-a", "a-", "a..b", "a_b", strings.Repeat("a", 64), strings.Repeat("abcdefghi.", 26) + "de"},
	"ipv6":     {"1:2", "1:2:3:4:5:6:7:8:9", "g::", "1::2::3", "::ffff:192.0.2.256", "12345::", ":1"},
}

// TestFormatsOfAddresses writes addresses byte by byte and checks that the mask allows every byte of the usual ones,
// and not of the wrong ones.
func TestFormatsOfAddresses(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	if n := len(usual["uri"]) + len(usual["email"]); n < 60 {
		t.Errorf("%d addresses; 60 are wanted", n)
	}
	for name := range formats {
		g := compile(t, tokens, `{"type":"string","format":"`+name+`"}`)
		can := func(text string) bool { return writable(t, g, &value{kind: stringValue, text: text}) }
		for _, text := range usual[name] {
			if !can(text) {
				t.Errorf("%s: %q cannot be written", name, text)
			}
		}
		for _, text := range wrong[name] {
			if can(text) {
				t.Errorf("%s: %q can be written", name, text)
			}
		}
		d, err := formats[name].automaton()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d states", name, len(d.edges))
		if len(d.edges) > 2048 {
			t.Errorf("%s has %d states, more than 2,048", name, len(d.edges))
		}
	}
}

// TestLengthsOfPatternsAreCounted compares a leaf that counts characters with an automaton that has a state for every
// length.
func TestLengthsOfPatternsAreCounted(t *testing.T) {
	for _, pattern := range []string{"^[a-c]+$", "^(ab)*$", "a.b", "^(é|😀|\n|\"|\x01)*$", "^x?(yz|zzz)+$",
		"(a|b)*[ab]{3}$"} {
		for _, most := range []uint64{0, 1, 2, 5, 9} {
			e := &effort{left: maxEffort}
			d, err := compilePattern(pattern, e)
			if err != nil {
				t.Fatal(err)
			}
			limited, err := d.limit(0, most, e)
			if err != nil {
				t.Fatal(err)
			}
			counted := &patternLeaf{dfa: d}
			if ok := counted.atMost(most); ok != (limited != nil) {
				t.Errorf("%s, at most %d: possible is %v", pattern, most, ok)
			}
			if limited != nil {
				sameLeaves(t, pattern, counted, &patternLeaf{dfa: limited})
			}
		}
	}
}

// sameLeaves checks that two leaves accept the same inputs, in all pairs of states that the same bytes lead to.
func sameLeaves(t *testing.T, name string, a, b leaf) {
	t.Helper()
	type pair struct{ p, q uint64 }
	seen := map[pair]bool{{a.start(), b.start()}: true}
	queue := []pair{{a.start(), b.start()}}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if a.accepts(at.p) != b.accepts(at.q) {
			t.Errorf("%s: one leaf ends, the other does not", name)
		}
		for c := range 256 {
			p, ok := a.step(at.p, byte(c))
			q, same := b.step(at.q, byte(c))
			if ok != same {
				t.Fatalf("%s: byte %q: taken is %v and %v", name, byte(c), ok, same)
			}
			if next := (pair{p, q}); ok && !seen[next] && len(seen) < 20_000 {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
}

// TestLongPatterns checks that patterns compile whose lengths are too large for an automaton with a state for every
// length.
func TestLongPatterns(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	for _, c := range []struct{ schema, ok, no string }{
		{`{"type":"string","pattern":"^[a-z]+([-_][a-z0-9]+)*$","maxLength":5000}`, "ab-cd", "ab-"},
		{`{"type":"string","pattern":"an.*er","minLength":3,"maxLength":2000}`, "xanber", "xan"},
		{`{"type":"string","pattern":"^(https?|ftp)://.+$","maxLength":65000}`, "ftp://x", "ftp://"},
		{`{"type":"string","format":"uri","maxLength":20}`, "urn:isbn:045145052", "https://example.com/12"},
	} {
		g := compile(t, tokens, c.schema)
		if list := g.Ignored(); len(list) > 0 {
			t.Errorf("%s: not enforced: %v", c.schema, list)
		}
		if !writable(t, g, &value{kind: stringValue, text: c.ok}) {
			t.Errorf("%s: %q cannot be written", c.schema, c.ok)
		}
		if writable(t, g, &value{kind: stringValue, text: c.no}) {
			t.Errorf("%s: %q can be written", c.schema, c.no)
		}
	}
	g := compile(t, tokens, `{"type":"string","pattern":"^a*$","maxLength":70000}`)
	if list := g.Ignored(); len(list) != 1 || list[0].Keyword != "maxLength" || !list[0].Asserts {
		t.Errorf("a length beyond what is counted: %v", list)
	}
}
