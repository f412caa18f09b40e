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

// Prompts can be computed by one server and continued by another. A router sends the request to the first with
// kv_transfer_params.do_remote_decode and one token to generate; the answer has kv_transfer_params of its own, with
// which the router sends the request to the second. That one reads the prompt's pages from the address in them, and
// computes missing ones.

// Role is the part of a server in requests that two servers share.
type Role string

// The roles. Every server answers whole requests, whatever its role.
const (
	RoleBoth    Role = ""        // it ignores kv_transfer_params
	RolePrefill Role = "prefill" // it computes prompts and serves their pages
	RoleDecode  Role = "decode"  // it pulls pages and continues
)

// Transfer is how a server takes part.
type Transfer struct {
	Role Role
	// Host and Port are where others pull pages, as prefill answers say.
	Host string
	Port int
	// ID names the engine in answers.
	ID string
	// From are the networks that pages are pulled from; others are not connected to.
	From []netip.Prefix
}

// PrivateNetworks are the networks of machines that trust each other.
func PrivateNetworks() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
		"fc00::/7"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// transferOf returns the address for reading pages that an answer contains; nil where it was not requested or this
// server does not serve pages.
func (s openaiAPI) transferOf(o *openai.Options) *openai.KVTransfer {
	t := &s.options.Transfer
	if t.Role != RolePrefill || o.KVTransfer == nil || !o.KVTransfer.RemoteDecode {
		return nil
	}
	return &openai.KVTransfer{RemotePrefill: true, EngineID: t.ID, BlockIDs: []string{}, Host: t.Host, Port: t.Port}
}

// flushed is a response that is written once the pages of its prompt can be pulled.
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

// pullFrom makes requests read their pages from the address in kv_transfer_params.
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
		"%s is in none of the networks that this server pulls pages from; its operator can allow it with "+
			"--transfer-from", at)
}
