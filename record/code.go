package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AppendPositions appends the positions numbers[i]*group, which must be ascending, as unsigned LEB128: the first one,
// then the difference between each and the one before it. A negative number ends the list.
func AppendPositions(to []byte, numbers []int32, group int) []byte {
	last := int32(0)
	for _, n := range numbers {
		if n < 0 {
			break
		}
		d := uint64(n-last) * uint64(group)
		if d < 0x80 { // nearly all differences fit in one byte
			to = append(to, byte(d))
		} else {
			to = binary.AppendUvarint(to, d)
		}
		last = n
	}
	return to
}

// CountPositions returns the number of positions in a list.
func CountPositions(list []byte) int {
	n := 0
	for _, b := range list {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// Positions decodes a list from AppendPositions into to, divided by group, and fills the rest with -1. It returns an
// error if the list is truncated or too long, or if its positions are not ascending, not multiples of group, or not
// below end.
func Positions(to []int32, list []byte, group, end int) error {
	at, n := 0, 0
	for len(list) > 0 {
		d, size := binary.Uvarint(list)
		switch {
		case size <= 0:
			return fmt.Errorf("byte %d of its differences is not the beginning of a LEB128 number", n)
		case d > math.MaxInt32 || at+int(d) >= end:
			return fmt.Errorf("position %d is selected, but only positions below %d exist", uint64(at)+d, end)
		case n > 0 && d == 0:
			return fmt.Errorf("position %d is selected twice", at)
		case int(d)%group != 0:
			return fmt.Errorf("position %d is selected, which is not the start of a group of %d tokens", at+int(d),
				group)
		case n == len(to):
			return fmt.Errorf("more than %d positions are selected, which is the limit of the layer", len(to))
		}
		at += int(d)
		to[n] = int32(at / group)
		n++
		list = list[size:]
	}
	for i := n; i < len(to); i++ {
		to[i] = -1
	}
	return nil
}

// AppendFloats appends numbers as float32 in little-endian byte order.
func AppendFloats(to []byte, v []float32) []byte {
	for _, x := range v {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
	}
	return to
}

// AppendIDs appends numbers as uint16 in little-endian byte order.
func AppendIDs(to []byte, v []int32) []byte {
	for _, x := range v {
		to = binary.LittleEndian.AppendUint16(to, uint16(x))
	}
	return to
}
