package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"sparrow/weight"
)

// newDigest returns the hash function for the kind of hash that a file is listed with, or nil if the kind is unknown.
func newDigest(f File) hash.Hash {
	raw, err := hex.DecodeString(f.Hash)
	switch {
	case err != nil || hex.EncodeToString(raw) != f.Hash: // a hash in upper case would be a different file name
		return nil
	case len(raw) == sha256.Size:
		return sha256.New()
	case len(raw) == sha1.Size:
		// git uses this hash. The weakness of SHA-1 does not matter, because the server is trusted.
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.Size)
		return h
	}
	return nil
}

// keepDigest stores the SHA-256 of downloaded weights, so that a server that stores KV pages does not compute it again.
func keepDigest(path string, f File) error {
	var sum weight.Digest
	if !strings.HasSuffix(f.Path, ".safetensors") && !strings.HasSuffix(f.Path, ".gguf") ||
		len(f.Hash) != hex.EncodedLen(len(sum)) {
		return nil
	}
	if _, err := hex.Decode(sum[:], []byte(f.Hash)); err != nil {
		return err
	}
	return weight.KeepDigest(path, sum)
}
