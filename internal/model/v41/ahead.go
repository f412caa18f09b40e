package v41

import (
	"slices"

	"sparrow/kernel"
)

// ahead asks the system to read the rows that a pass will look up in mapped tables, in the order of the layers, so
// that they are read from disk while earlier layers are computed. rows has, for every token, its rows of all tables
// next to each other.
func (m *Model) ahead(rows []int32) {
	if m.hash == nil || m.ask == nil || !m.mapped() {
		return
	}
	words, columns := m.hash.Shape().Words(), m.config.Engram.Columns()
	ids := slices.Clone(rows) // a copy, because the block is filled again for the next pass
	go func() {
		for i := range m.layers {
			e := m.layers[i].engram
			if e == nil || !e.table.Mapped {
				continue
			}
			for at := e.first; at+columns <= len(ids); at += words {
				for _, id := range ids[at : at+columns] {
					m.askRow(e.table.Values, int(id))
					m.askRow(e.table.Scales, int(id))
				}
			}
		}
	}()
}

// askRow asks the system to read one row of a tensor in host memory.
func (m *Model) askRow(t kernel.Tensor, row int) {
	if t.Given() && row >= 0 && row < t.Rows {
		x := t.Slice(row, row+1)
		m.ask([]byte(x.Buf.(kernel.HostBuffer))[x.Off:][:x.Extent()])
	}
}

// mapped reports whether a table is mapped from a file.
func (m *Model) mapped() bool {
	return slices.ContainsFunc(m.layers, func(l layer) bool {
		return l.engram != nil && l.engram.table != nil && l.engram.table.Mapped
	})
}
