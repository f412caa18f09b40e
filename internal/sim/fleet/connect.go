package fleet

import (
	"context"
	"fmt"
	"net/http"

	"sparrow/api/openai/client"
)

// Info is the part of a real server's description (/server_info) with the sizes that a simulation of the server must
// use.
type Info struct {
	Model         string `json:"served_model_name"`
	PageTokens    int    `json:"page_size"`
	CacheTokens   int    `json:"max_total_num_tokens"`
	ContextTokens int    `json:"context_length"`
	StepTokens    int    `json:"max_prefill_tokens"`
	MaxRunning    int    `json:"max_running_requests"`
	MaxQueue      int    `json:"max_queued_requests"`
}

// servers holds clients of real servers with the same model.
type servers struct {
	info      Info // description of the first server
	clients   []*client.Client
	transport *http.Transport
}

// connect reads the descriptions of all servers. key is their bearer key, or empty; streams is the maximum number of
// concurrent answers from one server.
func connect(ctx context.Context, urls []string, key string, streams int) (*servers, error) {
	if len(urls) == 0 {
		return nil, fmt.Errorf("no servers were given; want at least one")
	}
	s := &servers{transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	for i, url := range urls {
		c, err := client.New(url, key, s.transport)
		if err != nil {
			return nil, err
		}
		var info Info
		if err := c.Call(ctx, http.MethodGet, "/server_info", nil, &info); err != nil {
			return nil, err
		}
		if info.PageTokens < 1 || info.CacheTokens < info.PageTokens || info.ContextTokens < 1 {
			return nil, fmt.Errorf("%s/server_info reports a cache of %d tokens in pages of %d and contexts of %d; "+
				"want sizes of at least 1", c.Base(), info.CacheTokens, info.PageTokens, info.ContextTokens)
		}
		if i > 0 && info != s.info {
			return nil, fmt.Errorf("%s differs from %s: %+v and %+v; want servers of one model with the same flags",
				url, urls[0], info, s.info)
		}
		s.info, s.clients = info, append(s.clients, c)
	}
	return s, nil
}

func (s *servers) close() { s.transport.CloseIdleConnections() }
