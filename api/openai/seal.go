package openai

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// sealed is the prefix of the text that [Seal] returns.
const sealed = "sparrow1."

// Seal encodes reasoning as text that clients send back unchanged, in encrypted_content of a reasoning item or in the
// signature of a thinking block. It does not encrypt, because clients also get the reasoning itself.
func Seal(text string) string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text)))
	return sealed + base64.RawURLEncoding.EncodeToString(append(sum, text...))
}

// Unseal decodes a sealed text to its reasoning; ok is false for text that [Seal] did not write.
func Unseal(text string) (reasoning string, ok bool) {
	code, ok := strings.CutPrefix(text, sealed)
	if !ok {
		return "", false
	}
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil || len(data) < crc32.Size || crc32.ChecksumIEEE(data[crc32.Size:]) != binary.BigEndian.Uint32(data) {
		return "", false
	}
	return string(data[crc32.Size:]), true
}
