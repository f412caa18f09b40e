package server

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// Disaggregated serving: one server computes a prompt and another continues it. A router sends the request to the first
// server with kv_transfer_params.do_remote_decode and one token to generate. It copies kv_transfer_params of the
// response to the request for the second server. That server reads the prompt's KV pages from the address in them, and
// computes missing ones.

// Role is the role of a server in disaggregated serving.
type Role string

// Roles. In every role a server also handles complete requests.
const (
	RoleBoth    Role = ""        // the server ignores kv_transfer_params
	RolePrefill Role = "prefill" // the server computes prompts, and serves their KV pages
	RoleDecode  Role = "decode"  // the server reads KV pages, and continues requests
)

// Transfer holds the settings for disaggregated serving.
type Transfer struct {
	Role Role
	// Host and Port are the address of the server for KV pages, which responses to prefill requests contain.
	Host string
	Port int
	// ID identifies the engine in responses.
	ID string
	// From lists the networks from which the server may read KV pages.
	From []netip.Prefix
}

// PrivateNetworks returns the private and loopback networks.
func PrivateNetworks() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
		"fc00::/7"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// transferOf returns the address of this server for KV pages, for the response. It is nil if it was not requested or if
// this server does not serve pages.
func (s openaiAPI) transferOf(o *openai.Options) *openai.KVTransfer {
	t := &s.options.Transfer
	if t.Role != RolePrefill || o.KVTransfer == nil || !o.KVTransfer.RemoteDecode {
		return nil
	}
	return &openai.KVTransfer{RemotePrefill: true, EngineID: t.ID, BlockIDs: []string{}, Host: t.Host, Port: t.Port}
}

// flushed delays a response until other servers can read the KV pages of its prompt.
func (s openaiAPI) flushed(r *http.Request, t *openai.KVTransfer,
	response func(*result) (any, error)) func(*result) (any, error) {
	if t == nil {
		return response
	}
	return func(res *result) (any, error) {
		s.engine.Settle(r.Context())
		return response(res)
	}
}

// pullFrom makes requests read the KV pages of their prompts from the address in kv_transfer_params.
func (s openaiAPI) pullFrom(o *openai.Options, ask []sparrow.Request) error {
	t, k := &s.options.Transfer, o.KVTransfer
	if t.Role != RoleDecode || k == nil || !k.RemotePrefill || k.Host == "" || k.Port == 0 {
		return nil
	}
	at, err := netip.ParseAddr(k.Host)
	if err != nil {
		return wire.NewError(wire.CodeInvalidValue, "kv_transfer_params.remote_host",
			"%.100q is not an address; send the address of the server that computed the prompt", k.Host)
	}
	for _, p := range t.From {
		if p.Contains(at.Unmap()) {
			for i := range ask {
				ask[i].PagesFrom = net.JoinHostPort(at.String(), strconv.Itoa(k.Port))
			}
			return nil
		}
	}
	return wire.NewError(wire.CodeInvalidValue, "kv_transfer_params.remote_host",
		"%s is not in a network that this server pulls pages from; its operator can allow it with "+
			"--transfer-from", at)
}
