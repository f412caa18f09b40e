package event

import (
	"encoding/binary"
	"math"
	"time"
)

// encoder encodes one batch: [time, [events], rank]. Consecutive stored pages of a prompt are one event, and so are
// pages that are removed together.
type encoder struct {
	events []byte
	count  int

	run []*page // stored pages that are not encoded yet
	in  Medium  // tier of the pages in run and ids
	ids []uint64
}

// stored adds a page that was stored.
func (e *encoder) stored(m Medium, p *page) {
	if n := len(e.run); n > 0 {
		last := e.run[n-1]
		if e.in == m && !p.first && p.parent == last.id && p.salt == last.salt && p.id != last.id {
			e.run = append(e.run, p)
			return
		}
	}
	e.flush()
	e.run, e.in = append(e.run, p), m
}

// removed adds a page that was removed.
func (e *encoder) removed(m Medium, id uint64) {
	if len(e.ids) == 0 || e.in != m {
		e.flush()
	}
	e.ids, e.in = append(e.ids, id), m
}

// cleared adds the event that all pages were removed.
func (e *encoder) cleared() {
	e.flush()
	e.count++
	e.events = appendText(appendText(append(e.events, 0x81), "type"), "AllBlocksCleared")
}

// flush encodes the pages in run or ids as one event.
func (e *encoder) flush() {
	switch {
	case len(e.run) > 0:
		e.count++
		e.events = appendStored(e.events, e.in, e.run)
		e.run = e.run[:0]
	case len(e.ids) > 0:
		e.count++
		b := appendText(appendText(append(e.events, 0x83), "type"), "BlockRemoved")
		b = appendArray(appendText(b, "block_hashes"), len(e.ids))
		for _, id := range e.ids {
			b = appendUint(b, id)
		}
		e.events = appendText(appendText(b, "medium"), e.in.String())
		e.ids = e.ids[:0]
	}
}

// maxEncoded is the maximum bytes of the buffer that is kept between batches.
const maxEncoded = 1 << 20

// batch ends the batch and returns its bytes, or nil if it has no events. The encoder is empty afterwards.
func (e *encoder) batch(now time.Time) []byte {
	e.flush()
	if e.count == 0 {
		return nil
	}
	b := make([]byte, 0, len(e.events)+16)
	b = append(b, 0x93, 0xcb)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(now.UnixNano())/1e9))
	b = append(appendArray(b, e.count), e.events...)
	if e.events, e.count = e.events[:0], 0; cap(e.events) > maxEncoded {
		e.events = nil // release the large buffer of a snapshot
	}
	return append(b, 0) // data-parallel rank; this process has only one
}

// appendStored appends the event for consecutive stored pages of a prompt. As in vLLM, extra_keys has an entry for each
// page, and only that of a prompt's first page contains the salt. cache_salt contains the salt in every event.
func appendStored(b []byte, m Medium, run []*page) []byte {
	first := run[0]
	fields := byte(9)
	if first.salt != "" {
		fields++
	}
	b = appendText(appendText(append(b, 0x80|fields), "type"), "BlockStored")
	b = appendArray(appendText(b, "block_hashes"), len(run))
	tokens := 0
	for _, p := range run {
		b = appendUint(b, p.id)
		tokens += len(p.tokens)
	}
	b = appendText(b, "parent_block_hash")
	if first.first {
		b = append(b, nothing)
	} else {
		b = appendUint(b, first.parent)
	}
	b = appendArray(appendText(b, "token_ids"), tokens)
	for _, p := range run {
		for _, t := range p.tokens {
			b = appendUint(b, uint64(t))
		}
	}
	b = appendUint(appendText(b, "block_size"), uint64(len(first.tokens)))
	b = append(appendText(b, "lora_id"), nothing)
	b = appendText(appendText(b, "medium"), m.String())
	b = append(appendText(b, "lora_name"), nothing)
	b = appendText(b, "extra_keys")
	if first.salt == "" || !first.first {
		b = append(b, nothing)
	} else {
		b = appendText(append(appendArray(b, len(run)), 0x91), first.salt)
		for range run[1:] {
			b = append(b, nothing)
		}
	}
	if first.salt != "" {
		b = appendText(appendText(b, "cache_salt"), first.salt)
	}
	return b
}

// nothing is nil in MessagePack.
const nothing = 0xc0

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendArray(b []byte, n int) []byte {
	switch {
	case n < 1<<4:
		return append(b, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendText(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 1<<5:
		b = append(b, 0xa0|byte(n))
	case n < 1<<8:
		b = append(b, 0xd9, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}
