//go:build !purego

package vec

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/cpu"
)

// AMX multiplies tiles: registers of 16 rows of 64 bytes. Linux lets a process
// use them only after it has requested the permission, so CPU support alone is
// not enough. Tiles belong to a thread and goroutines move between threads: every
// assembly function that uses them sets their shapes and releases them.

// amxReady returns the reason why AMX kernels cannot run, or nil. The first call
// requests the permission for the whole process.
var amxReady = sync.OnceValue(func() error {
	x := &cpu.X86
	switch {
	case !allowAMX:
		return errors.New("this build was made with the tag noamx or noavx512")
	case !hasAVX512():
		return errors.New("the processor has no AVX-512 (F, BW, DQ, VL), which other kernels of this tier need")
	case !x.HasAMXTile || !x.HasAMXBF16 || !x.HasAMXInt8:
		return errors.New("the processor has no AMX tiles with bfloat16 and int8 products")
	case !x.HasAVX512BF16 || !x.HasAVX512VBMI || !x.HasAVX512GFNI || !x.HasAVX512VNNI:
		return errors.New("the processor has no AVX-512 BF16, VBMI, GFNI and VNNI, which other kernels of this tier " +
			"need")
	case enabledState()&tileState != tileState:
		return errors.New("the operating system does not save tiles")
	}
	if err := requestTiles(); err != nil {
		return fmt.Errorf("the operating system refused the use of tiles: %w", err)
	}
	return nil
})

// tileState selects the shapes and the data of tiles in the mask of state components that the operating system saves.
const tileState = 1<<17 | 1<<18

// enabledState returns the mask of state components that the operating system saves (XCR0). It uses XGETBV, which
// exists on every processor with AVX.
func enabledState() uint64

// tileShapes is the operand of LDTILECFG: palette 1 and, for each of the eight tiles, the number of bytes of a row and
// the number of rows.
type tileShapes struct {
	palette  byte
	_        [15]byte
	rowBytes [16]uint16
	rows     [16]byte
}

// set gives tile t a shape.
func (s *tileShapes) set(t, rows, rowBytes int) {
	s.palette = 1
	s.rows[t], s.rowBytes[t] = byte(rows), uint16(rowBytes)
}
