package llamacpp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"sparrow/internal/textfile"
	"sparrow/weight/gguf"
)

// ErrImportance is returned for a file that is not an importance matrix.
var ErrImportance = errors.New("not an importance matrix of llama.cpp")

// Importance holds, for tensors of a GGUF file, the mean squares of the inputs that their matrices were multiplied by
// while a text was processed: [matrices, columns]. Matrices that no token used have none.
type Importance map[string][][]float32

// The names of the two tensors that llama.cpp writes for each matrix.
const (
	squaresSuffix = ".in_sum2"
	countsSuffix  = ".counts"
)

// Bounds of files of the older format, which have no list of their tensors.
const (
	mostNameBytes    = 1 << 12
	mostInputColumns = 1 << 28
)

// ImportanceOf makes an importance matrix of mean squares that were measured in this process. of finds those of a
// matrix by its memory in the checkpoint; nil means that there are none.
func ImportanceOf(m *Model, mix Mix, of func(matrix []byte) []float32) (Importance, error) {
	list, err := m.tensors(mix, &losses{})
	if err != nil {
		return nil, err
	}
	out := Importance{}
	for _, t := range list {
		found, means := false, make([][]float32, len(t.from))
		for i, x := range t.from {
			means[i] = of(x.Data.Data)
			found = found || means[i] != nil
		}
		if found {
			out[t.name] = means
		}
	}
	return out, nil
}

// ReadImportance reads a file that llama.cpp's imatrix wrote: GGUF, or the older format without a header.
func ReadImportance(path string) (_ Importance, err error) {
	if gguf.Begins(path) {
		return importanceOfGGUF(path)
	}
	f, err := textfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m, err := importanceOfEntries(&io.LimitedReader{R: bufio.NewReader(f), N: info.Size()})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// importanceOfGGUF reads the sums of squares [matrices, columns] and the numbers of tokens [matrices] of each tensor.
func importanceOfGGUF(path string) (_ Importance, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m := Importance{}
	tensors := map[string]*gguf.Tensor{}
	for i := range f.Tensors {
		tensors[f.Tensors[i].Name] = &f.Tensors[i]
	}
	for _, t := range f.Tensors {
		name, ok := strings.CutSuffix(t.Name, squaresSuffix)
		if !ok {
			continue
		}
		sums, err := floatsOf(&t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		counted, ok := tensors[name+countsSuffix]
		if !ok {
			return nil, fmt.Errorf("%s: %w: tensor %s has no %s", path, ErrImportance, t.Name, name+countsSuffix)
		}
		counts, err := floatsOf(counted)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(counts) == 0 || len(sums)%len(counts) != 0 || len(sums) == 0 {
			return nil, fmt.Errorf("%s: %w: tensor %s has %d values and %d counts; want the same number for each count",
				path, ErrImportance, t.Name, len(sums), len(counts))
		}
		cols := len(sums) / len(counts)
		for i, n := range counts {
			one, err := means(sums[i*cols:][:cols], n)
			if err != nil {
				return nil, fmt.Errorf("%s: tensor %s: %w", path, t.Name, err)
			}
			m[name] = append(m[name], one)
		}
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no tensor whose name ends in %s", path, ErrImportance, squaresSuffix)
	}
	return m, nil
}

// floatsOf returns the values of an F32 tensor.
func floatsOf(t *gguf.Tensor) ([]float32, error) {
	if t.Type != gguf.F32 {
		return nil, fmt.Errorf("%w: tensor %s is %s; want F32", ErrImportance, t.Name, t.Type)
	}
	out := make([]float32, len(t.Data)/4)
	_, err := binary.Decode(t.Data, binary.LittleEndian, out)
	return out, err
}

// means divides sums of squares by the number of tokens. It returns nil for a matrix that no token used.
func means(sums []float32, n float32) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	out := make([]float32, len(sums))
	for i, v := range sums {
		if out[i] = v / n; !(v >= 0 && n > 0 && n <= math.MaxFloat32 && out[i] <= math.MaxFloat32) {
			return nil, fmt.Errorf("%w: value %d is %v of %v tokens; want a sum of squares and a number of tokens "+
				"whose ratio is finite and not negative", ErrImportance, i, v, n)
		}
	}
	if slices.Max(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// importanceOfEntries reads the older format: the number of entries, and for each the length of its name, the name, the
// number of calls, the number of values, and the values as float32, which are means times the number of calls.
func importanceOfEntries(r *io.LimitedReader) (Importance, error) {
	number := func(what string, low, high int32) (int, error) {
		var v int32
		if err := binary.Read(r, binary.LittleEndian, &v); err != nil {
			return 0, fmt.Errorf("%w: it ends before %s", ErrImportance, what)
		}
		if v < low || v > high {
			return 0, fmt.Errorf("%w: %s is %d; want %d to %d", ErrImportance, what, v, low, high)
		}
		return int(v), nil
	}
	entries, err := number("the number of entries", 1, 1<<24)
	if err != nil {
		return nil, err
	}
	m := Importance{}
	for i := range entries {
		size, err := number(fmt.Sprintf("the length of name %d", i), 1, mostNameBytes)
		if err != nil {
			return nil, err
		}
		name := make([]byte, size)
		if _, err := io.ReadFull(r, name); err != nil {
			return nil, fmt.Errorf("%w: it ends in name %d", ErrImportance, i)
		}
		if _, twice := m[string(name)]; twice {
			return nil, fmt.Errorf("%w: entry %q occurs twice", ErrImportance, name)
		}
		calls, err := number(fmt.Sprintf("the number of calls of %q", name), 0, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		n, err := number(fmt.Sprintf("the number of values of %q", name), 1, mostInputColumns)
		if err != nil {
			return nil, err
		}
		if 4*int64(n) > r.N {
			return nil, fmt.Errorf("%w: it ends in the %d values of %q", ErrImportance, n, name)
		}
		values := make([]float32, n)
		if err := binary.Read(r, binary.LittleEndian, values); err != nil {
			return nil, fmt.Errorf("%w: values of %q: %w", ErrImportance, name, err)
		}
		one, err := means(values, float32(max(1, calls)))
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
		if one != nil {
			m[string(name)] = [][]float32{one}
		}
	}
	return m, nil
}

// of returns the importance of the columns of matrix i of a tensor, or nil if there is none. Mean squares are divided
// by their mean: only their ratios matter, and with very small or large weights the sums of a search would become 0 or
// infinite. Inputs that were always near zero have a thousandth of the mean, so that values that other texts use are
// not lost.
func (m Importance) of(t *tensor, i int) []float32 {
	squares, total := m.squares(t, i), 0.0
	for _, v := range squares {
		total += float64(v)
	}
	if total == 0 {
		return nil
	}
	out, mean := make([]float32, len(squares)), total/float64(len(squares))
	for j, v := range squares {
		out[j] = max(float32(float64(v)/mean), 0.001)
	}
	return out
}

// squares returns the mean squares of the inputs of matrix i of a tensor, or nil if there are none. The older format
// has the matrices of all experts in one list.
func (m Importance) squares(t *tensor, i int) []float32 {
	list, cols := m[t.name], t.shape[len(t.shape)-1]
	switch {
	case len(list) == 0:
		return nil
	case len(list) == 1 && len(list[0]) == t.matrices*cols:
		return list[0][i*cols:][:cols]
	case len(list) == 1:
		return list[0]
	}
	return list[i]
}

// check compares the sizes of the importances with those of the tensors that have some. At least one tensor must.
func (m Importance) check(list []tensor) error {
	found := 0
	for _, t := range list {
		of := m[t.name]
		if t.matrices == 0 || len(of) == 0 {
			continue
		}
		found++
		cols := t.shape[len(t.shape)-1]
		fits := len(of) == 1 && (len(of[0]) == t.matrices*cols || of[0] == nil)
		if !fits && (len(of) == 1 || len(of) == t.matrices) {
			fits = !slices.ContainsFunc(of, func(one []float32) bool { return one != nil && len(one) != cols })
		}
		if !fits {
			return fmt.Errorf("the importance of %s has %d lists of inputs, the first of %d; the model has %d "+
				"matrices of %d columns: use the importance matrix of this model", t.name, len(of), len(of[0]),
				t.matrices, cols)
		}
	}
	if len(m) > 0 && found == 0 {
		return fmt.Errorf("the importance matrix has %d tensors, of which the model has none: use that of this model",
			len(m))
	}
	return nil
}

// weighed returns the number of matrices of a tensor whose encoder used an importance.
func (m Importance) weighed(t *tensor) (n int) {
	if f, ok := t.kind.Block(); !ok || !f.Weighs() {
		return 0
	}
	for i := range t.matrices {
		if slices.ContainsFunc(m.squares(t, i), func(v float32) bool { return v > 0 }) {
			n++
		}
	}
	return n
}
