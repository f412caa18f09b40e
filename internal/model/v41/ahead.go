package v41

import (
	"slices"

	"sparrow/kernel"
)

// announce tells the device or the operating system which rows of tables the pass looks up, before layers run. rows
// holds, for every token, its row numbers in all tables.
func (s *pass) announce(rows []int32) error {
	if s.m.reader == nil {
		s.m.ahead(rows)
		return nil
	}
	if len(rows) == 0 {
		return nil
	}
	for i := range s.m.layers {
		if e := s.m.layers[i].engram; e != nil && e.table != nil {
			if err := s.m.reader.Announce(s.lookUp(e), rows[e.first:]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ahead requests from the operating system the rows of mapped tables that a pass looks up, in the order of the layers.
// So they are read from disk while earlier layers are computed. rows holds, for every token, its row numbers in all
// tables.
func (m *Model) ahead(rows []int32) {
	if m.hash == nil || !m.mapped() {
		return
	}
	words, columns := m.hash.Shape().Words(), m.config.Engram.Columns()
	ids := slices.Clone(rows) // a copy, because the next pass overwrites rows
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

// askRow requests that the operating system reads one row of a mapped tensor.
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
