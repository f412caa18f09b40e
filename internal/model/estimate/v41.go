package estimate

import (
	"strings"

	"sparrow/internal/kv"
	"sparrow/internal/model/config"
	"sparrow/internal/model/v41"
	"sparrow/layout"
)

// v41Rest returns the bytes of weights other than the layers' experts on a GPU with the given number of heads: FP8,
// whose blocks are merged to 128 x 128 with four bytes for a scale, but bf16 for the vocabulary, routers, compressors,
// indexer keys and hyper-connections. The experts of the drafting stages are included.
func v41Rest(c *config.V41, heads, ranks float64) float64 {
	const fp8 = 1 + 4./(128*128)
	a, f, x := c.Attention, c.FFN, c.Indexer
	h, dim, streams := float64(c.Hidden), float64(a.Dim), float64(c.Hyper.Streams)
	lora, together := float64(a.QLora), float64(a.Heads/a.Groups)
	low := heads / together * float64(a.OLora)
	layer := func(experts int) float64 {
		return 2*2*streams*(2+streams)*streams*h + 2*float64(experts)*h +
			fp8*((lora+dim)*h+heads*dim*lora+low*together*dim+low*h+3*float64(f.Inner*f.Shared)/ranks*h)
	}
	total := 2*2*float64(c.Vocab)*h/ranks + float64(c.Layers)*layer(f.Experts)
	for _, l := range c.EntrySources {
		total += 2 * (dim*h*float64(min(a.Ratios[l], 2)) + layout.IndexDim*dim)
	}
	total += float64(len(c.IndexSources)) * (fp8*float64(x.Heads*x.Dim)*lora + 2*float64(x.Heads)*h)
	total += float64(len(c.Engram.Layers)) * fp8 * (streams + 1) * h * float64(c.Engram.Columns()*c.Engram.Dim)
	if d := c.DSpark; d != nil && c.NextN > 0 {
		e := expertsOf(c)
		total += float64(d.Stages)*(layer(d.Experts)+float64(d.Experts)/ranks*bytesOf(releasedFormat(c), e.values())) +
			fp8*float64(len(d.Taps))*h*h + 2*2*float64(c.Vocab*d.Rank)
	}
	return total
}

// tableBytes returns the size of n-gram tables in host memory: e4m3 and a scale for each 32 values.
func tableBytes(d config.Description) (total int64) {
	if c, ok := d.(*config.V41); ok {
		for _, rows := range c.Engram.Rows {
			total += int64(rows) * int64(c.Engram.Dim+c.Engram.Dim/32)
		}
	}
	return total
}

// v41Cache returns the bytes of cache of the planned sequences: entries and keys of the layers that compute them, and
// the windows of all layers.
func v41Cache(c *config.V41) int64 {
	const page = layout.V4PageSize
	s := v41.SizesOf(c, layout.V41Entry{}, layout.IndexV41{}, page)
	windows := kv.Window{Pages: 1, Tokens: c.Attention.Window}.PerSequence(page)
	return Sequences * (s.Page*(Tokens/page+1) + int64(windows)*s.Window + s.State)
}

// v41Row returns the bytes of a step for each row of a prompt: residual streams, the tensors of a layer's attention,
// selections at both levels, and scores.
func v41Row(c *config.V41, heads float64) float64 {
	a := c.Attention
	groups := heads / float64(a.Heads/a.Groups)
	streams := 2 * float64(c.Hyper.Streams*c.Hidden)
	entries := 2 * 3 * float64(a.Dim+layout.IndexDim) // entries of ratio 1; there are half as many entries of ratio 2
	return streams + 2*4*float64(c.Hidden) + 2*2*heads*float64(a.Dim) + 2*groups*float64(a.OLora) + entries +
		4*2*float64(a.Dim) + 4*float64(c.Indexer.TopK+c.Candidates.Blocks) + 4*float64(c.Indexer.Heads*c.Indexer.Dim) +
		4*Tokens
}

// gpuName returns the name of a machine without its settings, for suggestions.
func gpuName(asked string) string {
	name, _, _ := strings.Cut(asked, ",")
	return name
}
