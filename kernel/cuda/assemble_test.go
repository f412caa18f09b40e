package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sparrow/internal/cuda/image"
)

// assembled lists the architectures for which portable images are assembled.
var assembled = []string{"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}

// Every portable image can be assembled for its GPUs. The test needs NVIDIA's assembler, named by SPARROW_PTXAS ('make
// assemble'), and takes minutes. Kernels that spill registers are logged.
func TestPTXAssembles(t *testing.T) {
	ptxas := os.Getenv("SPARROW_PTXAS")
	if ptxas == "" {
		t.Skip("SPARROW_PTXAS is not set; set it to the path of ptxas")
	}
	dir := t.TempDir()
	for _, im := range loadManifest(t).Images {
		if !im.PTX {
			continue
		}
		text, err := im.Text()
		check(t, err)
		file := filepath.Join(dir, im.Name+".ptx")
		check(t, os.WriteFile(file, text, 0o644))
		for _, arch := range assembled {
			n, err := strconv.Atoi(strings.TrimPrefix(arch, "sm_"))
			check(t, err)
			if n < image.FirstCapability(im.Source) {
				continue
			}
			to := filepath.Join(dir, "image")
			out, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", to, file).CombinedOutput()
			if err != nil {
				t.Errorf("%s for %s: %v\n%s", im.Name, arch, err, out)
				continue
			}
			kernel := ""
			for line := range strings.Lines(string(out)) {
				if _, after, ok := strings.Cut(line, "Compiling entry function '"); ok {
					kernel, _, _ = strings.Cut(after, "'")
				}
				if strings.Contains(line, "spill") && !strings.Contains(line, " 0 bytes spill stores") {
					t.Logf("%s for %s: %s", kernel, arch, strings.TrimSpace(line))
				}
			}
		}
	}
}
