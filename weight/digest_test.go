package weight

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// twoShards writes a checkpoint of two files whose tensors have bytes that Fingerprint does not read.
func twoShards(t *testing.T, edit bool) string {
	t.Helper()
	dir := t.TempDir()
	data := make([]byte, 20_000)
	if edit {
		data[3000] = 1
	}
	list := []Source{SourceBytes("a", U8, []int{20_000}, data),
		SourceBytes("b", U8, []int{20_000}, make([]byte, 20_000))}
	if err := CreateSharded(dir, list, nil, 25_000); err != nil {
		t.Fatal(err)
	}
	return dir
}

func opened(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func digestOf(t *testing.T, c *Checkpoint) Digest {
	t.Helper()
	d, kept, err := c.ReadDigest(context.Background())
	if err := errors.Join(kept, err); err != nil {
		t.Fatal(err)
	}
	return d
}

// The digest of a checkpoint covers every byte, is computed once, and does not depend on the path of the files.
func TestDigestOfAllWeights(t *testing.T) {
	dir := twoShards(t, false)
	c := opened(t, dir)
	if _, known := c.KnownDigest(); known {
		t.Fatal("a digest is known that nobody computed")
	}
	d := digestOf(t, c)
	if again, known := opened(t, dir).KnownDigest(); !known || again != d {
		t.Errorf("kept %x, known %v; computed %x", again, known, d)
	}
	same := opened(t, twoShards(t, false))
	if digestOf(t, same) != d {
		t.Error("the same weights in another folder have another digest")
	}
	if same.LocalFingerprint() == c.LocalFingerprint() {
		t.Error("files of other times have the same local fingerprint")
	}
	edited := opened(t, twoShards(t, true))
	if edited.Fingerprint() != c.Fingerprint() {
		t.Fatal("the edited byte is one that is sampled")
	}
	if digestOf(t, edited) == d {
		t.Error("an edited byte leaves the digest")
	}
}

// If a file is edited, even without a change of its size, its stored digest is not used, and a checkpoint that has the
// file open gets no digest.
func TestAnEditedFileHasNoKnownDigest(t *testing.T) {
	dir := twoShards(t, false)
	c := opened(t, dir)
	before := digestOf(t, c)
	path := filepath.Join(dir, "model-00001-of-00002.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-15_000] ^= 1
	if err := errors.Join(os.WriteFile(path, data, 0o644), os.Chtimes(path, time.Time{}, time.Unix(5, 0))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadDigest(context.Background()); !errors.Is(err, ErrNoDigest) {
		t.Errorf("of a file that has changed since: error %v", err)
	}
	after := opened(t, dir)
	if _, known := after.KnownDigest(); known {
		t.Error("the digest of the file before the edit counts")
	}
	if d := digestOf(t, after); d == before {
		t.Error("the edit leaves the digest")
	}
	if _, known := after.KnownDigest(); !known {
		t.Error("the digest after the edit is not kept")
	}
}

// Weights in memory are hashed, random weights have no digest, and a damaged file of stored digests is ignored.
func TestDigestsWithoutFiles(t *testing.T) {
	dir := twoShards(t, false)
	one := filepath.Join(dir, "model-00001-of-00002.safetensors")
	data, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	c, err := FromBytes("memory", data)
	if err != nil {
		t.Fatal(err)
	}
	if _, known := c.KnownDigest(); !known {
		t.Error("weights in memory have no digest")
	}
	drawn, err := FromShapes("drawn", []Tensor{{Name: "a", DType: U8, Shape: []int{4}, Drawn: &Distribution{}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := drawn.ReadDigest(context.Background()); !errors.Is(err, ErrNoDigest) {
		t.Errorf("of drawn weights: error %v", err)
	}
	f, err := OpenFile(one)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	digestOf(t, f)
	if err := os.WriteFile(one+digestSuffix, []byte("sha256 zz size 1 modified 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, known := f.KnownDigest(); known {
		t.Error("a damaged text counts as a digest")
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, _, err := f.ReadDigest(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("reading that was ended: error %v", err)
	}
}
