package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv/event/zmtp"
	"sparrow/internal/testkit/await"
)

// A subscriber receives events for the pages that a prompt fills, and for their removal when an administrator flushes
// the cache.
func TestServePublishesWhatIsCached(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "admins")
	if err := os.WriteFile(keys, []byte("root-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--kv-events", "tcp://127.0.0.1:0", "--kv-events-id", "here", "--admin-keys", keys,
		"--objective", "interactive=10")
	at := regexp.MustCompile(`(?m)^events   cached prefixes at tcp://(\S+), replays at tcp://(\S+)$`).
		FindStringSubmatch(s.out.String())
	web := regexp.MustCompile(`(?m)^address  (\S+)`).FindStringSubmatch(s.out.String())
	if at == nil || web == nil {
		t.Fatalf("no addresses in\n%s", s.out)
	}
	conn, err := net.Dial("tcp", at[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(await.Hang))
	z, err := zmtp.Open(conn, zmtp.Config{Socket: zmtp.SUB, Peers: []zmtp.Socket{zmtp.PUB}, MaxFrame: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Write([]byte("\x01kv@")); err != nil {
		t.Fatal(err)
	}
	hear := func(what string) {
		t.Helper()
		for {
			m, err := z.Read()
			if err != nil {
				t.Fatalf("waiting for %s: %v", what, err)
			}
			if len(m) != 3 || string(m[0]) != "kv@here@sparrow-tiny" {
				t.Fatalf("%d frames of topic %q", len(m), m[0])
			}
			if bytes.Contains(m[2], []byte(what)) {
				return
			}
		}
	}
	hear("AllBlocksCleared") // the server reports an empty cache
	send := func(path, body string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, web[1]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer root-key")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", path, res.StatusCode)
		}
	}
	send("/v1/completions", `{"model":"sparrow-tiny","prompt":"`+strings.Repeat("go on ", 100)+
		`","max_tokens":1,"cache_salt":"pepper"}`)
	hear("pepper")
	send("/flush_cache", "")
	hear("AllBlocksCleared")
	s.end(t)
}

func TestServeRefusesEventFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--kv-events 5557": "tcp://HOST:PORT",
		"--kv-events tcp://127.0.0.1:0 --kv-events-id a@b": "without @",
		"--kv-events-id here":                              "need --kv-events",
		"--objective fast":                                 "NAME=PRIORITY",
		"--objective a=1,a=2":                              "each name once",
		"--admin-keys /nowhere/keys":                       "--admin-keys",
	} {
		c := root()
		c.SetArgs(append([]string{"serve", "--port", "0"}, strings.Fields(args)...))
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
