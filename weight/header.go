package weight

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"sparrow/internal/jsonscan"
)

const (
	prefixBytes    = 8           // bytes of the header length
	maxHeaderBytes = 100_000_000 // limit of the format
	metadataKey    = "__metadata__"

	// typicalEntryBytes is the typical length of a tensor's text. It is used to estimate the number of entries.
	typicalEntryBytes = 110
)

// entry describes one tensor of the header.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end int64 // range in the data section, in bytes
	at         int64 // byte offset of the entry in the file
}

// header is the checked header of one file.
type header struct {
	entries   []entry // in the order of the header
	metadata  map[string]string
	dataStart int64 // byte offset of the data section in the file
}

// parseHeader parses and checks the header of a safetensors file with the contents data. All independent problems are
// reported. Its memory depends only on the size of the header, not on numbers in it.
func parseHeader(file string, data []byte) (*header, error) {
	p := &problems{file: file}
	text, ok := headerText(p, data)
	if !ok {
		return nil, p.err()
	}
	expected := len(text) / typicalEntryBytes
	h := &headerParser{
		Scanner:  jsonscan.Scanner{Text: text, Name: "header"},
		problems: p,
		header:   &header{dataStart: prefixBytes + int64(len(text)), entries: make([]entry, 0, expected)},
		seen:     make(map[string]struct{}, expected),
	}
	if err := h.parse(); err != nil {
		var syntax *jsonscan.SyntaxError
		if !errors.As(err, &syntax) {
			return nil, err
		}
		p.add(prefixBytes+int64(syntax.Pos), h.current, "header is not valid: %s", syntax.Reason)
		return nil, p.err()
	}
	if len(p.errs) == 0 { // ranges of invalid entries cannot be compared
		checkTiling(p, h.entries, int64(len(data))-h.dataStart)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return h.header, nil
}

// headerText returns the JSON text of the header.
func headerText(p *problems, data []byte) ([]byte, bool) {
	if len(data) < prefixBytes {
		p.add(0, "", "file has %d bytes, too short for the %d-byte header length (truncated?)", len(data), prefixBytes)
		return nil, false
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeaderBytes {
		p.add(0, "", "header length %d is over the limit of %d bytes: not a safetensors file?", n, maxHeaderBytes)
		return nil, false
	}
	if n > uint64(len(data)-prefixBytes) {
		p.add(0, "", "header length %d does not fit the file of %d bytes (truncated?)", n, len(data))
		return nil, false
	}
	text := data[prefixBytes : prefixBytes+int(n)]
	if bad := jsonscan.InvalidUTF8(text); bad >= 0 {
		p.add(prefixBytes+int64(bad), "", "header is not valid UTF-8: byte %#02x", text[bad])
		return nil, false
	}
	return text, true
}

// headerParser parses the header in one pass.
type headerParser struct {
	jsonscan.Scanner
	*problems
	*header
	seen    map[string]struct{} // names so far, including "__metadata__"
	current string              // name of the current tensor, for errors
	dims    []int               // buffer for the dimensions of a shape
}

func (h *headerParser) parse() error {
	if len(h.Text) == 0 || h.Text[0] != '{' { // the format allows no white space before it
		return h.Errorf(0, "the header must begin with '{'")
	}
	if err := h.Object(h.member); err != nil {
		return err
	}
	return h.End("only padding after the header")
}

// member reads a name and its value.
func (h *headerParser) member(key []byte, keyPos int) error {
	name := string(key)
	at := prefixBytes + int64(keyPos)
	if _, twice := h.seen[name]; twice {
		h.add(at, name, "named twice in one header")
	}
	h.seen[name] = struct{}{}
	if name == metadataKey {
		return h.readMetadata()
	}
	h.current = name
	e := entry{name: name, at: at}
	if err := h.readEntry(&e); err != nil {
		return err
	}
	h.current = ""
	h.entries = append(h.entries, e)
	return nil
}

func (h *headerParser) readMetadata() error {
	h.current = metadataKey
	if h.metadata == nil {
		h.metadata = make(map[string]string)
	}
	err := h.Object(func(key []byte, keyPos int) error {
		name := string(key)
		if _, twice := h.metadata[name]; twice {
			h.add(prefixBytes+int64(keyPos), metadataKey, "key %q occurs twice", clip(name))
		}
		value, err := h.Str() // the format allows only strings
		if err != nil {
			return err
		}
		h.metadata[name] = string(value)
		return nil
	})
	if err == nil {
		h.current = ""
	}
	return err
}

// Fields of an entry, as bits of a set.
const (
	hasDType = 1 << iota
	hasShape
	hasOffsets
)

// readEntry reads {"dtype", "shape", "data_offsets"} in any order and checks that they match. Other fields are ignored,
// as in the reference implementation.
func (h *headerParser) readEntry(e *entry) error {
	var have, valid int
	err := h.Object(func(key []byte, keyPos int) error {
		var field int
		var read func(*entry) (bool, error)
		switch string(key) {
		case "dtype":
			field, read = hasDType, h.readDType
		case "shape":
			field, read = hasShape, h.readShape
		case "data_offsets":
			field, read = hasOffsets, h.readOffsets
		default:
			return h.Skip()
		}
		if have&field != 0 {
			h.add(prefixBytes+int64(keyPos), e.name, "field %q occurs twice", key)
		}
		have |= field
		ok, err := read(e)
		if ok {
			valid |= field
		}
		return err
	})
	if err != nil {
		return err
	}
	const all = hasDType | hasShape | hasOffsets
	if have != all {
		for _, f := range [...]struct {
			field int
			name  string
		}{{hasDType, "dtype"}, {hasShape, "shape"}, {hasOffsets, "data_offsets"}} {
			if have&f.field == 0 {
				h.add(e.at, e.name, "field %q is missing", f.name)
			}
		}
		return nil
	}
	if valid == all {
		h.checkSize(e)
	}
	return nil
}

func (h *headerParser) readDType(e *entry) (bool, error) {
	text, err := h.Str()
	if err != nil {
		return false, err
	}
	if e.dtype = dtypeNamed(text); e.dtype == Invalid {
		h.addKind(errors.Join(ErrMalformed, ErrDType), e.at, e.name, "unknown dtype %q; want one of %s",
			clip(string(text)), dtypeList)
	}
	return e.dtype != Invalid, nil
}

func (h *headerParser) readShape(e *entry) (bool, error) {
	h.dims = h.dims[:0]
	valid := true
	err := h.Array(func() error {
		text, err := h.Number()
		if err != nil {
			return err
		}
		n, ok := count(text)
		if !ok || n > math.MaxInt {
			h.add(e.at, e.name, "dimension %s of the shape is not valid; want a whole number from 0 to "+
				"%d", clip(string(text)),
				math.MaxInt)
			valid = false
			return nil
		}
		h.dims = append(h.dims, int(n))
		return nil
	})
	e.shape = slices.Clone(h.dims)
	return valid, err
}

func (h *headerParser) readOffsets(e *entry) (bool, error) {
	valid, n := true, 0
	err := h.Array(func() error {
		text, err := h.Number()
		if err != nil {
			return err
		}
		v, ok := count(text)
		if !ok {
			h.add(e.at, e.name, "data offset %s is not valid; want a whole number from 0 to %d", clip(string(text)),
				int64(math.MaxInt64))
			valid = false
		}
		switch n++; n {
		case 1:
			e.begin = v
		case 2:
			e.end = v
		}
		return nil
	})
	if err == nil && n != 2 {
		h.add(e.at, e.name, "data_offsets has %d numbers, want two: begin and end", n)
		valid = false
	}
	return valid, err
}

// checkSize compares the range of an entry with its dtype and shape.
func (h *headerParser) checkSize(e *entry) {
	if e.end < e.begin {
		h.add(e.at, e.name, "data_offsets [%d, %d) end before they begin", e.begin, e.end)
		return
	}
	want, ok := dataBytes(e.dtype, e.shape)
	switch {
	case !ok:
		h.add(e.at, e.name, "%s of shape %s is not a whole number of bytes that can be addressed", e.dtype,
			shapeText(e.shape))
	case want != e.end-e.begin:
		h.add(e.at, e.name, "%s of shape %s takes %d bytes, data_offsets [%d, %d) hold %d",
			e.dtype, shapeText(e.shape), want, e.begin, e.end, e.end-e.begin)
	}
}
