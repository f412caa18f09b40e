package cuda

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"sparrow/kernel"
)

// gpu reports whether this machine has a device that can run the kernels.
func gpu() bool { return Available() == nil }

func TestWithoutADeviceEveryEntryPointSaysWhy(t *testing.T) {
	if gpu() {
		t.Skip("a GPU is present")
	}
	_, openErr := Open(0)
	for name, err := range map[string]error{"Available": Available(), "Open": openErr} {
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, kernel.ErrUnavailable) {
			t.Errorf("%s returned %v, want an error that wraps ErrUnavailable", name, err)
			continue
		}
		var u *Unavailable
		if !errors.As(err, &u) || u.Reason == "" || u.Try == "" {
			t.Errorf("%s returned %v, want a reason and what to try", name, err)
		}
		if Built && !strings.Contains(err.Error(), "libcuda.so.1") && !strings.Contains(err.Error(), "cuInit") &&
			!strings.Contains(err.Error(), "GPU") {
			t.Errorf("%s returned %v, which names neither the library nor the device", name, err)
		}
	}
}

func TestMirrorsOfDriverStructsHaveTheirSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUlaunchConfig", unsafe.Sizeof(launchConfig{}), 56},
		{"CUlaunchConfig.sharedMemBytes", unsafe.Offsetof(launchConfig{}.shared), 24},
		{"CUlaunchConfig.hStream", unsafe.Offsetof(launchConfig{}.stream), 32},
		{"CUlaunchConfig.attrs", unsafe.Offsetof(launchConfig{}.attrs), 40},
		{"CUlaunchConfig.numAttrs", unsafe.Offsetof(launchConfig{}.count), 48},
		{"CUlaunchAttribute", unsafe.Sizeof(launchAttribute{}), 72},
		{"CUlaunchAttribute.value", unsafe.Offsetof(launchAttribute{}.value), 8},
		{"CUtensorMap", unsafe.Sizeof(TensorMap{}), 128},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}

func TestDriverErrorNamesCallArgumentsAndCode(t *testing.T) {
	err := &DriverError{Call: "cuMemAlloc_v2", Args: []uintptr{0x10, 4096}, Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY",
		Text: "out of memory"}
	if got, want := err.Error(),
		"cuda: cuMemAlloc_v2(0x10, 0x1000): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !isOutOfMemory(err) || isOutOfMemory(errors.New("other")) {
		t.Error("isOutOfMemory must distinguish the code from other errors")
	}
}

func TestClosedDeviceRefusesCalls(t *testing.T) {
	d := &Device{}
	if err := d.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync of a closed device returned %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("closing twice returned %v", err)
	}
}

func TestTensorMapMistakesAreNamed(t *testing.T) {
	good := MapSpec{Type: MapU8, Base: 1 << 20, Dims: []uint64{128, 64, 10}, Strides: []uint64{128, 8448},
		Box: []uint32{128, 64, 1}, Swizzle: Swizzle128}
	if err := good.check(); err != nil {
		t.Fatalf("a correct map is refused: %v", err)
	}
	for name, change := range map[string]func(*MapSpec){
		"rank":            func(m *MapSpec) { m.Dims = nil },
		"stride count":    func(m *MapSpec) { m.Strides = []uint64{128} },
		"base alignment":  func(m *MapSpec) { m.Base = 8 },
		"stride multiple": func(m *MapSpec) { m.Strides = []uint64{132, 8448} },
		"box size":        func(m *MapSpec) { m.Box = []uint32{128, 257, 1} },
		"empty dimension": func(m *MapSpec) { m.Dims = []uint64{128, 0, 10} },
		"swizzle span":    func(m *MapSpec) { m.Swizzle = Swizzle64 },
		"inner box bytes": func(m *MapSpec) { m.Box = []uint32{8, 64, 1} },
	} {
		m := good
		change(&m)
		if err := m.check(); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: got %v, want an argument error", name, err)
		}
	}
}

func TestPoolClassesArePowersOfTwo(t *testing.T) {
	for _, c := range []struct{ n, want int64 }{{1, 512}, {512, 512}, {513, 1024}, {1024, 1024}, {1 << 20, 1 << 20},
		{1<<20 + 1, 1 << 21}} {
		if got := poolClass(c.n); got != c.want {
			t.Errorf("poolClass(%d) = %d, want %d", c.n, got, c.want)
		}
	}
}
