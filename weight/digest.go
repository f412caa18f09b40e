package weight

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Digest is a SHA-256 that identifies weights: it depends on every byte of them.
type Digest [sha256.Size]byte

// ErrNoDigest means that a checkpoint has no digest, because its tensors are random or a file has changed since Open.
var ErrNoDigest = errors.New("the weights have no digest")

// digestSuffix is the suffix of the text file, next to a file of weights, that stores the digest of that file:
//
//	sha256 <64 digits> size <bytes> modified <nanoseconds since 1970>
//
// It is valid as long as the file has this size and modification time.
const (
	digestSuffix = ".digest"
	digestForm   = "sha256 %64s size %d modified %d\n"
)

// stamp is the size and modification time of a file, by which changes are detected.
type stamp struct{ size, modified int64 }

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.Size(), info.ModTime().UnixNano()}, nil
}

// KeepDigest stores the SHA-256 of a file that was just written, next to the file or, if path is a link, next to its
// target.
func KeepDigest(path string, sum Digest) error {
	at, err := stampOf(path)
	if err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	return keepDigest(path, sum, at)
}

func keepDigest(path string, sum Digest, at stamp) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	return replaceFile(path+digestSuffix, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, digestForm, hex.EncodeToString(sum[:]), at.size, at.modified)
		return err
	})
}

// keptDigest returns the digest stored next to a file; ok is false if there is none for this version of the file.
func keptDigest(path string, at stamp) (sum Digest, ok bool) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return sum, false
	}
	if info, err := os.Stat(path + digestSuffix); err != nil || !info.Mode().IsRegular() || info.Size() > 256 {
		return sum, false
	}
	text, err := os.ReadFile(path + digestSuffix)
	if err != nil {
		return sum, false
	}
	var digits string
	var of stamp
	if _, err := fmt.Sscanf(string(text), digestForm, &digits, &of.size, &of.modified); err != nil || of != at {
		return sum, false
	}
	n, err := hex.Decode(sum[:], []byte(digits))
	return sum, err == nil && n == len(sum)
}

// KnownDigest returns the digest of all weights from digests that are stored next to the files, without reading the
// weights. Embedded weights are hashed. ok is false if a digest is missing.
func (c *Checkpoint) KnownDigest() (Digest, bool) {
	d, err := c.digest(func(path string, at stamp) (Digest, error) {
		if sum, ok := keptDigest(path, at); ok {
			return sum, nil
		}
		return Digest{}, ErrNoDigest
	})
	return d, err == nil
}

// ReadDigest returns the digest of all weights. It reads files without a stored digest, and stores their digests; kept
// is the error of storing, for example in a read-only folder.
func (c *Checkpoint) ReadDigest(ctx context.Context) (d Digest, kept, err error) {
	d, err = c.digest(func(path string, at stamp) (Digest, error) {
		if sum, ok := keptDigest(path, at); ok {
			return sum, nil
		}
		sum, err := hashFile(ctx, path)
		if err != nil {
			return sum, err
		}
		if now, err := stampOf(path); err != nil || now != at {
			return sum, fmt.Errorf("%w: %s has changed since it was opened", ErrNoDigest, path)
		}
		kept = errors.Join(kept, keepDigest(path, sum, at))
		return sum, nil
	})
	return d, kept, err
}

// digest returns the SHA-256 over the digest of each file and the names of its tensors, sorted by digest, so that it
// does not depend on file names. of returns the digest of a file.
func (c *Checkpoint) digest(of func(path string, at stamp) (Digest, error)) (d Digest, err error) {
	if c.drawn {
		return d, fmt.Errorf("%w: its tensors are random values without a file", ErrNoDigest)
	}
	if len(c.stamps) == 0 {
		return c.hashTensors(), nil
	}
	from := map[string][]string{} // [file] names of its tensors
	for _, name := range c.names() {
		t := c.tensors[name]
		from[t.File] = append(from[t.File], name)
	}
	var parts [][]byte
	for path, at := range c.stamps {
		if now, err := stampOf(path); err != nil || now != at {
			return d, fmt.Errorf("%w: %s has changed since it was opened", ErrNoDigest, path)
		}
		sum, err := of(path, at)
		if err != nil {
			return d, err
		}
		part := sum[:]
		for _, name := range from[path] {
			part = append(binary.AppendUvarint(part, uint64(len(name))), name...)
		}
		parts = append(parts, part)
	}
	slices.SortFunc(parts, slices.Compare)
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return Digest(h.Sum(nil)), nil
}

// hashTensors returns the digest of weights without files.
func (c *Checkpoint) hashTensors() Digest {
	h := sha256.New()
	for _, name := range c.names() {
		t := c.tensors[name]
		fmt.Fprintf(h, "%d:%s %v %v %d\n", len(name), name, t.DType, t.Shape, len(t.Data))
		h.Write(t.Data)
	}
	return Digest(h.Sum(nil))
}

// hashFile returns the SHA-256 of a file.
func hashFile(ctx context.Context, path string) (d Digest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, fmt.Errorf("weight: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h, buf := sha256.New(), make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return Digest(h.Sum(nil)), nil
		}
		if err != nil {
			return d, fmt.Errorf("weight: %w", err)
		}
	}
	return d, ctx.Err()
}

// LocalFingerprint returns a hash of Fingerprint and of the size and modification time of every file. It changes if a
// file is edited or copied.
func (c *Checkpoint) LocalFingerprint() Digest {
	h := sha256.New()
	sampled := c.Fingerprint()
	h.Write(sampled[:])
	for i := range c.files {
		at := c.stamps[c.files[i].Path]
		fmt.Fprintf(h, "%d %d\n", at.size, at.modified)
	}
	return Digest(h.Sum(nil))
}
