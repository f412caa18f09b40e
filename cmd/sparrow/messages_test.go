package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"sparrow/internal/model/synth"
	"sparrow/server"
)

// The result of synth has all sizes, whether something was written, and the limits of the tokenizer.
func TestResultsOfSynth(t *testing.T) {
	size := synth.Size{Parameters: 2_500_000, NextN: 500_000, Tensors: 7, Bytes: 3 << 20}
	for want, r := range map[string]*synthResult{
		`c, bf16, seed 9: 2.500 million parameters (0.500 in the drafting layer), 7 tensors, 3.0 MiB (3145728 bytes)
written to /f, with the built-in tokenizer (5 of 8 ids have no text, so that answers are mostly empty)
try: sparrow serve --model /f
`: {Folder: "/f", Config: "c", DType: "bf16", Seed: 9, Tokenizer: true, Written: true, Vocabulary: 8, WithoutText: 5,
			Size: size},
		`c, f32, seed 0: 2.500 million parameters, 7 tensors, 3.0 MiB (3145728 bytes)
nothing was written; the checkpoint would be with the built-in tokenizer
`: {Config: "c", DType: "f32", Tokenizer: true, Vocabulary: 8, Size: synth.Size{Parameters: size.Parameters,
			Tensors: size.Tensors, Bytes: size.Bytes}},
		`c, f32, seed 0: 0.000 million parameters, 0 tensors, 0 B (0 bytes)
written to /f, without a tokenizer: its vocabulary is too small for the built-in one, so send token ids
try: sparrow serve --model /f
`: {Folder: "/f", Config: "c", DType: "f32", Written: true, WithoutText: 5},
	} {
		var out bytes.Buffer
		c := &cobra.Command{}
		c.SetOut(&out)
		if err := r.print(c); err != nil || out.String() != want {
			t.Errorf("got\n%s%v\nwant\n%s", out.String(), err, want)
		}
	}
}

// The printed address is one that a client on this machine can open. Without keys, every other address has a warning.
func TestAddressesOfServers(t *testing.T) {
	const warning = "warning  anyone who can reach this address can use the server; --api-keys FILE requires a key\n"
	for _, c := range []struct {
		at               net.Addr
		keys             *server.Keys
		text, url, tools string
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, nil,
			"address  http://127.0.0.1:80 (listening on 127.0.0.1:80)\n", "http://127.0.0.1:80", "curl"},
		{&net.TCPAddr{IP: net.IPv4zero, Port: 81}, nil,
			"address  http://127.0.0.1:81 (listening on 0.0.0.0:81)\n" + warning, "http://127.0.0.1:81", "curl"},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 82}, nil,
			"address  http://[::1]:82 (listening on [::1]:82)\n", "http://[::1]:82", "curl"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 83}, nil,
			"address  http://10.0.0.7:83 (listening on 10.0.0.7:83)\n" + warning, "http://10.0.0.7:83", "curl"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 84}, &server.Keys{},
			"address  http://10.0.0.7:84 (listening on 10.0.0.7:84)\n", "http://10.0.0.7:84", "curl"},
		{&net.UnixAddr{Name: "/run/s", Net: "unix"}, nil, "address  unix:/run/s\n", "http://localhost",
			"curl --unix-socket /run/s"},
	} {
		var b strings.Builder
		url, tools, err := (&serveFlags{}).address(&b, c.at, c.keys)
		if err != nil || b.String() != c.text || url != c.url || tools != c.tools {
			t.Errorf("%v: %q, %s, %s, %v; want %q, %s, %s", c.at, b.String(), url, tools, err, c.text, c.url, c.tools)
		}
	}
}

// The memory for requests has a minimum, which is accepted.
func TestTheLeastMemoryForRequests(t *testing.T) {
	if n, err := requestMemory("64M"); n != leastRequestMemory || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for asked, want := range map[string]string{"65535K": `--request-memory "65535K": want 64.0 MiB or more`,
		"x": `--request-memory "x": `} {
		if _, err := requestMemory(asked); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", asked, err, want)
		}
	}
}

// The bar at every share: its cells, the rounded share, and no time if nothing is known about the rest.
func TestSharesOfABar(t *testing.T) {
	p, _, _ := barAt(60)
	for done, want := range map[int64]string{
		0: "loading [........................]   0 %  n",
		1: "loading [###.....................]  12 %  n  7s left",
		7: "loading [#####################...]  87 %  n  1s left",
		8: "loading [########################] 100 %  n",
	} {
		took := map[int64]time.Duration{0: time.Hour, 1: time.Second, 7: 7 * time.Second, 8: time.Hour}[done]
		if got := p.line(done, 8, took, "n"); got != want {
			t.Errorf("%d of 8: %q, want %q", done, got, want)
		}
	}
}
