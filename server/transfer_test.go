package server

import (
	"encoding/json"
	"strings"
	"testing"

	"sparrow/api/openai"
)

// sidecar is the request that llm-d's sidecar sends to the prefill server.
const sidecar = `{"model":"sparrow-test","messages":[{"role":"user","content":"hi"}],"max_tokens":1,"stream":false,
	"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,
	"remote_block_ids":null,"remote_host":null,"remote_port":null}}`

// The parameters in the response of a prefill server contain the address of its pages. The client sends them unchanged
// to a decode server.
func TestTransferParametersTravel(t *testing.T) {
	first := newFake(saying("x"))
	_, prefill := start(t, first, Options{Transfer: Transfer{Role: RolePrefill, Host: "10.1.2.3", Port: 5600,
		ID: "e1"}})
	second := newFake(saying("x"))
	_, decode := start(t, second, Options{Transfer: Transfer{Role: RoleDecode, From: PrivateNetworks()}})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		body := sidecar
		if path == "/v1/completions" {
			body = strings.Replace(body, `"messages":[{"role":"user","content":"hi"}]`, `"prompt":"hi"`, 1)
		}
		before := first.settled
		got := post(t, prefill.URL+path, body)
		var answer struct {
			Params json.RawMessage `json:"kv_transfer_params"`
		}
		if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != 200 {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
		want := `{"do_remote_decode":false,"do_remote_prefill":true,"remote_engine_id":"e1","remote_block_ids":[],` +
			`"remote_host":"10.1.2.3","remote_port":5600}`
		if string(answer.Params) != want || first.settled != before+1 {
			t.Errorf("%s: %s, settled %d times", path, answer.Params, first.settled-before)
		}
		var request map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &request); err != nil {
			t.Fatal(err)
		}
		request["kv_transfer_params"] = answer.Params
		again, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if got := post(t, decode.URL+path, string(again)); got.status != 200 ||
			second.last(t).PagesFrom != "10.1.2.3:5600" {
			t.Errorf("%s: %d, pages from %q", path, got.status, second.last(t).PagesFrom)
		}
	}
}

// Servers without a role ignore the transfer parameters, and a decode server does not connect to addresses in other
// networks.
func TestTransferParametersAreNotFollowedElsewhere(t *testing.T) {
	e := newFake(saying("x"))
	_, plain := start(t, e, Options{})
	if got := post(t, plain.URL+"/v1/chat/completions", sidecar); got.status != 200 ||
		strings.Contains(got.body, "kv_transfer_params") || e.settled != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	_, decode := start(t, e, Options{Transfer: Transfer{Role: RoleDecode, From: PrivateNetworks()}})
	for host, status := range map[string]int{"8.8.8.8": 400, "example.org": 400, "192.168.1.1": 200, "::1": 200,
		"::ffff:10.0.0.1": 200, "::ffff:8.8.8.8": 400, "": 200} {
		params, err := json.Marshal(openai.KVTransfer{RemotePrefill: true, Host: host, Port: 5600})
		if err != nil {
			t.Fatal(err)
		}
		body := `{"model":"sparrow-test","prompt":"hi","kv_transfer_params":` + string(params) + `}`
		if got := post(t, decode.URL+"/v1/completions", body); got.status != status {
			t.Errorf("%q: %d %s", host, got.status, got.body)
		}
	}
}
