package resp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReplies(t *testing.T) {
	r := NewReader(strings.NewReader("+OK\r\n-ERR no\r\n:42\r\n$5\r\nab\ncd\r\n$-1\r\n$0\r\n\r\n$3\r\nxyz\r\n+END\r\n"))
	next := func(want Reply) {
		t.Helper()
		if got, err := r.Reply(); err != nil || got != want {
			t.Fatalf("got %+v, error %v; want %+v", got, err, want)
		}
	}
	next(Reply{Kind: Status, Text: "OK"})
	next(Reply{Kind: Failure, Text: "ERR no"})
	next(Reply{Kind: Integer, Int: 42})
	next(Reply{Kind: Bulk, Len: 5})
	if b, err := io.ReadAll(r); err != nil || string(b) != "ab\ncd" {
		t.Fatalf("%q, %v", b, err)
	}
	next(Reply{Kind: Nil})
	next(Reply{Kind: Bulk})
	next(Reply{Kind: Bulk, Len: 3}) // the test does not read the contents of this reply
	next(Reply{Kind: Status, Text: "END"})
	if _, err := r.Reply(); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end of the data: error %v", err)
	}
}

func TestWhatIsNotTheProtocol(t *testing.T) {
	for _, text := range []string{"HTTP/1.1 200 OK\r\n", "\r\n", "+\n", "$x\r\n", "$-2\r\n",
		"$99999999999999999999\r\n",
		"$5000000000\r\n", ":1.5\r\n", "+" + strings.Repeat("x", 100_000) + "\r\n", "$2\r\nabc\r\n+OK\r\n"} {
		r := NewReader(strings.NewReader(text))
		_, err := r.Reply()
		if err == nil {
			_, err = r.Reply()
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for _, text := range []string{"GET x\r\n", "*0\r\n", "*-1\r\n", "*1000\r\n", "*1\r\n:1\r\n", "*1\r\n$9999\r\n"} {
		if _, err := NewReader(strings.NewReader(text)).Command(); !errors.Is(err, ErrProtocol) {
			t.Errorf("command %.20q: error %v", text, err)
		}
	}
}

func TestCommandsComeAsTheyWereSent(t *testing.T) {
	b := AppendCommand(nil, -1, "GET", "a key\r\n")
	b = append(AppendCommand(b, 3, "SET", "k"), "v\r\n\r\n"...)
	r := NewReader(bytes.NewReader(b))
	for _, want := range [][]string{{"GET", "a key\r\n"}, {"SET", "k", "v\r\n"}} {
		got, err := r.Command()
		if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("got %q, error %v; want %q", got, err, want)
		}
	}
}

func TestURLs(t *testing.T) {
	a, err := ParseURL("rediss://u:p%40ss@h:1/3?ttl=2h")
	want := Address{Host: "h:1", TLS: true, User: "u", Password: "p@ss", Database: 3, TTL: 2 * time.Hour}
	if err != nil || a != want {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := ParseURL("redis://h"); err != nil || a.Host != "h:6379" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := ParseURL("http://u:secret@h"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	for text, ok := range map[string]bool{"redis://h?ttl=1s": true, "redis://h?ttl=999ms": false, "redis://h/0": true,
		"redis://h/-1": false, "redis://h/x": false, "redis://h?tll=1s": false, "redis://": false,
		"redis://h#x": false} {
		if a, err := ParseURL(text); (err == nil) != ok {
			t.Errorf("%s: address %+v, error %v; want it to be accepted: %v", text, a, err, ok)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, text := range []string{"+OK\r\n", "$3\r\nabc\r\n:1\r\n", "$-1\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
		"-E\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for range 100 {
			if _, err := r.Reply(); err != nil {
				break
			}
		}
		c := NewReader(bytes.NewReader(b))
		for range 100 {
			args, err := c.Command()
			if err != nil {
				break
			}
			again, err := NewReader(bytes.NewReader(AppendCommand(nil, -1, args...))).Command()
			if err != nil || strings.Join(again, "|") != strings.Join(args, "|") {
				t.Fatalf("%q was sent and %q was read, error %v", args, again, err)
			}
		}
	})
}

// A connection authenticates and selects its database before any other command, if the address contains a password and
// a database.
func TestGreetings(t *testing.T) {
	for url, want := range map[string][]string{
		"redis://h":           nil,
		"redis://h/0":         nil,
		"redis://h/7":         {"SELECT 7"},
		"redis://:secret@h/2": {"AUTH secret", "SELECT 2"},
		"redis://u:secret@h":  {"AUTH u secret"},
	} {
		a, err := ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := NewReader(theirs)
			for {
				args, err := r.Command()
				if err != nil {
					return
				}
				got = append(got, strings.Join(args, " "))
				io.WriteString(theirs, "+OK\r\n")
			}
		}()
		err = (&Conn{Reader: NewReader(ours), net: ours}).greet(a)
		ours.Close()
		if <-done; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: commands %q, error %v; want %q", url, got, err, want)
		}
	}
}
