package gguf

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Pair is a key with its value: a string, []string, an integer or float of fixed size, a bool, or a slice of int8,
// uint8, int32, uint32, float32 or bool.
type Pair struct {
	Key   string
	Value any
}

// Source is a tensor to be written. Write writes all of its bytes.
type Source struct {
	Name  string
	Type  Type
	Shape []int // outermost dimension first
	Write func(io.Writer) error
}

// Create writes a file of version 3 and returns its SHA-256. It writes a temporary file and renames it, so that an
// interrupted run leaves no incomplete file.
func Create(path string, pairs []Pair, tensors []Source) (sum [sha256.Size]byte, err error) {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return sum, fmt.Errorf("gguf: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	h := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, h), 1<<20)
	err = write(w, pairs, tensors)
	if err == nil {
		err = w.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return sum, fmt.Errorf("gguf: write %s: %w", path, err)
	}
	h.Sum(sum[:0])
	return sum, os.Rename(part, path)
}

func write(w *bufio.Writer, pairs []Pair, tensors []Source) error {
	head, err := header(pairs, tensors)
	if err != nil {
		return err
	}
	out := &counter{w: w}
	if _, err := out.Write(head); err != nil {
		return err
	}
	for i := range tensors {
		if err := out.pad(); err != nil {
			return err
		}
		t := &tensors[i]
		before := out.n
		if err := t.Write(out); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		want, err := t.bytes()
		if err != nil {
			return err
		}
		if out.n-before != want {
			return fmt.Errorf("tensor %q: %d bytes were written, but %v of shape %v takes "+
				"%d", t.Name, out.n-before, t.Type,
				t.Shape, want)
		}
	}
	return out.pad()
}

func (t *Source) bytes() (int64, error) {
	return (&Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape}).bytes()
}

// header returns the bytes before the data, without padding.
func header(pairs []Pair, tensors []Source) ([]byte, error) {
	b := []byte(magicNumber)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = appendText(b, p.Key)
		kind, body, err := encode(p.Value)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", p.Key, err)
		}
		b = append(binary.LittleEndian.AppendUint32(b, kind), body...)
	}
	at := int64(0)
	for i := range tensors {
		t := &tensors[i]
		if len(t.Shape) > maxDims {
			return nil, fmt.Errorf("tensor %q has %d dimensions, want at most %d", t.Name, len(t.Shape),
				maxDims)
		}
		b = appendText(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for d := len(t.Shape) - 1; d >= 0; d-- {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[d]))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(at))
		n, err := t.bytes()
		if err != nil {
			return nil, err
		}
		at += (n + defaultPad - 1) / defaultPad * defaultPad
	}
	return b, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// encode returns the type and the bytes of a value.
func encode(v any) (kind uint32, body []byte, err error) {
	switch v := v.(type) {
	case string:
		return typeString, appendText(nil, v), nil
	case []string:
		body = arrayHead(typeString, len(v))
		for _, s := range v {
			body = appendText(body, s)
		}
		return typeArray, body, nil
	}
	list := true
	n := 0
	switch v := v.(type) {
	case []int8:
		kind, n = typeI8, len(v)
	case []uint8:
		kind, n = typeU8, len(v)
	case []int32:
		kind, n = typeI32, len(v)
	case []uint32:
		kind, n = typeU32, len(v)
	case []float32:
		kind, n = typeF32, len(v)
	case []bool:
		kind, n = typeBool, len(v)
	default:
		list = false
		if kind, err = scalarKind(v); err != nil {
			return 0, nil, err
		}
	}
	if list {
		body = arrayHead(kind, n)
		kind = typeArray
	}
	body, err = binary.Append(body, binary.LittleEndian, v)
	return kind, body, err
}

func arrayHead(kind uint32, n int) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, kind), uint64(n))
}

func scalarKind(v any) (uint32, error) {
	switch v.(type) {
	case uint8:
		return typeU8, nil
	case int8:
		return typeI8, nil
	case uint16:
		return typeU16, nil
	case int16:
		return typeI16, nil
	case uint32:
		return typeU32, nil
	case int32:
		return typeI32, nil
	case uint64:
		return typeU64, nil
	case int64:
		return typeI64, nil
	case float32:
		return typeF32, nil
	case float64:
		return typeF64, nil
	case bool:
		return typeBool, nil
	}
	return 0, fmt.Errorf("a value of type %T cannot be written", v)
}

// counter counts written bytes, for padding.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// pad writes zeros up to the next multiple of the alignment.
func (c *counter) pad() error {
	_, err := c.Write(make([]byte, (defaultPad-c.n%defaultPad)%defaultPad))
	return err
}
