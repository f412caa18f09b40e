package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// rawModel holds the fields that have the same names in the config.json of every family. A nil pointer means an absent
// field.
type rawModel struct {
	ModelType     string   `json:"model_type"`
	Vocab         *int     `json:"vocab_size"`
	Hidden        *int     `json:"hidden_size"`
	Layers        *int     `json:"num_hidden_layers"`
	MaxPositions  *int     `json:"max_position_embeddings"`
	MoEInner      *int     `json:"moe_intermediate_size"`
	MLPTypes      []string `json:"mlp_layer_types"`
	Heads         *int     `json:"num_attention_heads"`
	KVHeads       *int     `json:"num_key_value_heads"`
	QLora         *int     `json:"q_lora_rank"`
	RopeDim       *int     `json:"qk_rope_head_dim"`
	Experts       *int     `json:"n_routed_experts"`
	SharedExperts *int     `json:"n_shared_experts"`
	TopExperts    *int     `json:"num_experts_per_tok"`
	ScoringFunc   *string  `json:"scoring_func"`
	TopKMethod    *string  `json:"topk_method"`
	Normalize     *bool    `json:"norm_topk_prob"`
	RoutedScale   *float64 `json:"routed_scaling_factor"`
	IndexHeads    *int     `json:"index_n_heads"`
	IndexDim      *int     `json:"index_head_dim"`
	IndexTopK     *int     `json:"index_topk"`
	RMSEps        *float64 `json:"rms_norm_eps"`
	RopeTheta     *float64 `json:"rope_theta"`
	RopeScaling   *rawRope `json:"rope_scaling"`
	NextN         *int     `json:"num_nextn_predict_layers"`
	AttentionBias bool     `json:"attention_bias"`
	MLPBias       bool     `json:"mlp_bias"`
	Tied          bool     `json:"tie_word_embeddings"`
	Act           *string  `json:"hidden_act"`
	BOS           *int     `json:"bos_token_id"`
	EOS           idList   `json:"eos_token_id"`
	Pad           *int     `json:"pad_token_id"`
}

// raw holds the fields of config.json with the names in released DSA models.
type raw struct {
	rawModel
	Inner         *int     `json:"intermediate_size"`
	FirstDense    *int     `json:"first_k_dense_replace"`
	MoEFreq       *int     `json:"moe_layer_freq"`
	KVLora        *int     `json:"kv_lora_rank"`
	Nope          *int     `json:"qk_nope_head_dim"`
	V             *int     `json:"v_head_dim"`
	Groups        *int     `json:"n_group"`
	KeepGroups    *int     `json:"topk_group"`
	IndexFreq     *int     `json:"index_topk_freq"`
	IndexOffset   *int     `json:"index_skip_topk_offset"`
	IndexPattern  *string  `json:"index_topk_pattern"`
	IndexerTypes  []string `json:"indexer_types"`
	ShareDraft    bool     `json:"index_share_for_mtp_iteration"`
	Interleave    *bool    `json:"rope_interleave"`
	IdxInterleave *bool    `json:"indexer_rope_interleave"`
	RopeParams    *rawRope `json:"rope_parameters"`

	Quantization rawQuantization `json:"quantization_config"`
}

type rawRope struct {
	Type         string   `json:"type"`
	RopeType     string   `json:"rope_type"`
	Theta        *float64 `json:"rope_theta"`
	Factor       *float64 `json:"factor"`
	Original     *int     `json:"original_max_position_embeddings"`
	BetaFast     *float64 `json:"beta_fast"`
	BetaSlow     *float64 `json:"beta_slow"`
	MScale       *float64 `json:"mscale"`
	MScaleAllDim *float64 `json:"mscale_all_dim"`
	Attention    *float64 `json:"attention_factor"`
}

func (r *rawRope) kind() string {
	if r.RopeType != "" {
		return r.RopeType
	}
	return r.Type
}

// idList is a token id or a list of token ids.
type idList []int

func (l *idList) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]int)(l))
	}
	var one *int
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	if one != nil {
		*l = idList{*one}
	}
	return nil
}

// Parse reads the text of a DSA model's config.json; file is its name in messages.
func Parse(file string, data []byte) (*DSA, error) { return as[*DSA](file, data) }

// ParseV4 reads the text of a V4 model's config.json; file is its name in messages.
func ParseV4(file string, data []byte) (*V4, error) { return as[*V4](file, data) }

// as reads a config.json and returns its description, or an error if it does not have type D.
func as[D Description](file string, data []byte) (D, error) {
	var none D
	d, err := Describe(file, data)
	if err != nil {
		return none, err
	}
	out, ok := d.(D)
	if !ok {
		return none, fmt.Errorf("config: %s: model_type %q: %w here; want a config of type %T", file,
			d.Common().Family, ErrFamily, none)
	}
	return out, nil
}

// read fills the fields of to, a struct with JSON tags, and adds a problem for every field of a wrong type.
func (b *builder) read(prefix string, fields map[string]json.RawMessage, to reflect.Value) {
	for i := range to.NumField() {
		if to.Type().Field(i).Anonymous {
			b.read(prefix, fields, to.Field(i))
			continue
		}
		name := to.Type().Field(i).Tag.Get("json")
		text, ok := fields[name]
		if !ok || string(text) == "null" {
			continue
		}
		if nested, ok := to.Field(i).Addr().Interface().(**rawRope); ok {
			var inner map[string]json.RawMessage
			if err := json.Unmarshal(text, &inner); err != nil {
				b.mistype(prefix+name, text, "an object")
				continue
			}
			*nested = &rawRope{}
			b.read(prefix+name+".", inner, reflect.ValueOf(*nested).Elem())
			continue
		}
		if err := json.Unmarshal(text, to.Field(i).Addr().Interface()); err != nil {
			b.mistype(prefix+name, text, wanted(to.Field(i).Type()))
			to.Field(i).SetZero()
		}
	}
}

func (b *builder) mistype(field string, text json.RawMessage, want string) {
	b.mistyped[field] = true
	b.addProblem("%s is %s, want %s", field, clip(text), want)
}

// wanted returns a text about the allowed JSON values of a field of type t.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[idList]() {
		return "a token id or a list of them"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int {
			return "a list of whole numbers"
		}
		return "a list of words"
	case reflect.Map:
		return "an object of whole numbers"
	case reflect.Struct:
		return "an object"
	}
	return "a word"
}

// clip returns the text of a JSON value, shortened for messages.
func clip(text json.RawMessage) string {
	const most = 60
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}
