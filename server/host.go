package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"sparrow/internal/wire"
)

// checkHost refuses requests whose header Host is not a name of the server. A malicious web page can make its own name
// resolve to an address of the visitor's machine (DNS rebinding): the browser then sends requests of that page to this
// server, with the page's name as Host. Addresses and localhost are always accepted, because an attacker cannot control
// them.
func (s *Server) checkHost(r *http.Request) error {
	names := s.options.AllowHosts
	if names == nil {
		return nil
	}
	host := hostName(r.Host)
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" ||
		strings.HasSuffix(host, ".localhost") {
		return nil
	}
	for _, name := range names {
		if host == hostName(name) {
			return nil
		}
	}
	return wire.NewError(wire.CodeWrongHost, "",
		"the request was sent to %.200q, which is not a name of this server; use its address, or start it with "+
			"--allow-host %.200s", host, host)
}

// hostName returns a Host in lower case, without its port, brackets and a trailing dot.
func hostName(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil && strings.Trim(port, "0123456789") == "" {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// validHost reports whether a name can occur in a Host.
func validHost(name string) bool {
	return hostName(name) == strings.ToLower(name) && name != "" && !strings.ContainsAny(name, "/*@ \t\r\n")
}
