// Package verify compares a model with the results of an independent implementation on the same checkpoint.
//
// The inputs are a checkpoint folder with golden.json and golden.safetensors next to the weights, and the settings to
// verify; the output is a Report: for each case the largest logit error, cosines of hidden states, selections, and
// greedy tokens, judged by the tolerances of tolerance.go.
package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"sparrow/internal/textfile"
	"sparrow/weight"
)

// ErrNoGolden means that the checkpoint folder holds no golden outputs to compare with.
var ErrNoGolden = errors.New("no golden outputs")

// Golden holds the results that an independent implementation computed for one prompt. Checkpoints with a DSpark head
// have only the logits of the last position (C.logits_last), and no Argmax, Hidden or Selections.
type Golden struct {
	Name       string
	Input      []int32
	LogitsFrom int         // first position with logits
	Logits     [][]float32 // [positions, vocabulary]
	Argmax     []int32     // greedy next token at every position
	Hidden     [][]float32 // [layers, width]: residual after each layer at the last position
	// Selections has shape [indexer calls][4][k]: the selections of the last four positions. Entries beyond the query's
	// own position are masked.
	Selections [][][]int32
	Greedy     []int32
	Margin     []float32 // distance between the best and the second logit at each greedy step
	Drafted    *Drafted  // drafts of a DSpark head; nil without drafts
}

// index is the content of golden.json.
type index struct {
	Cases []struct {
		Name         string `json:"name"`
		LogitsFrom   int    `json:"logits_from"`
		IndexerCalls int    `json:"indexer_calls"`
	} `json:"cases"`
}

// ReadGolden loads every golden case of a checkpoint.
func ReadGolden(dir string) ([]Golden, error) {
	text, err := textfile.Read(filepath.Join(dir, "golden.json"), textfile.Config)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("verify: %s: %w: golden.json and golden.safetensors must be in the folder of the "+
			"weights, as in testdata/oracle/deepseek_v32-1; "+
			"other checkpoints can be tested by questions with known answers (sparrow eval --model)", dir, ErrNoGolden)
	}
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	var ix index
	if err := json.Unmarshal(text, &ix); err != nil {
		return nil, fmt.Errorf("verify: %s/golden.json: %w", dir, err)
	}
	t, err := weight.OpenFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		return nil, err
	}
	defer t.Close()
	r := reader{from: t}
	var out []Golden
	for _, c := range ix.Cases {
		g := Golden{
			Name:   c.Name,
			Input:  r.ints(c.Name + ".input_ids"),
			Greedy: r.ints(c.Name + ".greedy"),
		}
		if _, last := t.Tensor(c.Name + ".logits_last"); last {
			g.LogitsFrom, g.Logits = len(g.Input)-1, r.matrix(c.Name+".logits_last")
		} else {
			g.LogitsFrom, g.Logits = c.LogitsFrom, r.matrix(c.Name+".logits")
			g.Argmax, g.Hidden = r.ints(c.Name+".argmax"), r.matrix(c.Name+".hidden_last")
		}
		if m := r.matrix(c.Name + ".greedy_margin"); len(m) == 1 {
			g.Margin = m[0]
		}
		g.Drafted = r.readDrafted(c.Name)
		for i := range c.IndexerCalls {
			g.Selections = append(g.Selections, r.selection(fmt.Sprintf("%s.topk.%d", c.Name, i)))
		}
		out = append(out, g)
	}
	if len(out) == 0 && r.err == nil {
		r.err = fmt.Errorf("verify: %s/golden.json lists no cases", dir)
	}
	return out, r.err
}

// reader copies tensors out of a file and keeps the first error.
type reader struct {
	from *weight.Checkpoint
	err  error
}

func (r *reader) find(name string) *weight.Tensor {
	t, ok := r.from.Tensor(name)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("verify: golden.safetensors lacks %s", name)
	}
	return t
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) ints(name string) []int32 {
	return slices.Concat(r.selection(name)...)
}

// matrix reads a float tensor as rows; a vector is one row.
func (r *reader) matrix(name string) [][]float32 { return rows(r, name, weight.ReadF32) }

// selection reads an integer tensor as rows.
func (r *reader) selection(name string) [][]int32 { return rows(r, name, weight.ReadI32) }

func rows[T any](r *reader, name string, read func(*weight.Tensor) ([]T, error)) [][]T {
	t := r.find(name)
	if t == nil {
		return nil
	}
	v, err := read(t)
	if err != nil {
		r.fail(err)
		return nil
	}
	return split(v, t.Shape)
}

// split cuts a flat slice into rows of the last dimension.
func split[T any](v []T, shape []int) [][]T {
	if len(shape) == 0 || shape[len(shape)-1] == 0 {
		return nil
	}
	w := shape[len(shape)-1]
	var out [][]T
	for ; len(v) >= w; v = v[w:] {
		out = append(out, v[:w:w])
	}
	return out
}
