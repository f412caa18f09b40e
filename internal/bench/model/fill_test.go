package model

import (
	"context"
	"testing"

	"sparrow/internal/attn/mla"
	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// newFilled makes the caches of two layers and fills them.
func newFilled(t *testing.T) ([]mla.Cache, error) {
	t.Helper()
	const pages, tokens = 40, 64
	var mem host.Memory
	pool := func(k layout.Kind, pageBytes int) kernel.Pool {
		m, err := kernel.New(mem, kernel.U8, pages, pageBytes)
		if err != nil {
			t.Fatal(err)
		}
		return kernel.Pool{Mem: m, Layout: k, PageTokens: tokens}
	}
	var out []mla.Cache
	for range 2 {
		out = append(out, mla.Cache{Main: pool(layout.BF16Row1152, layout.BF16{}.PageBytes(tokens)),
			Index: pool(layout.IndexPage132, layout.IndexFP8{}.PageBytes(tokens))})
	}
	var pools [][]kernel.Pool
	for _, c := range out {
		pools = append(pools, []kernel.Pool{c.Main, c.Index})
	}
	return out, fill(context.Background(), mem, pools, 7)
}

func bytesOf(p kernel.Pool, page int) []byte { return host.Bytes(p.Mem.Slice(page, page+1)) }
