package weight

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// Source is a tensor to be written. Fill is called once and writes exactly the tensor's bytes to w, in pieces of any
// size, so that a checkpoint may be larger than memory.
type Source struct {
	Name  string
	DType DType
	Shape []int // in values, also for F4E2M1x2
	Fill  func(w io.Writer) error
}

// SourceBytes returns a Source of data in memory.
func SourceBytes(name string, dtype DType, shape []int, data []byte) Source {
	return Source{Name: name, DType: dtype, Shape: shape, Fill: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// Bytes returns the bytes of the tensor's data; ok is false if dtype or shape is invalid.
func (s *Source) Bytes() (n int64, ok bool) {
	if s.DType.Bits() == 0 {
		return 0, false
	}
	return dataBytes(s.DType, s.Shape)
}

// alignBytes is the alignment of the data, and of tensors whose size is a multiple of it: the size of a cache line and
// of the widest vector register.
const alignBytes = 64

// writeBuffer is the size of the write buffer in bytes, large enough that system calls take negligible time.
const writeBuffer = 1 << 20

// Write writes a safetensors file to w: the header, then the data of each tensor by its Fill.
//
// The format forbids gaps, so tensors are aligned by their order: they are sorted by the largest power of two, up to
// 64, that divides their size, largest first, and then by name. Each tensor begins at a multiple of this power, which
// is at least its element size.
func Write(w io.Writer, tensors []Source, metadata map[string]string) error {
	order, err := arrange(tensors)
	if err != nil {
		return err
	}
	head, err := encodeHeader(order, metadata)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, writeBuffer)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("weight: write header: %w", err)
	}
	for i := range order {
		if err := writeData(out, &order[i]); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("weight: write: %w", err)
	}
	return nil
}

// Create writes a safetensors file, and replaces an existing one when the new file is complete.
func Create(path string, tensors []Source, metadata map[string]string) error {
	return replaceFile(path, func(w io.Writer) error { return Write(w, tensors, metadata) })
}

// replaceFile writes a temporary file in the folder of path and renames it, or removes it after an error.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return fmt.Errorf("weight: create %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close() // the error is ignored: the file is removed, and may already be closed
			err = errors.Join(fmt.Errorf("weight: create %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil { // temporary files are readable only by their owner
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// arrange checks the tensors and returns them in the order of the file.
func arrange(tensors []Source) ([]Source, error) {
	var errs []error
	seen := make(map[string]struct{}, len(tensors))
	total := int64(0)
	for i := range tensors {
		t := &tensors[i]
		n, ok := t.Bytes()
		_, twice := seen[t.Name]
		seen[t.Name] = struct{}{}
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("weight: tensor %q: %w: %s of shape %s is not a whole number of bytes",
				t.Name, ErrSource, t.DType, shapeText(t.Shape)))
		case n > math.MaxInt64-maxHeaderBytes-total:
			errs = append(errs, fmt.Errorf("weight: tensor %q: %w: %d bytes make the file too large to address", t.Name,
				ErrSource, n))
		case t.Name == metadataKey || !utf8.ValidString(t.Name):
			errs = append(errs, fmt.Errorf("weight: tensor %q: %w: the name is reserved or not valid UTF-8", t.Name,
				ErrSource))
		case twice:
			errs = append(errs, fmt.Errorf("weight: tensor %q: %w: given twice", t.Name, ErrSource))
		case t.Fill == nil:
			errs = append(errs, fmt.Errorf("weight: tensor %q: %w: it has no Fill", t.Name, ErrSource))
		default:
			total += n
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	order := slices.Clone(tensors)
	slices.SortFunc(order, func(a, b Source) int {
		return cmp.Or(cmp.Compare(alignment(b), alignment(a)), cmp.Compare(a.Name, b.Name))
	})
	return order, nil
}

// alignment returns the largest power of two up to alignBytes that divides the tensor's size.
func alignment(s Source) int {
	n, _ := s.Bytes()
	return 1 << min(bits.TrailingZeros64(uint64(n)), bits.TrailingZeros(alignBytes))
}

// encodeHeader returns the header length, the JSON text and padding to a multiple of alignBytes.
func encodeHeader(order []Source, metadata map[string]string) ([]byte, error) {
	buf := make([]byte, prefixBytes, prefixBytes+128*(len(order)+1))
	buf = append(buf, '{')
	if len(metadata) > 0 {
		for k, v := range metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("weight: metadata %q: %w: not valid UTF-8", k, ErrSource)
			}
		}
		text, err := json.Marshal(metadata) // Marshal sorts the keys
		if err != nil {
			return nil, fmt.Errorf("weight: metadata: %w", err)
		}
		buf = append(buf, `"`+metadataKey+`":`...)
		buf = append(append(buf, text...), ',')
	}
	offset := int64(0)
	for i := range order {
		t := &order[i]
		n, _ := t.Bytes()
		text, err := json.Marshal(t.Name)
		if err != nil {
			return nil, fmt.Errorf("weight: tensor %q: %w", t.Name, err)
		}
		buf = append(buf, text...)
		buf = fmt.Appendf(buf, `:{"dtype":"%s","shape":[`, t.DType)
		for j, d := range t.Shape {
			if j > 0 {
				buf = append(buf, ',')
			}
			buf = fmt.Append(buf, d)
		}
		buf = fmt.Appendf(buf, `],"data_offsets":[%d,%d]},`, offset, offset+n)
		offset += n
	}
	buf = append(bytes.TrimSuffix(buf, []byte{','}), '}')
	for len(buf)%alignBytes != 0 {
		buf = append(buf, ' ')
	}
	if len(buf)-prefixBytes > maxHeaderBytes {
		return nil,
			fmt.Errorf("weight: %w: %d tensors make a header of %d bytes, over the format's %d; write several shards",
				ErrSource, len(order), len(buf), maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(buf, uint64(len(buf)-prefixBytes))
	return buf, nil
}

// writeData writes the data of a tensor and checks its size.
func writeData(w io.Writer, t *Source) error {
	n, _ := t.Bytes()
	limited := &exactWriter{w: w, left: n}
	if err := t.Fill(limited); err != nil {
		return fmt.Errorf("weight: tensor %q: fill: %w", t.Name, err)
	}
	if limited.left != 0 {
		return fmt.Errorf("weight: tensor %q: %w: Fill wrote %d of its %d bytes", t.Name, ErrSource, n-limited.left, n)
	}
	return nil
}

// exactWriter writes at most left bytes, and returns an error if there are more.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > e.left {
		return 0, fmt.Errorf("%w: Fill wrote at least %d bytes more than the dtype and shape allow", ErrSource,
			int64(len(p))-e.left)
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}
