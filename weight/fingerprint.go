package weight

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Fingerprint reads fingerprintBytes bytes at three offsets of at most fingerprintTensors tensors.
const (
	fingerprintTensors = 1 << 14
	fingerprintBytes   = 1024
)

// Fingerprint returns a SHA-256 over the name, type and shape of every tensor, and over bytes from the beginning,
// middle and end of many tensors. It does not depend on the machine and on how tensors are divided into files. It
// detects training, which changes nearly every tensor, but not a change of bytes that are not read.
func (c *Checkpoint) Fingerprint() [sha256.Size]byte {
	names := c.Names()
	every := max((len(names)+fingerprintTensors-1)/fingerprintTensors, 1)
	h := sha256.New()
	for i, name := range names {
		t, _ := c.Tensor(name)
		fmt.Fprintf(h, "%d:%s %v %v %d\n", len(name), name, t.DType, t.Shape, len(t.Data))
		if i%every != 0 {
			continue
		}
		n := len(t.Data)
		for _, at := range [3]int{0, n / 2, n - fingerprintBytes} {
			at = max(at, 0)
			h.Write(t.Data[at:min(at+fingerprintBytes, n)])
		}
	}
	var count [8]byte
	binary.LittleEndian.PutUint64(count[:], uint64(len(names)))
	h.Write(count[:])
	return [sha256.Size]byte(h.Sum(nil))
}
