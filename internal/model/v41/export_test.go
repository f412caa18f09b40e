package v41

import (
	"unsafe"

	"sparrow/kernel"
)

// OnAsk makes the model call f with the address of every table row that it prefetches.
func (m *Model) OnAsk(f func(uintptr)) { m.ask = func(b []byte) { f(addressOf(b)) } }

// TableRows returns the addresses of the rows that tokens look up, in the order of the layers.
func (m *Model) TableRows(tokens []int32) (out []uintptr) {
	rows := make([]int32, m.hash.Shape().Words())
	for i := range m.layers {
		e := m.layers[i].engram
		if e == nil {
			continue
		}
		for at, id := range tokens {
			m.hash.Rows(rows, tokens[max(at-m.Remembers(), 0):at], id)
			for _, r := range rows[e.first : e.first+m.config.Engram.Columns()] {
				x := e.table.Values.Slice(int(r), int(r)+1)
				out = append(out, addressOf([]byte(x.Buf.(kernel.HostBuffer))[x.Off:]))
			}
		}
	}
	return out
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
