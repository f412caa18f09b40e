package inspect_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/kernel/ref"
)

// released describes a released checkpoint by the tensor table of the v32 spec, 4.2. Only headers are written: the
// data is a hole in the file.
type released struct {
	family                            string
	hidden, inner, vocab, layers      int
	heads, qLora, nope, v, indexHeads int
	groups, keep, positions           int
	theta                             float64
	copies                            bool // the drafting layer has its own embedding and head
	f32Norm                           bool // whether k_norm is F32
	freq, offset                      int
	tensors                           int
	bytes                             int64
	main, draft, active               int64 // active is rounded to 0.1 billion
	bf16Token, fp8Token               int64 // cache bytes per token, including indexer keys
	drafted                           int64 // fp8Token with the drafting layer
	indexLayers                       int
	entries                           []entry
}

var models = map[string]*released{
	"DeepSeek-V3.2": {family: "deepseek_v32", hidden: 7168, inner: 18432, vocab: 129280, layers: 61, heads: 128,
		qLora: 1536, nope: 128, v: 128, indexHeads: 64, groups: 8, keep: 4, positions: 163840, theta: 1e4, copies: true,
		f32Norm: true, tensors: 92425, bytes: 689_469_018_240, main: 671_877_944_064, draft: 13_477_385_728,
		active: 375, bf16Token: 70272 + 8052, fp8Token: 48068, drafted: 48856, indexLayers: 61},
	"GLM-5.2-FP8": {family: "glm_moe_dsa", hidden: 6144, inner: 12288, vocab: 154880, layers: 78, heads: 64,
		qLora: 2048, nope: 192, v: 256, indexHeads: 32, groups: 1, keep: 1, positions: 1048576, theta: 8e6, freq: 4,
		offset: 3, tensors: 118629, main: 743_377_019_904, draft: 9_952_920_576, active: 403,
		bf16Token: 89856 + 2772, fp8Token: 53940, drafted: 54728, indexLayers: 21},
}

// shared reports whether a layer shares a selection by the rule of the v32 spec, 1.4.
func (m *released) shared(layer int) bool {
	return m.freq > 0 && layer < m.layers && max(layer-m.offset+1, 0)%m.freq != 0
}

// entry is one tensor of the header.
type entry struct {
	name, dtype string
	shape       []int
	bytes       int64
}

func (m *released) tensor(name, dtype string, size int64, shape ...int) {
	for _, d := range shape {
		size *= int64(d)
	}
	m.entries = append(m.entries, entry{name, dtype, shape, size})
}

// header assigns offsets to the tensors, vectors first, because loading reads the vectors, which then lie in few pages
// of the hole.
func (m *released) header() (text []byte, dataBytes int64) {
	slices.SortStableFunc(m.entries, func(a, b entry) int { return cmp.Compare(len(a.shape), len(b.shape)) })
	text = []byte{'{'}
	for i, e := range m.entries {
		if i > 0 {
			text = append(text, ',')
		}
		dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(e.shape), "[]"), " ", ",")
		text = fmt.Appendf(text, `%q:{"dtype":%q,"shape":[%s],"data_offsets":[%d,%d]}`, e.name, e.dtype, dims,
			dataBytes, dataBytes+e.bytes)
		dataBytes += e.bytes
	}
	text = append(text, '}')
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return text, dataBytes
}

func (m *released) bf16(name string, shape ...int) { m.tensor(name, "BF16", 2, shape...) }

// fp8 adds a block-quantised matrix and its scales.
func (m *released) fp8(name string, out, in int) {
	m.tensor(name, "F8_E4M3", 1, out, in)
	m.tensor(name+"_scale_inv", "F32", 4, (out+127)/128, (in+127)/128)
}

func (m *released) mlp(prefix string, inner int) {
	m.fp8(prefix+"gate_proj.weight", inner, m.hidden)
	m.fp8(prefix+"up_proj.weight", inner, m.hidden)
	m.fp8(prefix+"down_proj.weight", m.hidden, inner)
}

func (m *released) layer(i int) {
	p := fmt.Sprintf("model.layers.%d.", i)
	m.bf16(p+"input_layernorm.weight", m.hidden)
	m.bf16(p+"post_attention_layernorm.weight", m.hidden)
	a := p + "self_attn."
	m.fp8(a+"q_a_proj.weight", m.qLora, m.hidden)
	m.bf16(a+"q_a_layernorm.weight", m.qLora)
	m.fp8(a+"q_b_proj.weight", m.heads*(m.nope+64), m.qLora)
	m.fp8(a+"kv_a_proj_with_mqa.weight", 576, m.hidden)
	m.bf16(a+"kv_a_layernorm.weight", 512)
	m.fp8(a+"kv_b_proj.weight", m.heads*(m.nope+m.v), 512)
	m.fp8(a+"o_proj.weight", m.hidden, m.heads*m.v)
	if !m.shared(i) {
		m.fp8(a+"indexer.wq_b.weight", m.indexHeads*128, m.qLora)
		m.fp8(a+"indexer.wk.weight", 128, m.hidden)
		m.bf16(a+"indexer.weights_proj.weight", m.indexHeads, m.hidden)
		norm, size := "BF16", int64(2)
		if m.f32Norm {
			norm, size = "F32", 4
		}
		m.tensor(a+"indexer.k_norm.weight", norm, size, 128)
		m.tensor(a+"indexer.k_norm.bias", norm, size, 128)
	}
	if i < 3 {
		m.mlp(p+"mlp.", m.inner)
		return
	}
	m.bf16(p+"mlp.gate.weight", 256, m.hidden)
	m.tensor(p+"mlp.gate.e_score_correction_bias", "F32", 4, 256)
	for e := range 256 {
		m.mlp(fmt.Sprintf("%smlp.experts.%d.", p, e), 2048)
	}
	m.mlp(p+"mlp.shared_experts.", 2048)
}

// write writes the checkpoint as a header and a hole, which takes no space on disk, and returns the folder.
func (m *released) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	m.entries = nil
	m.bf16("model.embed_tokens.weight", m.vocab, m.hidden)
	m.bf16("model.norm.weight", m.hidden)
	m.bf16("lm_head.weight", m.vocab, m.hidden)
	for i := range m.layers + 1 {
		m.layer(i)
	}
	p := fmt.Sprintf("model.layers.%d.", m.layers)
	m.bf16(p+"enorm.weight", m.hidden)
	m.bf16(p+"hnorm.weight", m.hidden)
	m.bf16(p+"eh_proj.weight", m.hidden, 2*m.hidden)
	m.bf16(p+"shared_head.norm.weight", m.hidden)
	if m.copies {
		m.bf16(p+"embed_tokens.weight", m.vocab, m.hidden)
		m.bf16(p+"shared_head.head.weight", m.vocab, m.hidden)
	}
	head, dataBytes := m.header()
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(8+len(head)) + dataBytes); err != nil {
		t.Skipf("this file system cannot hold a sparse file of %d bytes: %v", dataBytes, err)
	}
	m.config(t, dir)
	return dir
}

func (m *released) config(t *testing.T, dir string) {
	t.Helper()
	c := map[string]any{
		"model_type": m.family, "vocab_size": m.vocab, "hidden_size": m.hidden, "num_hidden_layers": m.layers,
		"max_position_embeddings": m.positions, "intermediate_size": m.inner, "moe_intermediate_size": 2048,
		"first_k_dense_replace": 3, "num_attention_heads": m.heads, "q_lora_rank": m.qLora, "kv_lora_rank": 512,
		"qk_nope_head_dim": m.nope, "qk_rope_head_dim": 64, "v_head_dim": m.v, "n_routed_experts": 256,
		"n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": m.groups, "topk_group": m.keep,
		"index_n_heads": m.indexHeads, "index_head_dim": 128, "index_topk": 2048, "rms_norm_eps": 1e-6,
		"rope_theta": m.theta, "num_nextn_predict_layers": 1,
	}
	if m.freq > 0 {
		c["index_topk_freq"], c["index_skip_topk_offset"] = m.freq, m.offset
	}
	data, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The released models have the tensors, parameters and bytes that were published (v32 spec, 1.3, 4.3 and 5.6), and
// this build loads them.
func TestReleasedModels(t *testing.T) {
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			src, err := family.Open(m.write(t))
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			s := inspect.Of(src, []float64{512, 1024})
			if s.Tensors != m.tensors {
				t.Errorf("%d tensors, want %d", s.Tensors, m.tensors)
			}
			if m.bytes != 0 && s.TotalBytes != m.bytes {
				t.Errorf("%d bytes of tensors, want %d", s.TotalBytes, m.bytes)
			}
			p := s.Parameters
			if p.Main != m.main || p.NextN != m.draft || p.Total != m.main+m.draft {
				t.Errorf("parameters %d + %d = %d, want %d + %d", p.Main, p.NextN, p.Total, m.main, m.draft)
			}
			if got := (p.Active + 50_000_000) / 100_000_000; got != m.active {
				t.Errorf("%d parameters are active, want %d.%d billion", p.Active, m.active/10, m.active%10)
			}
			if s.IndexLayers != m.indexLayers {
				t.Errorf("%d layers with an indexer, want %d", s.IndexLayers, m.indexLayers)
			}
			if got := s.Cache[0].TokenBytes; s.Cache[0].Layout != "bf16-1152" || got != m.bf16Token {
				t.Errorf("%s takes %d bytes a token, want %d", s.Cache[0].Layout, got, m.bf16Token)
			}
			if got := s.Cache[1].TokenBytes; s.Cache[1].Layout != "fp8-656" || got != m.fp8Token {
				t.Errorf("%s takes %d bytes a token, want %d", s.Cache[1].Layout, got, m.fp8Token)
			}
			if got := s.Cache[1].DraftedTokenBytes; got != m.drafted {
				t.Errorf("%s takes %d bytes a token with drafts, want %d", s.Cache[1].Layout, got, m.drafted)
			}
			fit := s.Cache[1].Fits
			if fit[0].Tokens != 0 {
				t.Errorf("%d tokens fit into 512 GiB beside weights that do not", fit[0].Tokens)
			}
			if want := (1<<40 - s.TotalBytes) / m.fp8Token; fit[1].Tokens != want {
				t.Errorf("%d tokens fit into 1024 GiB, want %d", fit[1].Tokens, want)
			}
			if _, err := src.Load(&ref.Device{}, nil); err != nil {
				t.Errorf("load: %.2000v", err)
			}
		})
	}
}
