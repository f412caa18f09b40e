//go:build linux && amd64 && !nocuda

package compile

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// compiler is a loaded NVRTC.
type compiler struct {
	version func(major, minor *int32) int32
	message func(code int32) string
	create  func(program *uintptr, source, name string, headers int32, sources, names uintptr) int32
	destroy func(program *uintptr) int32
	compile func(program uintptr, count int32, options **byte) int32
	logSize func(program uintptr, size *uint64) int32
	log     func(program uintptr, text *byte) int32
	binSize func(program uintptr, size *uint64) int32
	bin     func(program uintptr, data *byte) int32
	ptxSize func(program uintptr, size *uint64) int32
	ptx     func(program uintptr, data *byte) int32
}

// loadable reports whether the dynamic linker finds a library without a path.
func loadable(name string) bool {
	h, err := purego.Dlopen(name, purego.RTLD_LAZY|purego.RTLD_GLOBAL)
	return err == nil && h != 0
}

// openCompiler loads NVRTC and its companion from a path.
func openCompiler(path string) (*compiler, error) {
	for _, b := range builtinsFor(path) {
		if _, err := purego.Dlopen(b, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			return nil, fmt.Errorf("compile: load %s: %w", b, err)
		}
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("compile: load %s: %w", path, err)
	}
	c := &compiler{}
	for name, fn := range map[string]any{
		"nvrtcVersion": &c.version, "nvrtcGetErrorString": &c.message, "nvrtcCreateProgram": &c.create,
		"nvrtcDestroyProgram": &c.destroy, "nvrtcCompileProgram": &c.compile, "nvrtcGetProgramLogSize": &c.logSize,
		"nvrtcGetProgramLog": &c.log, "nvrtcGetCUBINSize": &c.binSize, "nvrtcGetCUBIN": &c.bin,
		"nvrtcGetPTXSize": &c.ptxSize, "nvrtcGetPTX": &c.ptx,
	} {
		if _, err := purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("compile: %s has no %s: %w", path, name, err)
		}
		purego.RegisterLibFunc(fn, h, name)
	}
	return c, nil
}

func (c *compiler) Version() (string, error) {
	var major, minor int32
	if err := c.check("nvrtcVersion", c.version(&major, &minor)); err != nil {
		return "", err
	}
	return fmt.Sprintf("NVRTC %d.%d", major, minor), nil
}

// Compile compiles one translation unit to a cubin (architecture sm_*) or PTX (architecture compute_*) and returns it
// with the compiler's log.
func (c *compiler) Compile(name, source string, options []string) (code []byte, log string, err error) {
	var p uintptr
	if err := c.check("nvrtcCreateProgram "+name, c.create(&p, source, name, 0, 0, 0)); err != nil {
		return nil, "", err
	}
	defer c.destroy(&p)
	var pin runtime.Pinner
	defer pin.Unpin()
	list := make([]*byte, len(options)+1)
	for i, o := range options {
		b := append([]byte(o), 0)
		pin.Pin(&b[0])
		list[i] = &b[0]
	}
	pin.Pin(&list[0])
	status := c.compile(p, int32(len(options)), &list[0])
	text, err := c.fetch("log of "+name, p, c.logSize, c.log)
	if err != nil {
		return nil, "", err
	}
	log = strings.TrimRight(string(text), "\x00\n ")
	if status != 0 {
		return nil, log, fmt.Errorf("compile: compile %s: %s\n%s", name, c.message(status), log)
	}
	size, get := c.binSize, c.bin
	for _, o := range options {
		if strings.HasPrefix(o, archOption+"compute_") {
			size, get = c.ptxSize, c.ptx
		}
	}
	code, err = c.fetch("code of "+name, p, size, get)
	return code, log, err
}

// fetch reads one of the program's results: its size, then its bytes.
func (c *compiler) fetch(what string, p uintptr, size func(uintptr, *uint64) int32,
	get func(uintptr, *byte) int32) ([]byte, error) {
	var n uint64
	if err := c.check(what, size(p, &n)); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, n)
	if err := c.check(what, get(p, unsafe.SliceData(b))); err != nil {
		return nil, err
	}
	return b, nil
}

func (c *compiler) check(call string, status int32) error {
	if status == 0 {
		return nil
	}
	return fmt.Errorf("compile: %s: %s", call, c.message(status))
}
