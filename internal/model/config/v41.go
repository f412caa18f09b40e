package config

import (
	"encoding/json"
	"reflect"
	"slices"

	"sparrow/internal/model/engram"
)

// V41 describes a model of the family deepseek_v41: the network of V4 with compression ratios 1 and 2, entries and
// selections that several layers use, two-level selection and n-gram tables. Names follow the v41 spec, 1.1.
type V41 struct {
	V4
	EntrySources []int // layers that compute entries; others with a ratio read those of the last one before
	IndexSources []int // layers that select; others with a ratio use the selection of the last one before
	Candidates   Candidates
	Engram       engram.Shape
}

// Candidates is the first level of selection: one layer selects blocks of entries, and later layers that read the same
// entries select inside these blocks.
type Candidates struct {
	Source int // number of the layer, which itself selects among all entries
	Blocks int // maximum number of selected blocks
	Size   int // entries of a block
}

// EntrySource returns the layer whose entries layer i reads, or -1 if it reads none.
func (c *V41) EntrySource(i int) int { return c.source(c.EntrySources, i) }

// IndexSource returns the layer whose selection layer i uses, or -1 if it uses none.
func (c *V41) IndexSource(i int) int { return c.source(c.IndexSources, i) }

func (c *V41) source(list []int, i int) int {
	out := -1
	if c.Attention.Ratios[i] > 0 {
		for _, l := range list {
			if l <= i {
				out = l
			}
		}
	}
	return out
}

// Within reports whether layer i selects only inside the candidate blocks.
func (c *V41) Within(i int) bool {
	return c.IndexSource(i) == i && i > c.Candidates.Source && c.EntrySource(i) == c.EntrySource(c.Candidates.Source)
}

// rawV41 has the fields of a V4.1 config.json that V4 does not have.
type rawV41 struct {
	EntrySources    []int `json:"kv_source_layer_ids"`
	IndexSources    []int `json:"index_source_layer_ids"`
	CandidateSource *int  `json:"candidate_source_layer_id"`
	CandidateBlocks *int  `json:"candidate_topk_blocks"`
	CandidateSize   *int  `json:"candidate_block_size"`

	EngramLayers     []int `json:"engram_layer_ids"`
	EngramRows       []int `json:"engram_num_embeddings"`
	EngramOrders     *int  `json:"engram_max_ngram_size"`
	EngramHeads      *int  `json:"engram_n_heads"`
	EngramDim        *int  `json:"engram_head_dim"`
	EngramBase       *int  `json:"engram_vocab_size"`
	EngramCompressed *int  `json:"engram_compressed_vocab_size"`
	EngramPad        *int  `json:"engram_pad_token_id"`

	Image *int `json:"image_token_id"`

	DraftExperts *int `json:"dspark_n_routed_experts"`
	DraftChosen  *int `json:"dspark_num_experts_per_tok"`

	Quantization rawQuantization `json:"quantization_config"`
}

// v41Aliases maps field names of the official inference code to the names of the release.
var v41Aliases = map[string]string{
	"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_mtp_layers": "num_nextn_predict_layers",
	"norm_eps": "rms_norm_eps", "window_size": "sliding_window", "kv_source_layers": "kv_source_layer_ids",
	"index_source_layers": "index_source_layer_ids", "candidate_source_layer": "candidate_source_layer_id",
	"engram_pad_id": "engram_pad_token_id", "dspark_n_activated_experts": "dspark_num_experts_per_tok",
	"route_scale": "routed_scaling_factor",
}

// renameV41 renames fields of config.json to the names of the release.
func renameV41(fields map[string]json.RawMessage) {
	for from, to := range v41Aliases {
		if v, ok := fields[from]; ok && fields[to] == nil {
			fields[to] = v
			delete(fields, from)
		}
	}
}

func (b *builder) describeV41() *V41 {
	renameV41(b.fields)
	v, more := v4Builder{builder: b}, rawV41{}
	b.read("", b.fields, reflect.ValueOf(&v.in).Elem())
	b.read("", b.fields, reflect.ValueOf(&more).Elem())
	stages := or(v.in.NextN, 0)
	v.in.NextN, v.in.HashLayers = nil, new(int)
	c := &V41{V4: *v.build()}
	v.stages(c, stages, &more)
	c.Family, c.Image, c.Pow2Rows = DeepseekV41, more.Image, more.Quantization.pow2Rows()
	for i, m := range v.in.Ratios[min(c.Layers, len(v.in.Ratios)):] {
		if m != 0 {
			b.addProblem("compress_ratios[%d] is %d, want 0 after the %d layers", c.Layers+i, m, c.Layers)
		}
	}
	v.sharing(c, &more)
	v.engram(c, &more)
	return c
}

// stages reads the DSpark head, which has num_nextn_predict_layers stages. compress_ratios has either a zero for each
// stage, or no values for stages.
func (b *v4Builder) stages(c *V41, n int, r *rawV41) {
	if n == 0 {
		return
	}
	if n < 0 || n > mostLayers {
		b.addProblem("num_nextn_predict_layers is %d, want 0 to %d", n, mostLayers)
		return
	}
	if ratios := b.in.Ratios; len(ratios) == c.Layers {
		b.in.Ratios = append(slices.Clone(ratios), make([]int, n)...)
		defer func() { b.in.Ratios = ratios }()
	}
	if c.DSpark = b.dspark(&c.V4); c.DSpark == nil {
		b.addProblem("num_nextn_predict_layers is %d, but there are no dspark_ fields; want 0, or a DSpark head", n)
		return
	}
	d := c.DSpark
	if d.Stages != n {
		b.addProblem("num_nextn_predict_layers is %d, but compress_ratios has %d entries after the %d layers; want "+
			"the same number", n,
			d.Stages, c.Layers)
	}
	d.Experts = b.count("dspark_n_routed_experts", r.DraftExperts, c.FFN.Experts)
	d.Chosen = b.count("dspark_num_experts_per_tok", r.DraftChosen, c.FFN.TopK)
	if len(d.Taps) > 0 && d.Taps[0] == 0 {
		b.addProblem("dspark_target_layer_ids is %v, want layers from 1 on: the stages read the inputs of these layers",
			d.Taps)
	}
}

// sharing reads the lists of layers that compute entries and of layers that select.
func (b *v4Builder) sharing(c *V41, r *rawV41) {
	c.EntrySources = b.sources(c, "kv_source_layer_ids", r.EntrySources)
	c.IndexSources = b.sources(c, "index_source_layer_ids", r.IndexSources)
	c.Candidates = Candidates{Source: or(r.CandidateSource, -1),
		Blocks: b.count("candidate_topk_blocks", r.CandidateBlocks, mostSelected),
		Size:   b.count("candidate_block_size", r.CandidateSize, mostSelected)}
	if len(c.EntrySources) == 0 || len(c.IndexSources) == 0 {
		return
	}
	ratios := c.Attention.Ratios
	for i, m := range ratios {
		if m == 0 {
			continue
		}
		switch e, x := c.EntrySource(i), c.IndexSource(i); {
		case e < 0 || ratios[e] != m:
			b.addProblem("layer %d reads entries of ratio %d, but kv_source_layer_ids has no layer of that ratio at "+
				"or just before it", i, m)
		case x < e:
			b.addProblem("layer %d reads entries of layer %d, but index_source_layer_ids has no layer from that "+
				"one on that selects among these entries", i, e)
		}
	}
	switch k := c.Candidates; {
	case r.CandidateSource == nil:
		b.missing("candidate_source_layer_id")
	case !slices.Contains(c.IndexSources, k.Source) || !slices.Contains(c.EntrySources, k.Source):
		b.addProblem("candidate_source_layer_id is %d, want a layer that compresses and selects", k.Source)
	case k.Blocks*k.Size-(k.Size-1) < c.Indexer.TopK:
		b.addProblem("candidate_topk_blocks is %d with blocks of %d entries; want enough blocks for index_topk, %d, "+
			"entries, where the last block may have only one entry", k.Blocks, k.Size, c.Indexer.TopK)
	}
}

// sources reads a list of numbers of layers that have a ratio.
func (b *v4Builder) sources(c *V41, name string, list []int) []int {
	if len(list) == 0 {
		b.missing(name)
		return nil
	}
	for i, l := range list {
		if l < 0 || l >= c.Layers || i > 0 && l <= list[i-1] || c.Attention.Ratios[l] == 0 {
			b.addProblem("%s is %v, want ascending numbers of layers with a ratio above 0", name, list)
			return nil
		}
	}
	return list
}

// mostGram is the maximum length of n-grams in tokens; released tables have 4.
const mostGram = 8

// engram reads the shape of the n-gram tables.
func (b *v4Builder) engram(c *V41, r *rawV41) {
	if len(r.EngramLayers) == 0 {
		return
	}
	s := engram.Shape{Layers: r.EngramLayers, Rows: r.EngramRows,
		Orders:     b.count("engram_max_ngram_size", r.EngramOrders, mostGram),
		Heads:      b.count("engram_n_heads", r.EngramHeads, mostExperts),
		Dim:        b.positive("engram_head_dim", r.EngramDim),
		Base:       b.positive("engram_vocab_size", r.EngramBase),
		Compressed: b.positive("engram_compressed_vocab_size", r.EngramCompressed),
		Pad:        or(r.EngramPad, -1)}
	for i, l := range s.Layers {
		if l < 0 || l >= c.Layers || i > 0 && l <= s.Layers[i-1] {
			b.addProblem("engram_layer_ids is %v, want ascending numbers of the %d layers", s.Layers, c.Layers)
			return
		}
	}
	switch {
	case s.Orders*s.Heads*s.Dim*s.Base*s.Compressed == 0: // the problem was added above
	case s.Orders < 2:
		b.addProblem("engram_max_ngram_size is %d, want at least 2", s.Orders)
	case s.Pad < 0 || s.Pad >= c.Vocab:
		b.addProblem("engram_pad_token_id is %d, want a token of the vocabulary of %d", s.Pad, c.Vocab)
	case s.Words() > mostExperts:
		b.addProblem("engram tables have %d rows for each token, want at most %d", s.Words(), mostExperts)
	default:
		if err := s.Check(); err != nil {
			b.addProblem("engram_num_embeddings: %v", err)
		}
	}
	c.Engram = s
}
