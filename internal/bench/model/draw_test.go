package model

import (
	"testing"

	"sparrow/kernel"
	"sparrow/layout"
)

// drawnHost is host memory that is filled in the same way as the memory of a device that generates random data.
type drawnHost struct{ mem []byte }

func (d drawnHost) Draw(t kernel.Tensor, x kernel.Drawn) error {
	size := t.DType.Size()
	for r := range t.Rows {
		for c := range t.Cols {
			one := make([]byte, size)
			v := kernel.Drawn{Mean: x.Value(int64(r*t.Cols + c))}
			if err := v.Fill(one, t.DType, 0); err != nil {
				return err
			}
			copy(d.mem[int(t.Off)+(r*t.Stride+c)*size:], one)
		}
	}
	return nil
}

// A generated pool has rows and keys of about unit variance, in every layout of a GPU, and is written completely.
func TestDrawnPools(t *testing.T) {
	const pages, tokens = 3, 64
	decode := map[layout.Kind]func(page []byte, slot int) []float32{
		layout.IndexPage132: func(page []byte, slot int) []float32 {
			v := make([]float32, layout.IndexDim)
			l, err := layout.IndexOf(layout.IndexPage132)
			if err != nil {
				t.Fatal(err)
			}
			l.Decode(v, page, tokens, slot)
			return v
		},
	}
	for _, k := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576} {
		l, err := layout.MainOf(k)
		if err != nil {
			t.Fatal(err)
		}
		decode[k] = func(page []byte, slot int) []float32 {
			v := make([]float32, layout.RowDim)
			l.Decode(v, page, slot)
			return v
		}
	}
	for kind, rows := range decode {
		size := layout.IndexPageBytes
		if l, err := layout.MainOf(kind); err == nil {
			size = l.PageBytes(tokens)
		}
		dev := drawnHost{make([]byte, pages*size)}
		p := kernel.Pool{Mem: kernel.Tensor{Buf: kernel.HostBuffer(dev.mem), DType: kernel.U8, Rows: pages, Cols: size,
			Stride: size}, Layout: kind, PageTokens: tokens}
		if err := draw(dev, [][]kernel.Pool{{p}}, 1); err != nil {
			t.Fatal(err)
		}
		for page := range pages {
			for slot := range tokens {
				sum := 0.
				v := rows(dev.mem[page*size:][:size], slot)
				for _, x := range v {
					sum += float64(x) * float64(x)
				}
				if mean := sum / float64(len(v)); mean < 0.6 || mean > 1.6 {
					t.Errorf("%v: page %d, row %d: mean square %v", kind, page, slot, mean)
				}
			}
		}
	}
	if err := draw(drawnHost{}, [][]kernel.Pool{{{Layout: layout.V4F32Row2048}}}, 1); err == nil {
		t.Error("exact entries were drawn")
	}
}

// Entries of DeepSeek-V4 have variance 1 in every page, also in short pages, whose scales fill a part of a row.
func TestDrawnEntries(t *testing.T) {
	const pages = 3
	for _, entries := range []int{2, 64, 256} {
		l := layout.V4Packed{}
		size := l.PageBytes(entries)
		dev := drawnHost{make([]byte, pages*size)}
		p := kernel.Pool{Mem: kernel.Tensor{Buf: kernel.HostBuffer(dev.mem), DType: kernel.U8, Rows: pages, Cols: size,
			Stride: size}, Layout: layout.V4Row584, PageTokens: entries}
		if err := draw(dev, [][]kernel.Pool{{p}}, 1); err != nil {
			t.Fatal(err)
		}
		v := make([]float32, layout.V4Dim)
		for page := range pages {
			for slot := range entries {
				l.Decode(v, dev.mem[page*size:][:size], entries, slot)
				sum := 0.
				for _, x := range v {
					sum += float64(x) * float64(x)
				}
				if mean := sum / float64(len(v)); mean < 0.6 || mean > 1.6 {
					t.Errorf("pages of %d: page %d, entry %d: mean square %v", entries, page, slot, mean)
				}
			}
		}
	}
}

// Window rows, entries and keys of DeepSeek-V4.1 are written whole, with values of about unit size.
func TestDrawnRowsOfV41(t *testing.T) {
	const pages, tokens = 3, 128
	v := make([]float32, layout.V4Dim)
	for kind, l := range map[layout.Kind]struct {
		bytes  int
		decode func(page []byte, slot int) []float32
	}{
		layout.V41Window528: {layout.V41Window{}.PageBytes(tokens), func(page []byte, slot int) []float32 {
			layout.V41Window{}.Decode(v, page, tokens, slot)
			return v
		}},
		layout.V41Row288: {layout.V41Entry{}.PageBytes(tokens), func(page []byte, slot int) []float32 {
			layout.V41Entry{}.Decode(v, page, tokens, slot)
			return v
		}},
		layout.V41Index68: {layout.IndexV41{}.PageBytes(tokens), func(page []byte, slot int) []float32 {
			layout.IndexV41{}.Decode(v[:layout.IndexDim], page, tokens, slot)
			return v[:layout.IndexDim]
		}},
	} {
		dev := drawnHost{make([]byte, pages*l.bytes)}
		p := kernel.Pool{Mem: kernel.Tensor{Buf: kernel.HostBuffer(dev.mem), DType: kernel.U8, Rows: pages,
			Cols: l.bytes, Stride: l.bytes}, Layout: kind, PageTokens: tokens}
		if err := draw(dev, [][]kernel.Pool{{p}}, 1); err != nil {
			t.Fatal(err)
		}
		for page := range pages {
			for slot := range tokens {
				sum, row := 0., l.decode(dev.mem[page*l.bytes:][:l.bytes], slot)
				for _, x := range row {
					sum += float64(x) * float64(x)
				}
				if mean := sum / float64(len(row)); !(mean > 0.2 && mean < 5) {
					t.Fatalf("%v: page %d, row %d: mean square %v", kind, page, slot, mean)
				}
			}
		}
	}
}
