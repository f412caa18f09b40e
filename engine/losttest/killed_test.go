package losttest

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/device/offload"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/placed"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
)

// killedLoad is the environment variable that makes the test process load a model until it is killed; its value names
// the device.
const killedLoad = "SPARROW_KILLED_LOAD"

// checkpoint is the folder of a checkpoint with FP8 experts.
const checkpoint = "../../testdata/oracle/deepseek_v32-fp8-1"

// TestMain loads a model until the process is killed if the environment variable killedLoad is set. Otherwise it runs
// the tests.
func TestMain(m *testing.M) {
	if name := os.Getenv(killedLoad); name != "" {
		fmt.Fprintln(os.Stderr, loadHalf(name))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// openNear opens the device on which a process loads a model.
func openNear(name string) (kernel.Device, error) {
	if name == op.Name {
		return op.Open(0)
	}
	return cpu.Open(vec.Best(), kernel.Options{Workers: 1}), nil
}

// loadHalf begins to load a model with experts in two memories, with each loading method, and stops in
// the middle of the load.
func loadHalf(name string) error {
	near, err := openNear(name)
	if err != nil {
		return err
	}
	return load(near, func(n int) {
		if n == 150 { // layers with experts are being loaded
			fmt.Println("half")
			select {}
		}
	})
}

// load loads the model and closes everything that it opened.
func load(near kernel.Device, onTensor func(n int)) error {
	defer near.Close()
	src, err := family.Open(checkpoint)
	if err != nil {
		return err
	}
	defer src.Close()
	h, err := offload.New(cpu.Open(vec.Best(), kernel.Options{Workers: 1, Pack: true}), offload.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	n := 0
	_, err = src.LoadPlaced(near, family.Placed{Placement: placed.Mixed(src.ExpertLayers()), Host: h},
		func(string) { n++; onTensor(n) })
	return err
}

// files returns the paths of all files below a folder.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			info, failed := d.Info()
			if failed != nil {
				return failed
			}
			list = append(list, fmt.Sprint(path, " ", info.Size(), " ", info.ModTime()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// kill starts a process that loads a model, kills it during the load, and checks that no file is left in the model's
// folder or in the folder for temporary files. The next process loads the model.
func kill(t *testing.T, name string) {
	t.Helper()
	temp, before := t.TempDir(), files(t, checkpoint)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), killedLoad+"="+name, "TMPDIR="+temp, "HOME="+temp, "XDG_CACHE_HOME="+temp)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = c.Wait() // reports that the process was killed
	if err != nil || line != "half\n" {
		t.Fatalf("the process printed %q, error %v", line, err)
	}
	if left := files(t, temp); name != op.Name && len(left) > 0 { // a GPU driver keeps its own cache there
		t.Errorf("the killed process left the files %v", left)
	}
	if after := files(t, checkpoint); !slices.Equal(after, before) {
		t.Errorf("the files of the checkpoint were %v and are %v", before, after)
	}
	near, err := openNear(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := load(near, func(int) {}); err != nil {
		t.Error(err)
	}
}

func TestKilledInMidLoad(t *testing.T) { kill(t, "cpu") }

// GPU memory and page-locked host memory are also released when the process is killed.
func TestGPUKilledInMidLoad(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	kill(t, op.Name)
}
