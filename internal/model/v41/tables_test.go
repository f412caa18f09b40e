package v41

import (
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
)

// The size of a table, and of the rows that tokens read from it, includes the scales of its values. A rank counts only
// the tables that it has.
func TestTablesIncludeTheirScales(t *testing.T) {
	of := func(d kernel.DType, cols int) kernel.Tensor {
		n := 10 * cols * d.Size()
		return kernel.Tensor{Buf: make(kernel.HostBuffer, n), DType: d, Rows: 10, Cols: cols, Stride: cols}
	}
	m := &Model{config: &config.V41{}, layers: make([]layer, 4)}
	m.config.Engram.Orders, m.config.Engram.Heads = 4, 2 // six rows for each token
	m.layers[0].engram = &memory{table: &kernel.Table{Values: of(kernel.E4M3, 64), Scales: of(kernel.E8M0, 2)}}
	m.layers[2].engram = &memory{table: &kernel.Table{Values: of(kernel.BF16, 64)}}
	m.layers[3].engram = &memory{}
	m.read.Store(5)
	want := model.TableUse{Bytes: 10 * (66 + 128), RowsRead: 5 * 2 * 6, BytesRead: 5 * 6 * (66 + 128)}
	if got := m.Tables(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
