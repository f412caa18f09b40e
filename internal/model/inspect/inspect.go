// Package inspect describes a checkpoint without loading it: parameters, bytes by type, cache bytes per token in
// every layout, and how many tokens fit in a given memory. The input is an opened checkpoint, the output a Summary;
// matrices are not read.
package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/nn"
	"sparrow/internal/unit"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/layout"
	"sparrow/weight"
)

// Summary describes a checkpoint.
type Summary struct {
	Checkpoint string `json:"checkpoint"`
	Family     string `json:"family"`
	Files      int    `json:"files"`
	Tensors    int    `json:"tensors"`
	Format     string `json:"format"` // format of the matrices, as the release names it
	// NoWeights means that there are no weight files: tensors and bytes are those of the release.
	NoWeights bool `json:"no_weights,omitempty"`
	// Assumed lists the assumptions behind the numbers of tensors and bytes, if the config files do not state them
	// and there are no weights.
	Assumed string `json:"assumed,omitempty"`

	Layers       int `json:"layers"`
	IndexLayers  int `json:"index_layers"`            // layers that compute their own selection
	LinearLayers int `json:"linear_layers,omitempty"` // layers of linear attention
	Hidden       int `json:"hidden"`
	Heads        int `json:"heads"`
	IndexHeads   int `json:"index_heads"`
	IndexTopK    int `json:"index_topk"`
	Experts      int `json:"experts"`
	ExpertsUsed  int `json:"experts_per_token"`
	Vocabulary   int `json:"vocabulary"`
	MaxPositions int `json:"max_positions"`

	Parameters Parameters  `json:"parameters"`
	Bytes      []TypeBytes `json:"bytes_by_type"`
	TotalBytes int64       `json:"total_bytes"`
	FileBytes  int64       `json:"file_bytes"`       // bytes of all files; 0 if there are no files
	Tables     *Tables     `json:"tables,omitempty"` // n-gram tables; nil if the model has none

	Cache []CacheSize `json:"cache"`

	// Drafts describes the drafting stages of a DSpark head; empty for NextN layers and for models without drafting
	// layers.
	Drafts string `json:"drafts,omitempty"`
	// Losses lists the parts of the checkpoint that are not run or are ignored.
	Losses []string `json:"losses,omitempty"`
	// Slow lists the types whose matrix products are slow on this machine's CPU, with the reason.
	Slow []string `json:"slow,omitempty"`
	// Problems lists the tensors with which loading fails: missing tensors, and tensors of another shape or type.
	Problems []string `json:"problems,omitempty"`

	activeBytes int64 // bytes of the tensors, or parts of tensors, that are read for one token
	visionBytes int64 // bytes of a vision tower
}

// Parameters counts weights; block scales are not parameters.
type Parameters struct {
	Total  int64 `json:"total"`
	Main   int64 `json:"main"`             // parameters without the drafting layer
	Active int64 `json:"active"`           // parameters that one token uses, without the embedding
	NextN  int64 `json:"next_n"`           // parameters of the drafting layer, including Copies
	Copies int64 `json:"copies"`           // part of NextN: copies of the embedding and the head
	Scales int64 `json:"scales"`           // block scales of the parameters
	Vision int64 `json:"vision,omitempty"` // parameters of a vision tower, which is not loaded
}

// TypeBytes is the size of all tensors of one element type.
type TypeBytes struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// CacheSize is the cache size of one token in one layout of latent rows, over all layers.
type CacheSize struct {
	Layout     string `json:"layout"`
	RowBytes   int    `json:"row_bytes"`   // bytes per token and layer
	IndexBytes int    `json:"index_bytes"` // bytes per token and layer with an indexer
	TokenBytes int64  `json:"token_bytes"` // bytes per token over all layers, rows and indexer keys
	// DraftedTokenBytes is TokenBytes with the drafting layer included; 0 if the checkpoint has no drafting layer that
	// is supported.
	DraftedTokenBytes int64 `json:"drafted_token_bytes,omitempty"`
	// SequenceBytes is the memory of every running sequence in addition to its tokens, over all layers: windows and
	// states (DeepSeek-V4).
	SequenceBytes int64 `json:"sequence_bytes,omitempty"`
	Fits          []Fit `json:"fits"`
}

// Fit is the number of tokens of one sequence whose cache fits together with the weights.
type Fit struct {
	GiB    float64 `json:"gib"`
	Tokens int64   `json:"tokens"` // 0 if the weights alone do not fit
}

// Of describes a checkpoint; memories lists the sizes of memory, in GiB, for which Fits are computed.
func Of(s *family.Source, memories []float64) *Summary {
	c := s.Config
	out := &Summary{
		Checkpoint: s.Name, Family: string(c.Family), Files: len(s.Weights.Files()), Tensors: s.Weights.Len(),
		Layers: c.Layers, Hidden: c.Hidden, IndexHeads: c.Indexer.Heads, IndexTopK: c.Indexer.TopK, Vocabulary: c.Vocab,
		MaxPositions: c.MaxPositions, Format: string(c.Format), Losses: c.Losses,
	}
	for _, f := range s.Weights.Files() {
		out.FileBytes += f.Bytes
	}
	out.Slow = Slow(s, false)
	switch d := s.Model.(type) {
	case *config.DSA:
		out.Heads, out.Experts, out.ExpertsUsed = d.Attention.Heads, d.FFN.Experts, d.FFN.TopK
		for i := range c.Layers {
			if c.Indexer.Computes(i) {
				out.IndexLayers++
			}
		}
		out.count(s)
		out.cache(memories)
	case *config.V4:
		out.Heads, out.Experts, out.ExpertsUsed = d.Attention.Heads, d.FFN.Experts, d.FFN.TopK
		out.count(s)
		out.cacheV4(d, memories)
		if x := d.DSpark; x != nil {
			out.Drafts = fmt.Sprintf("DSpark, blocks of %d tokens by %d stages that read layers %s", x.Block, x.Stages,
				strings.Trim(fmt.Sprint(x.Taps), "[]"))
		}
	case *config.Next:
		out.Heads, out.Experts, out.ExpertsUsed = d.Attention.Heads, d.FFN.Experts, d.FFN.TopK
		out.count(s)
		out.cacheNext(d, memories)
	case *config.V41:
		out.Heads, out.Experts, out.ExpertsUsed = d.Attention.Heads, d.FFN.Experts, d.FFN.TopK
		out.count(s)
		out.cacheV41(d, memories)
	}
	return out
}

// Slow lists the block formats among the weights whose products are slow on this machine's CPU, or on a GPU if gpu is
// set, with the reason.
func Slow(s *family.Source, gpu bool) (list []string) {
	for t := range s.Weights.All() {
		f, ok := t.DType.Block()
		if !ok {
			continue
		}
		why, where := cpu.Slow(f), "this CPU"
		if gpu {
			why, where = op.Slow(f), "GPUs"
		}
		if why != "" {
			list = append(list, fmt.Sprintf("%v weights are %s on %s, which is slow; another file of the model "+
				"may have types with kernels (docs/gguf.md)", f, why, where))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Check adds the tensors with which loading fails to Problems, and returns an error with them. It loads the checkpoint
// on a device that does not read matrices; norms, biases and some scales are read.
func (s *Summary) Check(src *family.Source, dev kernel.Device) error {
	_, err := src.LoadPlaced(dev, family.Placed{Described: true}, nil)
	var e *nn.TensorError
	if !errors.As(err, &e) {
		return err
	}
	s.Problems = e.Problems
	hint := ""
	if family.IsGGUF(src.Name) {
		hint = "tensor names are those of safetensors files; "
	}
	return fmt.Errorf("%s cannot be loaded: %w: %s\n%sdownload or convert it again", src.Name, nn.ErrTensors,
		e.First(8), hint)
}

// count adds up the numbers and bytes of the tensors.
func (s *Summary) count(src *family.Source) {
	types := map[weight.DType]*TypeBytes{}
	p := &s.Parameters
	for t := range src.Weights.All() {
		name := t.Name
		n, scales := src.Weights.Parameters(t)
		ty := types[t.DType]
		if ty == nil {
			ty = &TypeBytes{Type: t.DType.String()}
			types[t.DType] = ty
		}
		ty.Tensors++
		ty.Bytes += t.Bytes()
		s.TotalBytes += t.Bytes()
		p.Scales += scales
		if strings.HasPrefix(name, visionTower) {
			p.Vision += n
			s.visionBytes += t.Bytes()
			continue
		}
		p.Total += n
		if layerOf(name) >= s.Layers || strings.HasPrefix(name, "mtp.") {
			p.NextN += n
			if strings.HasSuffix(name, ".embed_tokens.weight") || strings.HasSuffix(name, ".shared_head.head.weight") {
				p.Copies += n
			}
			continue
		}
		p.Main += n
		switch {
		case strings.HasSuffix(name, "embed_tokens.weight") || name == "embed.weight":
			if src.Config.TiedHead {
				p.Active += n
				s.activeBytes += t.Bytes()
			}
		case strings.HasSuffix(name, ".engram.embed.weight"):
			s.table(src, t, n)
		case strings.Contains(name, ".experts."):
			p.Active += n * int64(s.ExpertsUsed) / int64(s.Experts)
			s.activeBytes += t.Bytes() * int64(s.ExpertsUsed) / int64(s.Experts)
		default:
			p.Active += n
			s.activeBytes += t.Bytes()
		}
	}
	for _, t := range types {
		s.Bytes = append(s.Bytes, *t)
	}
	slices.SortFunc(s.Bytes, func(a, b TypeBytes) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
}

// visionTower is the prefix of the tensors of a vision tower, which is not run.
const visionTower = "model.visual."

// layerOf returns the number N of a name that begins with layers.N., model.layers.N. or
// model.language_model.layers.N., and -1 for other names.
func layerOf(name string) int {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model.")
	rest, ok := strings.CutPrefix(name, "layers.")
	if !ok {
		return -1
	}
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

const gib = 1 << 30

func (s *Summary) cache(memories []float64) {
	for _, k := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.F32Row2304} {
		main, err := layout.MainOf(k)
		if err != nil {
			continue
		}
		index := layout.IndexFP8{}.TokenBytes()
		switch {
		case s.IndexTopK == 0:
			index = 0
		case k == layout.F32Row2304:
			index = layout.IndexF32{}.TokenBytes()
		}
		c := CacheSize{Layout: k.String(), RowBytes: main.RowBytes(), IndexBytes: index}
		c.TokenBytes = int64(s.Layers*c.RowBytes + s.IndexLayers*c.IndexBytes)
		if s.Parameters.NextN > 0 {
			c.DraftedTokenBytes = c.TokenBytes + int64(c.RowBytes+c.IndexBytes)
		}
		s.fit(c, memories)
	}
}

// fit adds a layout, with the number of tokens that fit in each memory together with the weights.
func (s *Summary) fit(c CacheSize, memories []float64) {
	for _, m := range memories {
		free := int64(m*gib) - s.TotalBytes
		c.Fits = append(c.Fits, Fit{GiB: m, Tokens: max((free-c.SequenceBytes)/c.TokenBytes, 0)})
	}
	s.Cache = append(s.Cache, c)
}

// widened returns text that states why weights take more memory than their files, or an empty text. GGUF files store
// one projection in two parts, which are joined in memory to a matrix of a type with more bits.
func (s *Summary) widened() string {
	if s.FileBytes == 0 || s.TotalBytes <= s.FileBytes {
		return ""
	}
	return fmt.Sprintf(" of %s; the file has the up-projection of latent rows in two parts, which are joined in "+
		"memory, in BF16 (docs/gguf.md)", unit.Bytes(s.FileBytes))
}

// sayAssumed writes the assumptions about sizes, if there are any.
func sayAssumed(w io.Writer, assumed string) {
	if assumed != "" {
		fmt.Fprintf(w, "sizes are assumed: %s\n", assumed)
	}
}

// Print writes the summary as text.
func (s *Summary) Print(w io.Writer) error {
	sayAssumed(w, s.Assumed)
	fmt.Fprintf(w, "%s: %s, %d layers, hidden %d, %d heads, vocabulary %d, up to %d positions\n", s.Checkpoint,
		s.Family, s.Layers, s.Hidden, s.Heads, s.Vocabulary, s.MaxPositions)
	indexer := "no indexer, every row attends to every key"
	if s.IndexTopK > 0 {
		indexer = fmt.Sprintf("indexer: %d heads, top %d, on %d of %d layers", s.IndexHeads, s.IndexTopK, s.IndexLayers,
			s.Layers)
	}
	if s.LinearLayers > 0 {
		indexer += fmt.Sprintf("; linear attention on %d", s.LinearLayers)
	}
	fmt.Fprintf(w, "%s; experts: %d of %d per token\n", indexer, s.ExpertsUsed, s.Experts)
	p := s.Parameters
	fmt.Fprintf(w, "parameters: %s (%s active per token", count(p.Main), count(p.Active))
	if p.NextN > 0 {
		fmt.Fprintf(w, "; drafting layer %s more", count(p.NextN))
		if p.Copies > 0 {
			fmt.Fprintf(w, ", %s of them copies of embedding and head", count(p.Copies))
		}
	}
	if p.Vision > 0 {
		fmt.Fprintf(w, "; vision tower %s, which is not read", count(p.Vision))
	}
	fmt.Fprint(w, ")\n")
	if s.Drafts != "" {
		fmt.Fprintf(w, "drafts: %s\n", s.Drafts)
	}
	if s.NoWeights {
		fmt.Fprintf(w, "there are no weights here; weights of this shape (%s) would be %s in %d tensors\n", s.Format,
			unit.Bytes(s.TotalBytes), s.Tensors)
	} else {
		fmt.Fprintf(w, "weights: %s in %d tensors, %d file(s)%s; %s\n", unit.Bytes(s.TotalBytes), s.Tensors, s.Files,
			s.widened(), s.Format)
	}
	if t := s.Tables; t != nil {
		fmt.Fprintf(w, "n-gram tables: %d, %s rows, %s mapped from the files; a token reads %d rows, %s, by %d reads "+
			"where none is in memory\n", t.Tables, count(t.Rows), unit.Bytes(t.Bytes), t.TokenRows,
			unit.Bytes(t.TokenBytes), 2*t.TokenRows)
	}
	for _, l := range s.Losses {
		fmt.Fprintf(w, "without %s\n", l)
	}
	for _, l := range s.Slow {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "type\ttensors\tbytes\t")
	for _, b := range s.Bytes {
		fmt.Fprintf(t, "%s\t%d\t%s\t\n", b.Type, b.Tensors, unit.Bytes(b.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprint(t, "cache layout\trow bytes\tindex bytes\tbytes per token\t")
	drafts, sequences := s.Cache[0].DraftedTokenBytes > 0, s.Cache[0].SequenceBytes > 0
	if drafts {
		fmt.Fprint(t, "with drafts\t")
	}
	if sequences {
		fmt.Fprint(t, "and per sequence\t")
	}
	for _, f := range s.Cache[0].Fits {
		fmt.Fprintf(t, "tokens in %g GiB\t", f.GiB)
	}
	fmt.Fprintln(t)
	for _, c := range s.Cache {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t", c.Layout, c.RowBytes, c.IndexBytes, c.TokenBytes)
		if drafts {
			fmt.Fprintf(t, "%d\t", c.DraftedTokenBytes)
		}
		if sequences {
			fmt.Fprintf(t, "%s\t", unit.Bytes(c.SequenceBytes))
		}
		for _, f := range c.Fits {
			if f.Tokens == 0 {
				fmt.Fprint(t, "weights do not fit\t")
			} else {
				fmt.Fprintf(t, "%d\t", f.Tokens)
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f B", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2f M", float64(n)/1e6)
	}
	return strconv.FormatInt(n, 10)
}
