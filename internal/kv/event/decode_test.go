package event

import (
	"encoding/binary"
	"fmt"
	"math"
)

// unpack reads one MessagePack value. It supports only the types that encoder writes.
func unpack(b []byte) (v any, rest []byte, err error) {
	need := func(n int) bool { return len(b) >= n }
	if !need(1) {
		return nil, nil, fmt.Errorf("nothing left")
	}
	code := b[0]
	b = b[1:]
	number := func(n int) (uint64, bool) {
		if !need(n) {
			return 0, false
		}
		var w [8]byte
		copy(w[8-n:], b[:n])
		b = b[n:]
		return binary.BigEndian.Uint64(w[:]), true
	}
	text := func(n uint64) (any, []byte, error) {
		if uint64(len(b)) < n {
			return nil, nil, fmt.Errorf("text of %d bytes is cut off", n)
		}
		return string(b[:n]), b[n:], nil
	}
	array := func(n uint64) (any, []byte, error) {
		list := []any{}
		for range n {
			v, rest, err := unpack(b)
			if err != nil {
				return nil, nil, err
			}
			list, b = append(list, v), rest
		}
		return list, b, nil
	}
	switch {
	case code < 0x80:
		return uint64(code), b, nil
	case code < 0x90:
		m := map[string]any{}
		for range code & 15 {
			k, rest, err := unpack(b)
			if err != nil {
				return nil, nil, err
			}
			v, rest, err := unpack(rest)
			if err != nil {
				return nil, nil, err
			}
			m[k.(string)], b = v, rest
		}
		return m, b, nil
	case code < 0xa0:
		return array(uint64(code & 15))
	case code < 0xc0:
		return text(uint64(code & 31))
	case code == nothing:
		return nil, b, nil
	}
	sizes := map[byte]int{0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4}
	n, ok := number(sizes[code])
	if !ok || sizes[code] == 0 {
		return nil, nil, fmt.Errorf("code %#x", code)
	}
	switch code {
	case 0xcb:
		return math.Float64frombits(n), b, nil
	case 0xd9, 0xda, 0xdb:
		return text(n)
	case 0xdc, 0xdd:
		return array(n)
	}
	return n, b, nil
}

// reader applies batches to a set of pages in the way of a router.
type reader struct {
	pages map[place]page
}

func (r *reader) apply(payload []byte) error {
	v, rest, err := unpack(payload)
	if err != nil || len(rest) > 0 {
		return fmt.Errorf("%v, %d bytes left", err, len(rest))
	}
	batch := v.([]any)
	if _, ok := batch[0].(float64); !ok || len(batch) != 3 || batch[2] != uint64(0) {
		return fmt.Errorf("batch %v", batch)
	}
	for _, each := range batch[1].([]any) {
		if err := r.event(each.(map[string]any)); err != nil {
			return err
		}
	}
	return nil
}

var mediumOf = map[any]Medium{"GPU": GPU, "CPU": CPU, "STORAGE": Storage}

func (r *reader) event(e map[string]any) error {
	hashes, _ := e["block_hashes"].([]any)
	switch e["type"] {
	case "AllBlocksCleared":
		r.pages = map[place]page{}
	case "BlockRemoved":
		for _, h := range hashes {
			at := place{mediumOf[e["medium"]], h.(uint64)}
			if _, ok := r.pages[at]; !ok {
				return fmt.Errorf("page %v was removed, but it is not stored", at)
			}
			delete(r.pages, at)
		}
	case "BlockStored":
		size, ids := int(e["block_size"].(uint64)), e["token_ids"].([]any)
		if len(ids) != size*len(hashes) {
			return fmt.Errorf("event with %d tokens for %d pages of %d tokens", len(ids), len(hashes), size)
		}
		salt, _ := e["cache_salt"].(string)
		p := page{salt: salt}
		p.parent, _ = e["parent_block_hash"].(uint64)
		p.first = e["parent_block_hash"] == nil
		if keys, ok := e["extra_keys"].([]any); ok != (p.first && salt != "") || ok && (len(keys) != len(hashes) ||
			keys[0].([]any)[0] != salt) {
			return fmt.Errorf("the extra keys are %v for a page with salt %q", e["extra_keys"], salt)
		}
		for i, h := range hashes {
			p.id, p.tokens = h.(uint64), nil
			for _, id := range ids[i*size : (i+1)*size] {
				p.tokens = append(p.tokens, int32(id.(uint64)))
			}
			if _, ok := r.pages[place{mediumOf[e["medium"]], p.parent}]; !p.first && !ok {
				return fmt.Errorf("page %x is stored before its parent %x", p.id, p.parent)
			}
			r.pages[place{mediumOf[e["medium"]], p.id}] = p
			p.parent, p.first = p.id, false
		}
	default:
		return fmt.Errorf("event %v", e)
	}
	return nil
}
