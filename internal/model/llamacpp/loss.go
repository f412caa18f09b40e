package llamacpp

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"sparrow/internal/unit"
	"sparrow/weight/gguf"
)

// Report holds the size and the rounding error of the tensors of a written file, by class of matrices and type.
type Report []Loss

// Loss is one line of a Report.
type Loss struct {
	Class string  `json:"class"` // experts, attention, dense, or embedding and head
	Type  string  `json:"type"`
	Bytes int64   `json:"bytes"`
	Error float64 `json:"error"` // RMS of the errors divided by RMS of the values; 0 if nothing is lost

	Matrices int `json:"matrices"`
	Weighed  int `json:"weighed"` // matrices whose errors were weighed with an importance
}

// Print writes the report as a table.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	weighed := slices.ContainsFunc(r, func(l Loss) bool { return l.Weighed > 0 })
	row := func(cells ...string) {
		if !weighed { // the last cell is about importances
			cells = cells[:4]
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	row("class", "type", "bytes", "error", "with importance")
	for _, l := range r {
		row(l.Class, l.Type, unit.Bytes(l.Bytes), fmt.Sprintf("%.2f %%", 100*l.Error),
			fmt.Sprintf("%d of %d matrices", l.Weighed, l.Matrices))
	}
	return t.Flush()
}

// losses sums up the errors of parts of tensors. Several goroutines may use it.
type losses struct {
	mu    sync.Mutex
	lines map[[2]string]*sums
}

type sums struct {
	bytes          int64
	wrong, squares float64

	matrices, weighed int
}

// classOf returns the class of a matrix of the file.
func classOf(name string) string {
	switch {
	case strings.Contains(name, "_exps."):
		return "experts"
	case strings.Contains(name, "attn_") || strings.Contains(name, "indexer"):
		return "attention"
	case strings.HasPrefix(name, "blk."):
		return "dense"
	}
	return "embedding and head"
}

// add adds the bytes of a part of a tensor, and its errors. values are the original values; nil means that there are no
// errors.
func (l *losses) add(t *tensor, data []byte, values []float32) {
	s := sums{bytes: int64(len(data))}
	if f, ok := t.kind.Block(); ok && values != nil {
		got := make([]float32, len(values))
		f.Decode(got, data)
		for i, v := range values {
			d := float64(got[i]) - float64(v)
			s.wrong, s.squares = s.wrong+d*d, s.squares+float64(v)*float64(v)
		}
	} else if t.kind == gguf.F32 && len(t.shape) < 2 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.line(t)
	to.bytes, to.wrong, to.squares = to.bytes+s.bytes, to.wrong+s.wrong, to.squares+s.squares
}

// line returns the sums of the class and type of a tensor.
func (l *losses) line(t *tensor) *sums {
	if l.lines == nil {
		l.lines = map[[2]string]*sums{}
	}
	at := [2]string{classOf(t.name), t.kind.String()}
	if l.lines[at] == nil {
		l.lines[at] = &sums{}
	}
	return l.lines[at]
}

// report returns the lines of all tensors of the list, whose parts were added.
func (l *losses) report(list []tensor, m Importance) (r Report) {
	for i := range list {
		if t := &list[i]; t.matrices > 0 {
			s := l.line(t)
			s.matrices += t.matrices
			s.weighed += m.weighed(t)
		}
	}
	for at, s := range l.lines {
		one := Loss{Class: at[0], Type: at[1], Bytes: s.bytes, Matrices: s.matrices, Weighed: s.weighed}
		if s.squares > 0 {
			one.Error = math.Sqrt(s.wrong / s.squares)
		}
		r = append(r, one)
	}
	slices.SortFunc(r, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Class+a.Type, b.Class+b.Type))
	})
	return r
}
