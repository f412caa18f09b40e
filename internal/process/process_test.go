package process

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// If the environment variable asProgram is set, the test binary runs as a server that a request can end, or as a
// program that fails.
const asProgram = "SPARROW_TEST_IS_A_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "server":
		serve()
	case "failure":
		fmt.Println("no such model")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("model    m\naddress  http://%s (listening on %s)\n", l.Addr(), l.Addr())
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "# HELP a Of things.\na 3\nb{c=\"d e\"} 0.5\n")
	})
	http.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(4) })
	panic(http.Serve(l, nil))
}

func program(t *testing.T, kind string) Program {
	return Program{Path: os.Args[0], Env: []string{asProgram + "=" + kind}, Logs: t.TempDir()}
}

func TestServer(t *testing.T) {
	s, err := program(t, "server").Serve(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	if m, err := s.Metrics(t.Context()); err != nil || len(m) != 2 || m["a"] != 3 || m[`b{c="d e"}`] != .5 {
		t.Errorf("metrics %v, %v", m, err)
	}
	if err := s.Running(); err != nil {
		t.Error(err)
	}
	http.Get(s.URL + "/die") // the request fails, because the connection breaks
	<-s.ended
	for _, err := range []error{s.Running(), s.End(syscall.SIGTERM)} {
		wantWords(t, err, "exit status 4", "model    m")
	}
}

func TestAProgramThatFailsIsReportedWithItsLog(t *testing.T) {
	_, err := program(t, "failure").Serve(t.Context(), "f")
	wantWords(t, err, "exit status 3", "no such model")
}

func wantWords(t *testing.T, err error, list ...string) {
	t.Helper()
	for _, words := range list {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want one with %q", err, words)
		}
	}
}

// The reader finds the address however the output is split into pieces.
func TestAddressReader(t *testing.T) {
	const text = "memory   8 GiB\naddress  http://127.0.0.1:80 (listening)\naddress  two\n"
	for size := 1; size < len(text); size++ {
		address, log := make(chan string, 2), strings.Builder{}
		r := &addressReader{log: &log, address: address}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := io.WriteString(r, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if len(address) != 1 || <-address != "http://127.0.0.1:80" || log.String() != text {
			t.Errorf("pieces of %d bytes: another address, or log %q", size, &log)
		}
	}
}
