package v41

import (
	"unsafe"

	"sparrow/kernel"
)

// OnAsk makes the model call f with the address of every table row that it prefetches.
func (m *Model) OnAsk(f func(uintptr)) { m.ask = func(b []byte) { f(addressOf(b)) } }

// OnAnnounce makes the model call f with the address of every table row that it announces to the device.
func (m *Model) OnAnnounce(f func(uintptr)) { m.reader = announced(f) }

type announced func(uintptr)

func (announced) Prepare(*kernel.Table) error { return nil }

func (f announced) Announce(a kernel.TableArgs, ids []int32) error {
	for t := range a.IDs.Rows {
		for _, r := range ids[t*a.IDs.Stride:][:a.IDs.Cols] {
			f(addressOfRow(a.Table, r))
		}
	}
	return nil
}

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
				out = append(out, addressOfRow(e.table, r))
			}
		}
	}
	return out
}

func addressOfRow(t *kernel.Table, r int32) uintptr {
	x := t.Values.Slice(int(r), int(r)+1)
	return addressOf([]byte(x.Buf.(kernel.HostBuffer))[x.Off:])
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
