package vec

import (
	"encoding/binary"
	"math"
)

// indexScoresGo computes scores in plain Go. It widens the query once and each key once.
func indexScoresGo(scores []float32, q []byte, w []float32, keys, scales []byte) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	wide := sized(buf, len(q))
	widenE4M3Go(wide, q, 1)
	var key [IndexDim]float32
	for s := range scores {
		widenE4M3Go(key[:], keys[s*IndexDim:][:IndexDim], 1)
		var sum float32
		for h, weight := range w {
			sum += weight * max(0, dotGo(wide[h*IndexDim:][:IndexDim], key[:]))
		}
		scores[s] = sum * keyScale(scales, s)
	}
}

// keyScale reads the scale of key s from little-endian bytes.
func keyScale(scales []byte, s int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(scales[4*s:]))
}
