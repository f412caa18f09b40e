package testkit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/gpu"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// suite compares one operation of two devices.
type suite struct {
	name string
	seed uint64 // seed of the suite's random values
	run  func(*pair)
}

// suites lists the comparisons of all operations.
var suites = []suite{
	{"embed", 1, testEmbed},
	{"norm", 2, testNorm},
	{"multiply", 3, testMultiply},
	{"take", 4, testTake},
	{"gate", 5, testGate},
	{"rotate", 6, testRotate},
	{"absorb and expand", 7, testLatent},
	{"store and gather rows", 8, testRows},
	{"store and gather index", 9, testIndexRows},
	{"convert pages", 10, testConvert},
	{"index query", 11, testIndexQuery},
	{"scores", 12, testScores},
	{"scores of verified rows", 12, testVerifyScores},
	{"select", 13, testSelect},
	{"locate", 14, testLocate},
	{"sparse attend", 15, testSparse},
	{"dense attend", 16, testDense},
	{"route", 17, testRoute},
	{"experts", 18, testExperts},
	{"refusals", 19, testRefusals},
	{"hyper-connections", 20, testHyper},
	{"mixing matrix by hand", 21, testSinkhorn},
	{"head norm", 22, testHeadNorm},
	{"rotate back", 23, testTurnBack},
	{"compress", 24, testCompress},
	{"compress by hand", 25, testCompressVector},
	{"store and unpack entries", 26, testEntries},
	{"store keys", 27, testKeys},
	{"dual and flat attend", 28, testDual},
	{"sink by hand", 29, testSink},
	{"combine by hand", 30, testCombine},
	{"route by root", 31, testRouteRoot},
	{"root scores by hand", 32, testRootScores},
	{"clamped gate", 33, testClamp},
	{"packed weights", 34, testPacked},
	{"refusals of places", 35, testEntryRefusals},
	{"project", 36, testProject},
	{"copy", 37, testCopy},
	{"candidates", 38, testCandidates},
	{"sample", 40, testSample},
	{"accept", 41, testAccept},
	{"padded index query", 39, testPaddedIndexQuery},
	{"latent attend", 42, testWhole},
	{"store and gather rows without rotation", 43, testNopeRows},
	{"sparse attend over rows without rotation", 44, testNopeSparse},
	{"convolve", 45, testConvolve},
	{"delta rule", 46, testDelta},
	{"gated norm", 47, testGatedNorm},
	{"spread pools", 48, testSpread},
	{"n-gram values by hand", 49, testEngram},
	{"table rows by hand", 50, testTable},
	{"largest scores of blocks by hand", 51, testBlockMax},
	{"sums of streams by hand", 52, testHyperSum},
}

// Every registered CPU variant with several workers passes the suites. The reference, which has no workers, passes them
// too. The best variant runs with so many workers that one is idle in GEMMs of few rows, and in make long with one.
func TestOperations(t *testing.T) {
	for i, b := range append(cpu.Backends(), ref.Backends()...) {
		if b.Available() != nil {
			continue
		}
		counts := []int{3}
		if i == 0 {
			counts = []int{9} // the other variants have three workers
			if *testflag.Long {
				counts = []int{1, 9}
			}
		}
		for _, workers := range counts {
			t.Run(fmt.Sprintf("%s/%d", b.Name, workers), func(t *testing.T) {
				d, err := b.Open(kernel.Options{Workers: workers})
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				for _, s := range suites {
					t.Run(s.name, func(t *testing.T) {
						if b.Name == "ref" && !*testflag.Long && !strings.Contains(s.name, "by hand") &&
							!strings.Contains(s.name, "refusals") {
							t.Skip("make long runs it: the reference compared with itself")
						}
						s.run(newPair(t, d, s.seed))
					})
				}
			})
		}
	}
}

// A GPU passes the suites whose sizes and element types have CUDA kernels.
func TestGPUSharedSuites(t *testing.T) {
	d := gpu.Open(t)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"embed", "take", "gate", "clamped gate", "rotate", "rotate back", "route", "copy",
		"candidates", "sample", "accept", "norm", "convert pages", "select", "locate", "combine by hand",
		"padded index query", "hyper-connections", "mixing matrix by hand", "head norm", "compress", "compress by hand",
		"route by root", "root scores by hand", "convolve", "delta rule", "gated norm"} {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			t.Errorf("no suite has the name %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) { suites[i].run(newPair(t, d, suites[i].seed)) })
	}
}
