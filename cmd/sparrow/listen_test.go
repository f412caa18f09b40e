package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// addressOf returns the address that the server has printed.
func (s *serving) addressOf(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`address +(\S+)`).FindStringSubmatch(s.out.String())
	if m == nil {
		t.Fatalf("no address in %s", s.out)
	}
	return m[1]
}

// writeCertificate writes a self-signed certificate for 127.0.0.1 and its key, and returns a pool that trusts it.
func writeCertificate(t *testing.T, cert, key, name string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return pool
}

func TestServeWithTLSAndAStreamOverHTTP2(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := writeCertificate(t, cert, key, "first")
	s := startServer(t, "--tls-cert", cert, "--tls-key", key)
	url := s.addressOf(t)
	if !strings.HasPrefix(url, "https://127.0.0.1:") || !strings.Contains(s.out.String(), "curl "+url) {
		t.Fatalf("%s", s.out)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(
		`{"model": "sparrow-tiny", "messages": [{"role": "user", "content": "Hello!"}], "stream": true, "max_tokens": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.ProtoMajor != 2 || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%s, %v: %s", resp.Proto, err, text)
	}
	mustDrive(t, "", "health", "--url", url, "--insecure")
	if _, _, err := drive("", "health", "--url", url); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate was accepted: %v", err)
	}
	// The TLS port refuses plain HTTP.
	if resp, err := http.Get(strings.Replace(url, "https", "http", 1) + "/v1/models"); err == nil {
		if resp.Body.Close(); resp.StatusCode == http.StatusOK {
			t.Error("it answers without encryption")
		}
	}
	s.end(t)
}

// After the certificate file is replaced, new connections use the new certificate; a broken file is ignored.
func TestACertificateIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	c := &certificate{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"),
		log: slog.New(slog.DiscardHandler)}
	at := time.Now()
	if err := c.load(at); err == nil {
		t.Fatal("no files, and no error")
	}
	writeCertificate(t, c.cert, c.key, "first")
	if err := c.load(at); err != nil {
		t.Fatal(err)
	}
	holds := func(want string) {
		t.Helper()
		at = at.Add(certificatePause)
		c.mu.Lock()
		c.refresh(at)
		c.mu.Unlock()
		if got, err := c.get(nil); err != nil || got.Leaf.Subject.CommonName != want {
			t.Errorf("%v, %v; want %s", got.Leaf.Subject, err, want)
		}
	}
	holds("first")
	writeCertificate(t, c.cert, c.key, "second")
	holds("second")
	if err := os.WriteFile(c.key, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds("second")
	if err := os.Remove(c.cert); err != nil {
		t.Fatal(err)
	}
	holds("second")
	writeCertificate(t, c.cert, c.key, "third")
	holds("third")
}

func TestServeOnASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	// A killed server leaves its socket file behind.
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	s := startSocket(t, "--listen", "unix:"+path, "--socket-mode", "0640")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if !strings.Contains(s.out.String(), "curl --unix-socket "+path+" http://localhost/v1/") {
		t.Errorf("%s", s.out)
	}
	mustDrive(t, "", "health", "--url", "unix:"+path)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
	resp, err := client.Get("http://models.example.org/v1/models") // a proxy passes on such a host name
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if status, _, stderr := invoke("serve", "--listen", "unix:"+path); status != 1 ||
		!strings.Contains(stderr, "is already listening there") {
		t.Errorf("a second server: status %d, %q", status, stderr)
	}
	s.end(t)
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
	if status, _, stderr := invoke("health", "--url", "unix:"+path); status != 1 ||
		!strings.Contains(stderr, "no server responds") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

// startSocket starts a server that listens only on a socket.
func startSocket(t *testing.T, args ...string) *serving {
	t.Helper()
	return startCommand(t, append([]string{"serve", "--cache-tokens", "4096"}, args...)...)
}

func TestServeAnswersOnlyToItsNames(t *testing.T) {
	s := startServer(t, "--allow-host", "models.example.org")
	url := s.addressOf(t)
	for host, want := range map[string]int{"models.example.org": 200, "localhost:1": 200, "evil.example.org": 421} {
		r, err := http.NewRequest(http.MethodGet, url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d: %s", host, resp.StatusCode, want, text)
		}
	}
	s.end(t)
	for _, c := range []struct {
		flags listenFlags
		want  string
	}{
		{listenFlags{host: "127.0.0.1"}, "[]"},
		{listenFlags{host: "box.example.org", allowHosts: []string{"a"}}, "[box.example.org a]"},
		{listenFlags{host: "0.0.0.0", allowHosts: []string{"a", "*"}}, "any"},
		{listenFlags{socket: "unix:/x"}, "any"},
		{listenFlags{socket: "unix:/x", allowHosts: []string{"a"}}, "[a]"},
	} {
		got := c.flags.hosts()
		text := fmt.Sprint(got)
		if got == nil {
			text = "any"
		}
		if text != c.want {
			t.Errorf("%+v: %s, want %s", c.flags, text, c.want)
		}
	}
}

func TestListenFlagsAreChecked(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--port", "70000"}, "want 0 to 65535"},
		{[]string{"--host", "0.0.0.0:80"}, "--host 0.0.0.0 --port 80, or --listen 0.0.0.0:80"},
		{[]string{"stray"}, `sparrow serve takes no arguments, but "stray" was given`},
		{[]string{"--listen", "127.0.0.1"}, "want HOST:PORT"},
		{[]string{"--listen", "127.0.0.1:http"}, "want HOST:PORT"},
		{[]string{"--listen", "127.0.0.1:80000"}, "--port 80000"},
		{[]string{"--listen", "127.0.0.1:80", "--port", "80"}, "replaces"},
		{[]string{"--listen", "unix:"}, "want unix:/path"},
		{[]string{"--listen", "unix:/x", "--port", "80"}, "replaces"},
		{[]string{"--socket-mode", "0600"}, "--socket-mode applies to"},
		{[]string{"--listen", "unix:/x", "--socket-mode", "rw"}, "in octal"},
		{[]string{"--listen", "unix:" + file}, "exists and is not a socket"},
		{[]string{"--listen", "unix:" + dir + strings.Repeat("/x", 60)}, "at most 107"},
		{[]string{"--listen", "unix:" + dir + "/none/s"}, "no such file"},
		{[]string{"--tls-cert", file}, "must be used together"},
		{[]string{"--tls-cert", file, "--tls-key", file}, "--tls-cert, --tls-key: "},
		{[]string{"--allow-host", "http://x"}, "is not a host name"},
	} {
		if status, _, stderr := invoke(append([]string{"serve"}, c.args...)...); status != 1 ||
			!strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %q; want %q", c.args, status, stderr, c.want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || len(text) != 0 {
		t.Errorf("the file that was in the way is gone: %v", err)
	}
}

// A socket is removed only if nobody listens on it: not if a server answers, and not if this cannot be determined.
func TestOnlySocketsWithoutAServerAreRemoved(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // the path of a test's own folder may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		listen bool
		says   string // empty if the socket is removed
	}{{"left", t.Context(), false, ""}, {"used", t.Context(), true, "already listening"},
		{"unknown", ended, false, "cannot determine"}} {
		path := filepath.Join(dir, c.name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if c.listen {
			defer l.Close()
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		err = removeStale(c.ctx, path)
		_, left := os.Lstat(path)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) ||
			(left == nil) != (c.says != "") {
			t.Errorf("%s: %v, want %q; the path: %v", c.name, err, c.says, left)
		}
	}
}
