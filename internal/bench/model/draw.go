package model

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
)

// draw fills the cache with random rows and keys of mean 0 and variance 1, generated on the device. All keys differ.
func draw(dev kernel.Drawer, layers [][]kernel.Pool, seed uint64) error {
	for i, pools := range layers {
		for j, p := range pools {
			if err := drawPool(dev, p, seed<<16+uint64(i)<<8+uint64(j)<<4); err != nil {
				return fmt.Errorf("bench: filling layer %d: %w", i, err)
			}
		}
	}
	return nil
}

// drawStates fills the float32 states of linear attention with random values, because the state after a context is not
// zero.
func drawStates(dev kernel.Drawer, parts []kernel.Tensor, seed uint64) error {
	for i, t := range parts {
		t.DType, t.Cols, t.Stride = kernel.F32, t.Cols/4, t.Cols/4
		if err := dev.Draw(t, kernel.Drawn{Seed: (seed<<16 + uint64(i)) << 32, Spread: 0.1}); err != nil {
			return fmt.Errorf("bench: filling snapshots: %w", err)
		}
	}
	return nil
}

// codeScale is the scale of random e4m3 codes, such that the values have variance 1; the largest code is 442.
const codeScale = 1. / 128

// drawPool fills one pool with random rows.
func drawPool(dev kernel.Drawer, p kernel.Pool, seed uint64) error {
	tokens := p.Pages() * p.PageTokens
	part := func(d kernel.DType, at, rows, cols, every int, mean, spread float32) error {
		seed++
		t := kernel.Tensor{Buf: p.Mem.Buf, Off: p.Mem.Off + int64(at), DType: d, Rows: rows, Cols: cols,
			Stride: every / d.Size()}
		return dev.Draw(t, kernel.Drawn{Seed: seed << 32, Mean: mean, Spread: spread})
	}
	codes := func(at, rows, cols, every int) error {
		return part(kernel.E4M3, at, rows, cols, every, 0, 1/codeScale)
	}
	switch p.Layout {
	case layout.BF16Row1152, layout.BF16Row1024:
		width := layout.Width(p.Layout)
		return part(kernel.BF16, 0, tokens, width, 2*width, 0, 1)
	case layout.FP8Row528:
		if err := codes(0, tokens, layout.LatentDim, layout.NopeRowBytes); err != nil {
			return err
		}
		return part(kernel.F32, layout.NopeScaleOffset, tokens, layout.Tiles, layout.NopeRowBytes, codeScale, 0)
	case layout.FP8Row656:
		if err := codes(0, tokens, layout.LatentDim, layout.BlockRowBytes); err != nil {
			return err
		}
		if err := part(kernel.F32, layout.BlockScaleOffset, tokens, layout.Tiles, layout.BlockRowBytes, codeScale,
			0); err != nil {
			return err
		}
		return part(kernel.BF16, layout.BlockRopeOffset, tokens, layout.RopeDim, layout.BlockRowBytes, 0, 1)
	case layout.FP8Row576: // rows without scales
		return part(kernel.E4M3, 0, tokens, layout.RawRowBytes, layout.RawRowBytes, 0, 1)
	case layout.V4Row584:
		// Pages consist of 576-byte rows. All rows are filled as data, then the scales overwrite the last rows of each
		// page.
		rows, size := p.Pages()*p.Mem.Cols/layout.V4DataBytes, layout.V4DataBytes
		if err := codes(0, rows, layout.V4NopeDim, size); err != nil {
			return err
		}
		if err := part(kernel.BF16, layout.V4RopeOffset, rows, layout.RopeDim, size, 0, 1); err != nil {
			return err
		}
		// The scale codeScale has the exponent byte 120, which as an e4m3 code means 256.
		return part(kernel.E4M3, p.PageTokens*size, p.Pages(), p.PageTokens*layout.V4ScaleBytes, p.Mem.Cols, 256, 0)
	case layout.V41Window528: // scales as in V4 rows
		if err := codes(0, tokens, layout.V4Dim, layout.V41WindowBytes); err != nil {
			return err
		}
		groups := layout.V4Dim / layout.V41WindowGroup
		return part(kernel.E4M3, layout.V4Dim, tokens, groups, layout.V41WindowBytes, 256, 0)
	case layout.V41Row288: // any byte is two valid codes
		packed := layout.V4Dim / 2
		if err := codes(0, tokens, packed, layout.V41EntryBytes); err != nil {
			return err
		}
		return part(kernel.E4M3, packed, tokens, layout.V4Dim/layout.V41EntryGroup, layout.V41EntryBytes, 0.375, 0)
	case layout.V41Index68: // scales of 1/2, whose exponent byte as an e4m3 code means 448
		keys := p.PageTokens * layout.IndexDim / 2
		if err := codes(0, p.Pages(), keys, p.Mem.Cols); err != nil {
			return err
		}
		return part(kernel.E4M3, keys, p.Pages(), p.PageTokens*4, p.Mem.Cols, 448, 0)
	case layout.IndexPage132:
		keys := p.PageTokens * layout.IndexDim
		if err := codes(0, p.Pages(), keys, p.Mem.Cols); err != nil {
			return err
		}
		return part(kernel.F32, keys, p.Pages(), p.PageTokens, p.Mem.Cols, codeScale, 0)
	}
	return fmt.Errorf("random rows of layout %v are not supported", p.Layout)
}
