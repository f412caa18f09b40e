package config

// V4 describes a model of the family deepseek_v4. Names follow the v4 spec, 1.1. Its Indexer is that of the layers of
// ratio 4.
type V4 struct {
	Config
	Attention V4Attention
	Hyper     Hyper
	FFN       V4FFN
	DSpark    *DSpark // the draft head of newer releases; nil if there is none
}

// V4Attention holds the sizes of attention over window entries and compressed entries.
type V4Attention struct {
	Heads  int
	Dim    int   // values of a vector that is both key and value: 512
	Rope   int   // number of rotated values at the end of this vector: 64
	QLora  int   // rank of the query projection
	OLora  int   // rank of each group of the output projection
	Groups int   // groups of heads in the output projection
	Window int   // size of the window in tokens
	Ratios []int // for each layer: tokens of one compressed entry, 4 or 128; 0 for no compressed entries
	Main   Rope  // rotation in layers without compressed entries
	Far    Rope  // rotation in layers with compressed entries
}

// RopeAt returns the rotation of layer i.
func (a V4Attention) RopeAt(i int) Rope {
	if a.Ratios[i] == 0 {
		return a.Main
	}
	return a.Far
}

// Hyper describes the residual streams (hyper-connections).
type Hyper struct {
	Streams int
	Rounds  int // iterations of the Sinkhorn normalisation of the mixing matrix
	Eps     float32
}

// V4FFN describes the feed-forward blocks: every layer has experts.
type V4FFN struct {
	Inner   int // inner size of one expert
	Experts int
	Shared  int // number of shared experts, used for every token
	TopK    int
	Scale   float32
	Limit   float32 // gate and up are clamped to this limit
	Hash    []bool  // for each layer: its experts are looked up by token id
}
