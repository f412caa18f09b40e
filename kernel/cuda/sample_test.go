package cuda

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/sample"
)

// draws is the number of rows that this test samples with the kernel's source; make draws uses a larger number.
var draws = flag.Int("draws", 400, "rows that the kernel's source draws from")

// drawCase is a row of logits, its best column, and the sampling parameters.
type drawCase struct {
	logits []float32
	best   int32
	draw   sample.Draw
}

// drawCases returns n random rows of up to most columns, with ties, gaps and some with every filter. In some rows one
// bucket is full, and some have only equal values.
func drawCases(t testing.TB, rng *rand.Rand, n, most int) []drawCase {
	t.Helper()
	scratch, err := sample.NewScratch(most)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]drawCase, n)
	for i := range list {
		x := make([]float32, 1+rng.IntN(most))
		if i%8 == 0 {
			x = make([]float32, most)
		}
		spread, grid := []float64{4, 1, 1e-4, 0}[rng.IntN(4)], []float64{0, 0, 1e-3, 0.25, 3}[rng.IntN(5)]
		best := 0
		for j := range x {
			v := rng.NormFloat64() * spread
			if grid > 0 {
				v = math.Round(v) * grid
			}
			if x[j] = float32(v); rng.IntN(50) == 0 {
				x[j] = float32(math.Inf(-1))
			}
			if x[j] > x[best] {
				best = j
			}
		}
		p := sample.Default()
		p.Temperature = []float64{0, 0.05, 0.7, 1, 2, 0.3 + rng.Float64()}[rng.IntN(6)]
		p.TopK = []int{0, 0, 1, 2, 40, 700, 1 << 40}[rng.IntN(7)]
		p.TopP = []float64{1, 1, 0.999, 0.9, 0.5, 1e-4, 1 - rng.Float64()}[rng.IntN(7)]
		p.MinP = []float64{0, 0, 0.01, 0.3, 1}[rng.IntN(5)]
		p.Seed = rng.Int64()
		s, err := sample.New(p, 0, scratch)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = drawCase{x, int32(best), s.Draw(rng.IntN(100))}
	}
	return list
}

// hostKernel compiles a kernel's source with the C++ compiler of this machine and returns the path of the program.
func hostKernel(t *testing.T, source string) string {
	t.Helper()
	cc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++, to run the kernel's source on this machine: ", err)
	}
	program := filepath.Join(t.TempDir(), "kernel")
	out, err := exec.Command(cc, "-std=c++17", "-O2", "-ffp-contract=off", "-Itestdata/host", "-Isrc", "-o", program,
		filepath.Join("testdata/host", source)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// The kernel's source, compiled for the host, samples the tokens that package sample samples, and computes equal
// weights for millions of distances.
func TestTheKernelsSourceDrawsLikePackageSample(t *testing.T) {
	program := hostKernel(t, "sample.cc")
	var in bytes.Buffer
	cases := drawCases(t, rand.New(rand.NewPCG(5, 6)), *draws, 3000)
	scratch, err := sample.NewScratch(3000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		c := &cases[i]
		head := make([]int32, 2+sample.DrawWords)
		head[0], head[1] = int32(len(c.logits)), c.best
		c.draw.Put(head[2:])
		for _, v := range []any{head, c.logits} {
			if err := binary.Write(&in, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := exec.Command(program)
	run.Stdin, run.Stderr = &in, os.Stderr
	out, err := run.Output()
	if err != nil || len(out) != 4*len(cases) {
		t.Fatalf("%d bytes of %d cases, %v", len(out), len(cases), err)
	}
	drawn := 0
	for i, c := range cases {
		got, want := int32(binary.LittleEndian.Uint32(out[4*i:])), scratch.Choose(c.logits, c.best, c.draw)
		if got != want {
			t.Errorf("case %d, %d columns, %+v: %d, want %d", i, len(c.logits), c.draw, got, want)
		}
		if want != c.best {
			drawn++
		}
	}
	if drawn < len(cases)/4 {
		t.Errorf("of %d cases %d draw another token than the best", len(cases), drawn)
	}
	const distances = 4_000_000
	out, err = exec.Command(program, "weights", fmt.Sprint(distances)).Output()
	if err != nil {
		t.Fatal(err)
	}
	hash, x := uint64(14695981039346656037), uint64(1)
	for range distances {
		x = x*6364136223846793005 + 1442695040888963407
		b, w := sample.Weigh(float64(float64(x>>11)*0x1p-53) * sample.Reach)
		hash = (hash ^ w ^ uint64(b)<<50) * 1099511628211
	}
	if got := strings.TrimSpace(string(out)); got != fmt.Sprint(hash) {
		t.Errorf("weights of %d distances have the hash %s, want %d", distances, got, hash)
	}
}
