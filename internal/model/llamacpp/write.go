package llamacpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"sparrow/internal/block"
	"sparrow/internal/model/config"
	"sparrow/internal/model/spelling"
	"sparrow/internal/num"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// Model is the checkpoint that Write writes.
type Model struct {
	Name            string
	Config          config.Description // *config.DSA, *config.Next or *config.V4
	Weights         *weight.Checkpoint
	Tokenizer       []byte // tokenizer.json; nil writes no vocabulary
	TokenizerConfig []byte // tokenizer_config.json, or nil
	ChatTemplate    string // replaces the template in tokenizer_config.json

	// Importance weighs the errors of matrices when they are quantised; nil weighs all alike. ImportanceFile is its
	// name in the metadata of the file.
	Importance     Importance
	ImportanceFile string
}

// Write writes a model as one GGUF file. A drafting block of DeepSeek-V4 is omitted, because the format does not
// support it. A digest of the file is stored in a file next to it. onTensor, if not nil, is called before each tensor
// with its number, the number of all tensors and its name. The report has sizes and errors by class and type.
func Write(ctx context.Context, path string, m *Model, mix Mix, onTensor func(done, total int, name string)) (Report,
	error) {
	pairs, err := m.metadata(mix)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	var r losses
	list, err := m.tensors(mix, &r)
	if err == nil {
		err = m.Importance.check(list)
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	sources := make([]gguf.Source, len(list))
	for i, t := range list {
		sources[i] = gguf.Source{Name: t.name, Type: t.kind, Shape: t.shape, Write: func(to io.Writer) error {
			if onTensor != nil {
				onTensor(i, len(list), t.name)
			}
			return inOrder(ctx, to, t.parts, t.part)
		}}
	}
	sum, err := gguf.Create(path, pairs, sources)
	if err != nil {
		return nil, err
	}
	return r.report(list, m.Importance), weight.KeepDigest(path, sum)
}

// tensors returns the tensors to write, in their order in the file.
func (m *Model) tensors(mix Mix, r *losses) ([]tensor, error) {
	w := &writer{from: m.Weights, mix: mix, used: map[string]bool{}, losses: r, importance: m.Importance}
	switch c := m.Config.(type) {
	case *config.DSA:
		w.names, w.layers, w.experts = dsaNames, c.Layers+c.NextN, c.FFN.Experts
		w.global = func(name string) string { return name }
		w.inLayer = func(layer int, name string) string { return fmt.Sprintf(dsaNames.prefix, layer) + name }
		for layer := range w.layers {
			w.latent(layer, c.Attention)
		}
	case *config.Next:
		w.names, w.layers, w.experts = nextNames, c.Layers+c.NextN, c.FFN.Experts
		w.global = w.spelled
		w.inLayer = func(layer int, name string) string {
			return w.spelled(fmt.Sprintf(nextNames.prefix, layer) + name)
		}
		for layer := range w.layers {
			w.latent(layer, c.Attention)
			w.decay(layer)
		}
	case *config.V4:
		w.names, w.layers, w.experts = v4Names, c.Layers, c.FFN.Experts
		n := spelling.Of(w.has)
		w.global, w.inLayer, w.stacked = n.Global, n.Layer, n.Stacked()
	}
	for name, from := range w.names.outside {
		w.plain(name, w.global(from), -1)
	}
	for layer := range w.layers {
		blk := fmt.Sprintf("blk.%d.", layer)
		for name, from := range w.names.inLayer {
			w.plain(blk+name, w.inLayer(layer, from), layer)
		}
		for name, from := range w.names.fused {
			w.fuse(blk+name, from, layer)
		}
	}
	for _, name := range m.Weights.Names() {
		if !w.used[name] && !w.leftOut(name) {
			w.errs = append(w.errs, fmt.Errorf("%w: GGUF has no name for tensor %s", ErrUnsupported, name))
		}
	}
	slices.SortStableFunc(w.out, func(a, b tensor) int {
		if c := layerOf(a.name) - layerOf(b.name); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return w.out, errors.Join(w.errs...)
}

// layerOf returns the number of the layer in a tensor's name, or -1, so that tensors outside of layers are sorted
// first.
func layerOf(name string) int {
	layer := -1
	_, _ = fmt.Sscanf(name, "blk.%d.", &layer)
	return layer
}

// tensor is a tensor of the file, whose bytes are computed in parts when they are written.
type tensor struct {
	name     string
	kind     gguf.Type
	shape    []int
	matrices int             // matrices that it stacks; 0 for vectors
	from     []weight.Matrix // the matrices if they are stored as in the checkpoint, otherwise nil
	parts    int
	part     func(i int) ([]byte, error)
}

// partValues is the approximate number of values of a part: a few milliseconds of computing in the slowest format.
const partValues = 1 << 16

// writer collects the tensors of a file.
type writer struct {
	from    *weight.Checkpoint
	mix     Mix
	names   *names
	layers  int
	experts int
	global  func(name string) string            // returns the name in the checkpoint of a tensor outside of layers
	inLayer func(layer int, name string) string // returns the name in the checkpoint of a tensor of a layer
	stacked bool                                // the checkpoint has the experts of a layer in two tensors
	used    map[string]bool
	out     []tensor
	errs    []error
	losses  *losses

	importance Importance
}

func (w *writer) has(name string) bool {
	_, ok := w.from.Tensor(name)
	return ok
}

// leftOut reports whether a tensor is not written by itself: scales are part of a matrix, rotary frequencies are
// computed, and vision towers and drafting blocks of DeepSeek-V4 are omitted.
func (w *writer) leftOut(name string) bool {
	matrix, scale := strings.CutSuffix(name, ".scale")
	return strings.HasSuffix(name, "_scale_inv") || scale && w.used[matrix+".weight"] ||
		strings.HasSuffix(name, "rotary_emb.inv_freq") || w.names == v4Names && strings.HasPrefix(name, "mtp.") ||
		w.names == nextNames && strings.HasPrefix(name, visionPrefix)
}

// plain adds a tensor with the shape in the checkpoint, if the checkpoint has it.
func (w *writer) plain(name, from string, layer int) {
	t, ok := w.from.Tensor(from)
	if !ok {
		return
	}
	w.used[from] = true
	one := tensor{name: name, kind: gguf.F32, shape: t.Shape, parts: 1}
	switch {
	case strings.HasSuffix(name, "tid2eid.weight"):
		one.kind = gguf.I32
		one.part = func(int) ([]byte, error) {
			v, err := weight.ReadI32(t)
			if err != nil {
				return nil, err
			}
			return binary.Append(nil, binary.LittleEndian, v)
		}
	case len(t.Shape) == 1 || strings.Contains(name, ".ssm_conv1d_"):
		one.part = func(int) ([]byte, error) {
			v, err := weight.ReadF32(t)
			return encode(gguf.F32, v, nil), err
		}
	default:
		x, err := w.from.Matrix(from)
		if err != nil {
			w.errs = append(w.errs, err)
			return
		}
		one.kind, one.shape = w.mix.typeOf(name, layer, w.layers, x.Cols), []int{x.Rows, x.Cols}
		w.cut(&one, []weight.Matrix{x})
	}
	w.out = append(w.out, one)
}

// cut adds parts of whole matrix rows to a tensor, in the order in which the matrices follow each other in it.
func (w *writer) cut(t *tensor, list []weight.Matrix) {
	rows := max(1, partValues/max(1, list[0].Cols))
	each := (list[0].Rows + rows - 1) / rows
	t.matrices, t.from, t.parts = len(list), list, len(list)*each
	t.part = func(i int) ([]byte, error) {
		x, first := list[i/each], i%each*rows
		end := min(first+rows, x.Rows)
		if x.Values == weight.F4E2M1x2 && t.kind == gguf.TypeOf(block.MXFP4) {
			data := repack(x, first, end)
			w.losses.add(t, data, nil)
			return data, nil
		}
		v, err := x.ReadRows(first, end)
		data := encode(t.kind, v, w.importance.of(t, i/each))
		w.losses.add(t, data, v)
		return data, err
	}
}

// repack returns rows of FP4 weights as blocks of MXFP4: the same codes in another order, and the same scales.
func repack(x weight.Matrix, first, end int) []byte {
	const codes = 16 // bytes of a block after its scale
	groups := x.Cols / (2 * codes)
	out := make([]byte, 0, (end-first)*groups*(1+codes))
	for r := first; r < end; r++ {
		for g := range groups {
			from := x.Data.Data[(r*groups+g)*codes:][:codes]
			out = append(out, x.Scale.Data[r*groups+g])
			for j := range codes {
				// FP4 rows have value j in byte j/2: in the lower half if j is even. An MXFP4 block has value j in the
				// lower half of byte j, and value 16+j in the upper half.
				shift := 4 * (j % 2)
				out = append(out, from[j/2]>>shift&15|from[j/2+codes/2]>>shift<<4)
			}
		}
	}
	return out
}

// isMXFP4 reports whether a matrix can be repacked.
func isMXFP4(x weight.Matrix) bool {
	return x.Values == weight.F4E2M1x2 && x.BlockRows == 1 && x.BlockCols == 32 && x.Cols%32 == 0 &&
		(x.Scale.DType == weight.F8E8M0 || x.Scale.DType == weight.U8)
}

// fuse adds a tensor [experts, out, in] with the matrices of all experts of a layer.
func (w *writer) fuse(name, matrix string, layer int) {
	list, err := w.expertMatrices(matrix, layer)
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if err != nil || list == nil {
		return
	}
	for e, x := range list {
		if x.Rows != list[0].Rows || x.Cols != list[0].Cols {
			w.errs = append(w.errs, fmt.Errorf("%s of expert %d of layer %d is [%d %d], the first expert's is [%d %d]",
				matrix, e, layer, x.Rows, x.Cols, list[0].Rows, list[0].Cols))
			return
		}
	}
	t := tensor{name: name, shape: []int{len(list), list[0].Rows, list[0].Cols}}
	t.kind = w.mix.typeOf(name, layer, w.layers, list[0].Cols)
	if w.mix.packed() && !slices.ContainsFunc(list, func(x weight.Matrix) bool { return !isMXFP4(x) }) {
		t.kind = gguf.TypeOf(block.MXFP4)
	}
	w.cut(&t, list)
	w.out = append(w.out, t)
}

// expertMatrices returns one matrix of every expert of a layer, or nil if the layer has no experts.
func (w *writer) expertMatrices(matrix string, layer int) ([]weight.Matrix, error) {
	if w.stacked {
		return w.stackedMatrices(matrix, layer)
	}
	if !w.has(w.inLayer(layer, w.names.expert(0, matrix))) {
		return nil, nil
	}
	list := make([]weight.Matrix, w.experts)
	for e := range list {
		from := w.inLayer(layer, w.names.expert(e, matrix))
		w.used[from] = true
		var err error
		if list[e], err = w.from.Matrix(from); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// stackedMatrices returns the matrices in a tensor [experts, 2*inner, hidden], rows of gate before rows of up, or in
// [experts, hidden, inner].
func (w *writer) stackedMatrices(matrix string, layer int) ([]weight.Matrix, error) {
	from, of, half := "ffn.experts.gate_up_proj", 2, map[string]int{"w1": 0, "w3": 1}[matrix]
	if matrix == "w2" {
		from, of, half = "ffn.experts.down_proj", 1, 0
	}
	from = w.inLayer(layer, from)
	t, ok := w.from.Tensor(from)
	if !ok {
		return nil, nil
	}
	w.used[from] = true
	if len(t.Shape) != 3 || t.Shape[0] != w.experts || t.Shape[1]%of != 0 {
		return nil, fmt.Errorf("%w: %s has shape %v, want matrices of %d experts", ErrUnsupported, from, t.Shape,
			w.experts)
	}
	rows, size := t.Shape[1]/of, len(t.Data)/(w.experts*of)
	list := make([]weight.Matrix, w.experts)
	for e := range list {
		one := *t
		one.Shape, one.Data = []int{rows, t.Shape[2]}, t.Data[(e*of+half)*size:][:size]
		list[e] = weight.Matrix{Data: &one, Rows: rows, Cols: t.Shape[2], Values: t.DType,
			RowBytes: len(one.Data) / rows}
	}
	return list, nil
}

// latent adds the two parts of the up-projection of latent rows: keys, transposed to [heads, latent, nope], and values,
// [heads, v, latent].
func (w *writer) latent(layer int, a config.Attention) {
	from := w.inLayer(layer, "self_attn.kv_b_proj.weight")
	if !w.has(from) {
		return
	}
	w.used[from] = true
	x, err := w.from.Matrix(from)
	if err == nil && (x.Rows != a.Heads*(a.Nope+a.V) || x.Cols != a.Latent) {
		err = fmt.Errorf("%s is [%d %d], want [%d %d]", from, x.Rows, x.Cols, a.Heads*(a.Nope+a.V), a.Latent)
	}
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	add := func(name string, shape []int, values func(head int) ([]float32, error)) {
		name = fmt.Sprintf("blk.%d.", layer) + name
		t := tensor{name: name, kind: w.mix.typeOf(name, layer, w.layers, shape[2]), shape: shape,
			matrices: a.Heads, parts: a.Heads}
		t.part = func(head int) ([]byte, error) {
			v, err := values(head)
			data := encode(t.kind, v, w.importance.of(&t, head))
			w.losses.add(&t, data, v)
			return data, err
		}
		w.out = append(w.out, t)
	}
	add(keyPart, []int{a.Heads, a.Latent, a.Nope}, func(head int) ([]float32, error) {
		rows, err := x.ReadRows(head*(a.Nope+a.V), head*(a.Nope+a.V)+a.Nope)
		out := make([]float32, len(rows))
		for i, v := range rows {
			out[i%a.Latent*a.Nope+i/a.Latent] = v
		}
		return out, err
	})
	add(valuePart, []int{a.Heads, a.V, a.Latent}, func(head int) ([]float32, error) {
		return x.ReadRows(head*(a.Nope+a.V)+a.Nope, (head+1)*(a.Nope+a.V))
	})
}

// encode returns the bytes of rows of values in a type. importance, unless nil, has the length of a row.
func encode(t gguf.Type, v, importance []float32) []byte {
	if f, ok := t.Block(); ok {
		out := make([]byte, len(v)/f.Values()*f.Bytes())
		f.Encode(out, v, importance)
		return out
	}
	if t == gguf.BF16 {
		out := make([]byte, 0, 2*len(v))
		for _, x := range v {
			out = binary.LittleEndian.AppendUint16(out, num.BF16(x))
		}
		return out
	}
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}
