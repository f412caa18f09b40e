package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/server"
)

// transferFlags configures disaggregated serving: one server computes prompts and another continues them.
type transferFlags struct {
	role, listenAt, host string
	from                 []string
}

// prefillHostCache is the host memory for pages that other servers read, if --host-cache is not set.
const prefillHostCache = "2G"

func (f *transferFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.role, "role", "", "prefill: compute prompts and serve their pages to decode servers; decode: "+
		"pull these pages if a request has kv_transfer_params. Both also answer whole requests")
	s.StringVar(&f.listenAt, "transfer-listen", "127.0.0.1:5600",
		"address at which a prefill server serves pages; every client that can connect and has the text of a prompt "+
			"can read its pages")
	s.StringVar(&f.host, "transfer-host", "",
		"address that a prefill server gives to decode servers; default the one it listens on")
	s.StringSliceVar(&f.from, "transfer-from", nil,
		"networks from which a decode server pulls pages, such as 10.0.0.0/8; without it loopback and private networks")
}

// check parses the flags and sets those of the tiers that the role needs.
func (f *transferFlags) check(given *pflag.FlagSet, t *tierFlags) (o server.Transfer, err error) {
	o.Role = server.Role(f.role)
	err = errors.Join(
		onlyWith(given, o.Role == server.RolePrefill, "--role prefill", "transfer-listen", "transfer-host"),
		onlyWith(given, o.Role == server.RoleDecode, "--role decode", "transfer-from"))
	if err != nil {
		return o, err
	}
	switch o.Role {
	case server.RoleBoth:
		return o, nil
	case server.RoleDecode:
		t.pull = true
		o.From = server.PrivateNetworks()
		if len(f.from) > 0 {
			o.From = nil
		}
		for _, text := range f.from {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return o, fmt.Errorf("--transfer-from %s: want a network such as 10.0.0.0/8", text)
			}
			o.From = append(o.From, p)
		}
		return o, nil
	case server.RolePrefill:
		t.keepEarly = true
		if t.hostCache == "" {
			t.hostCache = prefillHostCache
		}
		o.ID = rand.Text()
		return o, nil
	}
	return o, fmt.Errorf("--role %s: want prefill or decode; without --role a server does both", f.role)
}

// announce prints the server's role, if it has one.
func (f *transferFlags) announce(b *strings.Builder, o *server.Transfer) {
	switch o.Role {
	case server.RolePrefill:
		fmt.Fprintf(b, "role     prefill: others pull pages of prompts from %s\n",
			net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	case server.RoleDecode:
		fmt.Fprintf(b, "role     decode: pages of prompts are pulled from servers in %v\n", o.From)
	}
}

// serve starts serving KV pages if the server's role is prefill, and stores the address in o.
func (f *transferFlags) serve(ctx context.Context, e *sparrow.Engine, o *server.Transfer) error {
	if o.Role != server.RolePrefill {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", f.listenAt)
	if err != nil {
		return fmt.Errorf("--transfer-listen %s: %w", f.listenAt, err)
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err == nil {
		o.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		l.Close()
		return fmt.Errorf("--transfer-listen %s: %w", f.listenAt, err)
	}
	if o.Host = f.host; o.Host == "" {
		if ip := net.ParseIP(host); ip.IsUnspecified() {
			l.Close()
			return fmt.Errorf("--transfer-listen %s: the address means all interfaces; give the address that other "+
				"servers can reach with --transfer-host", f.listenAt)
		}
		o.Host = host
	}
	return e.ServePages(l)
}
