package kernel

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
)

// Drawn represents random values that are generated instead of read from a file: weights for benchmarks, and cached
// rows. The values are close to a normal distribution. Value i depends only on the seed and on i, and is bitwise equal
// on every device.
type Drawn struct {
	Seed         uint64
	Mean, Spread float32 // mean and standard deviation
	Bytes        int64   // size in bytes of the tensor that is filled
}

// Len returns the size in bytes. Drawn is a Buffer, so that tensors of weights for a [Preparer] can have it as their
// memory.
func (d Drawn) Len() int64 { return d.Bytes }

// Drawer is a device that can fill its memory with random values. Its Prepare and PrepareExperts accept weights whose
// buffers are Drawn or [Repeated]. Such weights start at offset 0 and have no gaps between rows.
type Drawer interface {
	// Draw fills a tensor of f32, bf16 or e4m3 with an even number of columns. Value i of Drawn becomes element i of
	// the tensor, counted row by row.
	Draw(Tensor, Drawn) error
}

// Mean and standard deviation of the sum of four random bytes, each of variance (256*256-1)/12.
const bellMean = 4 * 255 / 2

var bellSpread = math.Sqrt(4 * (256*256 - 1) / 12.0)

// Step returns the difference between adjacent possible values.
func (d Drawn) Step() float32 { return float32(float64(d.Spread) / bellSpread) }

// Value returns the value with number i.
func (d Drawn) Value(i int64) float32 {
	z := d.Seed + uint64(i/2+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	z = z&0x00FF00FF00FF00FF + z>>8&0x00FF00FF00FF00FF // four sums of two bytes, in 16-bit lanes
	z += z >> 16                                       // sums of four bytes, in lanes 0 and 2
	sum := int32(z >> (32 * (i & 1)) & 0xFFFF)
	// The conversion to float32 prevents a fused multiply-add, which rounds differently and is not used on all
	// machines.
	return d.Mean + float32(float32(sum-bellMean)*d.Step())
}

// Fill writes the values of a tensor of type t, starting with value number first, in the byte order of the host.
func (d Drawn) Fill(dst []byte, t DType, first int64) error {
	size := t.Size()
	for i := range len(dst) / size {
		v, at := d.Value(first+int64(i)), dst[i*size:]
		switch t {
		case F32:
			binary.NativeEndian.PutUint32(at, math.Float32bits(v))
		case BF16:
			binary.NativeEndian.PutUint16(at, num.BF16(v))
		case E4M3:
			at[0] = num.E4M3(v)
		default:
			return fmt.Errorf("%w: draw: random values of type %v are not supported, want f32, bf16 or e4m3",
				ErrArgument, t)
		}
	}
	return nil
}

// OnHost returns a copy of a tensor of Drawn values with the values in host memory.
func (d Drawn) OnHost(t Tensor) (Tensor, error) {
	t.Buf = d
	err := t.onHost(func(bytes int64) (HostBuffer, error) { return make(HostBuffer, bytes), nil })
	return t, err
}
