package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"sparrow/record"
)

// Family is the architecture of a checkpoint.
type Family uint8

// V3.2 and GLM share one attention ("DSA": MLA plus indexer); V4 has its own. Three families have MLA without an
// indexer (Dense), one selects pools of tokens (Pooled).
const (
	FamilyUnset Family = iota
	DeepSeekV32
	GLMMoeDSA
	DeepSeekV4
	DeepSeekV3
	KimiK2
	GLM4MoeLite
	GLM5Next    // linear attention, and MLA without rotation over pooled index keys
	DeepSeekV41 // V4 with entries and selections that layers share
)

var families = enum[Family]{"model family", []string{"", "deepseek_v32", "glm_moe_dsa", "deepseek_v4", "deepseek_v3",
	"kimi_k2", "glm4_moe_lite", "glm5_next", "deepseek_v41"}}

func (f Family) String() string                { return families.text(f) }
func (f Family) MarshalText() ([]byte, error)  { return families.marshal(f) }
func (f *Family) UnmarshalText(t []byte) error { return families.unmarshal(f, t) }

// Model holds the properties of a checkpoint that plans depend on.
type Model struct {
	Family     Family `json:"family"`
	Heads      int    `json:"heads"`       // query heads per rank
	K          int    `json:"index_topk"`  // maximum keys of a query (V4: entries; pooled models: pools); 0 if dense
	IndexHeads int    `json:"index_heads"` // index heads before padding
	QKDim      int    `json:"qk_dim"`      // per-head query and key width of the dense form
	VDim       int    `json:"v_dim"`       // per-head value width of the dense form
	Layers     int    `json:"layers"`
	NextN      int    `json:"next_n"` // drafting layers after the main layers
	// Block is how many tokens the drafting layers propose in one pass (a DSpark head, dspark spec 3); such layers read
	// entries that passes of the main layers store. 0 means one token in a pass, drafted from the hidden state of the
	// token before (NextN).
	Block   int `json:"block,omitempty"`
	Context int `json:"context"` // maximum sequence length in tokens
	// LayerSupportsDense means that the attention layer implements the dense form in addition to the form in latent
	// space.
	LayerSupportsDense bool       `json:"layer_supports_dense"`
	Share              LayerShare `json:"share,omitzero"`
	// V4 only: sliding window in tokens and compression ratio per layer (0, 4
	// or 128).
	Window int   `json:"window,omitempty"`
	Ratios []int `json:"ratios,omitempty"`
	// Linear states which layers have linear attention, with a state for each sequence instead of cached rows; nil
	// means no layer.
	Linear []bool `json:"linear,omitempty"`
	// LinearGroups means that the decays of linear attention are not too small to compute positions in groups.
	LinearGroups bool `json:"linear_groups,omitempty"`
	// Sharing states which caches of other layers a layer reads. Only DeepSeek-V4.1 has it.
	Sharing Sharing `json:"sharing,omitzero"`
	// IndexFP4 means that index keys are stored in four bits.
	IndexFP4 bool `json:"index_fp4,omitempty"`
	// Experts describes the mixtures of experts of the feed-forward blocks; zero if it is not known.
	Experts ExpertFacts `json:"experts,omitzero"`
	// Ranks is the number of ranks that share the model; 0 and 1 are one.
	Ranks int `json:"ranks,omitempty"`
	// Division states how the ranks share attention; unset if there is one rank.
	Division Division `json:"division,omitempty"`
	// GroupHeads is the number of consecutive heads that must be on the same rank: the heads of an output group of V4.
	// 0 means 1.
	GroupHeads int `json:"group_heads,omitempty"`
	// PaddedHeads is the number of padding heads of all ranks together, if the number of heads is not divisible by the
	// number of ranks. Padding heads have zero weights and do not change the result.
	PaddedHeads int `json:"padded_heads,omitempty"`
}

// ByRequests reports whether each rank computes attention for its own requests.
func (m *Model) ByRequests() bool { return m.Ranks > 1 && m.Division == ByRequests }

// ExpertFacts describes mixtures of experts.
type ExpertFacts struct {
	Count  int    `json:"count,omitempty"`  // experts of a layer
	Chosen int    `json:"chosen,omitempty"` // experts that a row uses
	Dense  []bool `json:"dense,omitempty"`  // layers without experts
}

// Choices returns the sizes of the selections and of the lists of chosen experts in each layer, for recording.
func (m *Model) Choices() record.Shape {
	s := record.Shape{TopK: m.K, Experts: m.Experts.Count, Chosen: m.Experts.Chosen,
		Layers: make([]record.LayerShape, m.Layers)}
	if m.Dense() {
		s.Dense = m.Context
	}
	if x := &m.Sharing; m.V41() {
		s.Blocks, s.BlockKeys, s.BlockLayer = x.Blocks, x.BlockKeys, x.Candidates
	}
	for i := range s.Layers {
		l := &s.Layers[i]
		l.As = i
		l.Experts = m.Experts.Count > 0 && (i >= len(m.Experts.Dense) || !m.Experts.Dense[i])
		switch {
		case m.V4():
			l.Window = m.Window
			if i < len(m.Ratios) {
				l.Group = m.Ratios[i]
			}
			switch {
			case m.V41():
				l.As = m.IndexSource(i)
			case l.Group != ratio4:
				l.As = -1
			}
		case m.LinearAt(i):
			l.As = -1
		case m.Pooled():
			l.Group = poolTokens
		case m.Share.Shared(i) && i > 0:
			l.As = s.Layers[i-1].As
		}
	}
	return s
}

// LayerShare states which layers reuse the indices of an earlier layer. Of Factor, Types, Pattern and Freq, the
// first one that is set is used.
type LayerShare struct {
	Factor  int    `json:"factor,omitempty"`  // if above 1, layers whose number is not a multiple of it reuse indices
	Types   []bool `json:"types,omitempty"`   // for each layer, whether it reuses indices
	Pattern string `json:"pattern,omitempty"` // one letter for each layer; S: the layer reuses indices
	Freq    int    `json:"freq,omitempty"`
	Offset  int    `json:"offset,omitempty"`
}

// Shared reports whether layer l reuses indices (dispatch section 1).
func (s LayerShare) Shared(l int) bool {
	switch {
	case s.Factor > 1:
		return l%s.Factor != 0
	case len(s.Types) > 0:
		return l < len(s.Types) && s.Types[l]
	case s.Pattern != "":
		return l < len(s.Pattern) && s.Pattern[l] == 'S'
	case s.Freq > 1 && s.Offset > 0:
		return max(l-s.Offset+1, 0)%s.Freq != 0
	case s.Freq > 1:
		return max(l-1, 0)%s.Freq != 0
	}
	return false
}

// ratio4 and ratio128 are the numbers of tokens that V4 compresses to one entry. The indexer selects among entries of
// ratio 4; queries attend to all entries of ratio 128.
const (
	ratio4   = 4
	ratio128 = 128
)

// windowWidth returns the width of a row of V4's window indices, a multiple of 64.
func (m *Model) windowWidth() int { return roundUp(m.Window, 64) }

// heavyWidth returns the width of a row of V4's indices of ratio 128: the number of compressed entries of the given
// number of tokens, rounded up.
func (m *Model) heavyWidth(tableTokens int) int { return roundUp(max(tableTokens/ratio128, 1), 64) }

// MostHeavy returns heavyWidth for a sequence of maximum length.
func (m *Model) MostHeavy() int { return m.heavyWidth(m.Context) }

// V4 reports whether the model has the attention of DeepSeek-V4, also in V4.1 (dispatch section 13).
func (m *Model) V4() bool { return m.Family == DeepSeekV4 || m.Family == DeepSeekV41 }

// layouts returns the layouts in which rows of this model can be cached.
func (m *Model) layouts() Set[Layout] {
	switch {
	case m.V41():
		return v41Layouts
	case m.V4():
		return v4Layouts
	case m.Pooled():
		return nopeLayouts
	}
	return dsaLayouts
}

// ShortKeys returns the largest number of visible tokens for which every key is selected regardless of its score: K
// tokens, or for V4 as many tokens as fill K entries of the ratio-4 stream.
func (m *Model) ShortKeys() int {
	switch {
	case m.V4():
		return m.indexRatio()*m.K + m.indexRatio() - 1
	case m.Pooled():
		return poolTokens*m.K + poolTokens - 1
	case m.Dense():
		return math.MaxInt32
	}
	return m.K
}

// IndexKeys returns the number of indexer keys that a sequence of n tokens has.
func (m *Model) IndexKeys(n int) int {
	switch {
	case m.V4():
		return n / m.indexRatio()
	case m.Pooled():
		return n / poolTokens
	}
	return n
}

// SelectionWidth returns the padded number of indices of a row in the given form.
func (m *Model) SelectionWidth(f Form) int {
	if m.Pooled() {
		return m.PoolWidth()
	}
	switch f {
	case FormV4SparsePrefill:
		return roundUp(m.K+m.Window, 128)
	case FormV4Paged:
		return roundUp(m.Window, 64) + roundUp(m.K, 64)
	case FormSparseMLA, FormDenseMHA, FormDenseMLA, FormEmpty:
		return m.K
	}
	return m.K
}

// SharedLayers returns, for each layer, whether it reuses indices; nil if no layer does.
func (m *Model) SharedLayers() []bool {
	shared, any := make([]bool, max(m.Layers, 0)), false
	for l := range shared {
		shared[l] = !m.V4() && m.Share.Shared(l) || m.V41() && m.IndexSource(l) >= 0 && m.IndexSource(l) != l
		any = any || shared[l]
	}
	if !any {
		return nil
	}
	return shared
}

// PageTokens returns the number of tokens of a page of the engine's cache.
func (m *Model) PageTokens() int {
	if m.V4() || m.Pooled() { // 64 index keys of four tokens each
		return 256
	}
	return 64
}

// Stores reports whether rows of the model may have a layout; an unset layout stands for any.
func (m *Model) Stores(l Layout) bool { return l == LayoutNone || m.layouts().Has(l) }

// Clone returns a copy that shares no memory with the model.
func (m Model) Clone() Model {
	m.Share.Types, m.Ratios, m.Linear = slices.Clone(m.Share.Types), slices.Clone(m.Ratios), slices.Clone(m.Linear)
	m.Sharing.Entries, m.Sharing.Index = slices.Clone(m.Sharing.Entries), slices.Clone(m.Sharing.Index)
	return m
}

// check returns an error if a property of the model is invalid or not supported.
func (m *Model) check() error {
	bad := func(what string) error {
		return fmt.Errorf("plan: model description: %s", what)
	}
	switch {
	case m.Family == FamilyUnset || int(m.Family) >= len(families.words):
		return bad("family is unset; supported: " + families.list())
	case m.Heads < 1:
		return bad(fmt.Sprintf("%d query heads per rank; at least 1 is needed", m.Heads))
	case m.Dense() && (m.K != 0 || m.IndexHeads != 0):
		return bad(fmt.Sprintf("index_topk %d and %d index heads; %s has no indexer", m.K, m.IndexHeads, m.Family))
	case m.K < 1 && !m.Dense():
		return bad(fmt.Sprintf("index_topk %d; at least 1 is needed", m.K))
	case m.IndexHeads < 1 && !m.Dense():
		return bad(fmt.Sprintf("%d index heads; at least 1 is needed", m.IndexHeads))
	case m.Layers < 1:
		return bad(fmt.Sprintf("%d layers; at least 1 is needed", m.Layers))
	case m.Context < 1:
		return bad(fmt.Sprintf("context of %d tokens; at least 1 is needed", m.Context))
	case !m.V4() && (m.QKDim < 1 || m.VDim < 1):
		return bad(fmt.Sprintf("per-head widths %d and %d; both must be positive", m.QKDim, m.VDim))
	case m.V4() && m.Window < 1:
		return bad(fmt.Sprintf("sliding window of %d tokens; at least 1 is needed", m.Window))
	case m.Block < 0 || m.Block > 0 && (!m.V4() || m.NextN < 1):
		return bad(fmt.Sprintf("blocks of %d drafts by %d drafting layers; only V4 drafts in blocks", m.Block, m.NextN))
	case m.V4() && len(m.Ratios) != 0 && len(m.Ratios) < m.Layers:
		return bad(fmt.Sprintf("%d compression ratios for %d layers", len(m.Ratios), m.Layers))
	}
	if n := len(m.Linear); n != 0 && (n != m.Layers || !m.Pooled()) {
		return bad(fmt.Sprintf("%d layers are marked as linear or not, but there are %d layers of "+
			"%s", n, m.Layers, m.Family))
	}
	if m.Share.Shared(0) {
		return bad("layer 0 shares indices, but there is no layer before it")
	}
	return m.checkSharing()
}

// v4Ratios builds the released pattern: two leading layers, then 4 and 128 alternately, ending on 4.
func v4Ratios(lead, layers int) []int {
	ratios := make([]int, layers)
	for l := range ratios {
		switch {
		case l < 2:
			ratios[l] = lead
		case l%2 == 0:
			ratios[l] = ratio4
		default:
			ratios[l] = 128
		}
	}
	return ratios
}

// released is the description of a published model for one rank.
type released struct {
	names []string // the first is the usual name; case and _ or - make no difference
	model Model
}

// releasedModels returns the published models. Each call returns new values, because a Model contains slices.
func releasedModels() []released {
	usual := ExpertFacts{Count: 256, Chosen: 8, Dense: []bool{true, true, true}} // DeepSeek-V3.2 and GLM-5
	return []released{
		{[]string{"deepseek_v32", "deepseek-v3.2", "deepseek-v3.2-exp", "v32", "v3.2"},
			Model{Family: DeepSeekV32, Heads: 128, K: 2048, IndexHeads: 64, QKDim: 192, VDim: 128,
				Layers: 61, NextN: 1, Context: 163840, LayerSupportsDense: true, Experts: usual}},
		{[]string{"glm_moe_dsa", "glm-5", "glm5", "glm-5.1"},
			Model{Family: GLMMoeDSA, Heads: 64, K: 2048, IndexHeads: 32, QKDim: 256, VDim: 256,
				Layers: 78, NextN: 1, Context: 202752, LayerSupportsDense: true, Experts: usual}},
		{[]string{"glm-5.2", "glm5.2"},
			Model{Family: GLMMoeDSA, Heads: 64, K: 2048, IndexHeads: 32, QKDim: 256, VDim: 256,
				Layers: 78, NextN: 1, Context: 1048576, LayerSupportsDense: true,
				Share: LayerShare{Freq: 4, Offset: 3}, Experts: usual}},
		{[]string{"deepseek_v4", "deepseek-v4-flash", "v4", "v4-flash"},
			Model{Family: DeepSeekV4, Heads: 64, K: 512, IndexHeads: 64, QKDim: 512, VDim: 512,
				Layers: 43, NextN: 1, Context: 1048576, Window: 128, Ratios: v4Ratios(0, 43), GroupHeads: 8,
				Experts: ExpertFacts{Count: 256, Chosen: 6}}},
		{[]string{"deepseek-v4-pro", "v4-pro"},
			Model{Family: DeepSeekV4, Heads: 128, K: 1024, IndexHeads: 64, QKDim: 512, VDim: 512,
				Layers: 61, NextN: 1, Context: 1048576, Window: 128, Ratios: v4Ratios(128, 61), GroupHeads: 8,
				Experts: ExpertFacts{Count: 384, Chosen: 6}}},
		{[]string{"deepseek-v4-flash-0731", "v4-flash-0731"},
			Model{Family: DeepSeekV4, Heads: 64, K: 512, IndexHeads: 64, QKDim: 512, VDim: 512,
				Layers: 43, NextN: 3, Block: 5, Context: 1048576, Window: 128, Ratios: v4Ratios(0, 43), GroupHeads: 8,
				Experts: ExpertFacts{Count: 256, Chosen: 6}}},
		{[]string{"deepseek-v4-pro-0813", "v4-pro-0813"},
			Model{Family: DeepSeekV4, Heads: 128, K: 1024, IndexHeads: 64, QKDim: 512, VDim: 512,
				Layers: 61, NextN: 3, Block: 5, Context: 1048576, Window: 128, Ratios: v4Ratios(128, 61), GroupHeads: 8,
				Experts: ExpertFacts{Count: 384, Chosen: 6}}},
		{[]string{"deepseek_v41", "deepseek-v4.1-flash", "v4.1", "v41"},
			Model{Family: DeepSeekV41, Heads: 64, K: 512, IndexHeads: 32, QKDim: 512, VDim: 512,
				Layers: 40, NextN: 3, Block: 5, Context: 1048576, Window: 128, GroupHeads: 8,
				Ratios: slices.Concat([]int{0, 0}, slices.Repeat([]int{2}, 18), slices.Repeat([]int{1}, 20)),
				Sharing: Sharing{Entries: []int{2, 8, 14, 20}, Index: []int{2, 8, 14, 20, 24, 28, 32, 36},
					Candidates: 20, Blocks: 2048, BlockKeys: 8, Tables: 48},
				Experts: ExpertFacts{Count: 384, Chosen: 6}}},
		{[]string{"deepseek_v3", "deepseek-v3", "deepseek-v3.1", "deepseek-r1", "v3", "v3.1", "r1"},
			Model{Family: DeepSeekV3, Heads: 128, QKDim: 192, VDim: 128, Layers: 61, NextN: 1, Context: 163840,
				LayerSupportsDense: true, Experts: usual}},
		{[]string{"kimi_k2", "kimi-k2", "kimi-k2-instruct"},
			Model{Family: KimiK2, Heads: 64, QKDim: 192, VDim: 128, Layers: 61, Context: 131072,
				LayerSupportsDense: true, Experts: ExpertFacts{Count: 384, Chosen: 8, Dense: []bool{true}}}},
		{[]string{"kimi-k2.5", "kimi-k2-thinking"},
			Model{Family: KimiK2, Heads: 64, QKDim: 192, VDim: 128, Layers: 61, Context: 262144,
				LayerSupportsDense: true, Experts: ExpertFacts{Count: 384, Chosen: 8, Dense: []bool{true}}}},
		{[]string{"glm4_moe_lite", "glm-4.7-flash"},
			Model{Family: GLM4MoeLite, Heads: 20, QKDim: 256, VDim: 256, Layers: 47, NextN: 1, Context: 202752,
				LayerSupportsDense: true, Experts: ExpertFacts{Count: 64, Chosen: 4, Dense: []bool{true}}}},
		{[]string{"glm5_next", "glm-5.3-flash"},
			Model{Family: GLM5Next, Heads: 64, K: 512, IndexHeads: 32, QKDim: 256, VDim: 256, Layers: 45, NextN: 1,
				Context: 1048576, Linear: everyFourth(45), LinearGroups: true,
				Experts: ExpertFacts{Count: 288, Chosen: 8, Dense: []bool{true, true, true}}}},
	}
}

// ModelFor returns the description of a published model by name, for one rank.
func ModelFor(name string) (Model, error) {
	for _, r := range releasedModels() {
		if slices.ContainsFunc(r.names, func(n string) bool { return fold(n) == fold(name) }) {
			return r.model, nil
		}
	}
	known := ReleasedNames()
	others := slices.DeleteFunc(ModelNames(), func(name string) bool { return slices.Contains(known, name) })
	return Model{}, fmt.Errorf("plan: unknown model family %q; supported: %s; short names and names in config.json: %s",
		name, strings.Join(known, ", "), strings.Join(others, ", "))
}

// ReleasedNames lists the names in lower case under which the models were released, without their owners. ModelFor also
// supports short names and the values of model_type in config.json.
func ReleasedNames() []string {
	return slices.DeleteFunc(ModelNames(), func(name string) bool {
		return !strings.Contains(name, "-") || strings.HasPrefix(name, "v")
	})
}

// UsualModelNames lists one name for each model that ModelFor supports.
func UsualModelNames() []string {
	var names []string
	for _, r := range releasedModels() {
		names = append(names, r.names[0])
	}
	return names
}

// ModelNames lists every name that ModelFor supports, grouped by model.
func ModelNames() []string {
	var names []string
	for _, r := range releasedModels() {
		names = append(names, r.names...)
	}
	return names
}
