package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"sparrow/internal/wire"
)

// checkHost refuses requests whose Host is not a name of the server. An attacker's web page can make its own name
// resolve to an address of the visitor's machine (DNS rebinding); the browser then treats this server as part of that
// page, but still sends the page's name as Host. Addresses are always accepted, because no other name resolves to them,
// and so is localhost.
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

// hostName returns a Host in lower case, without its port, the brackets of an address and a trailing dot.
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
