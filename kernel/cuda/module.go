package cuda

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Module is a kernel image loaded into a device's context.
type Module struct {
	device *Device
	handle uintptr
	name   string
}

// loadModule loads a cubin or PTX image; name appears in errors. PTX is compiled by the driver, which takes time.
func (d *Device) loadModule(name string, image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, argumentError("module %s: the image is empty", name)
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	// PTX is text and must end with a NUL byte. A cubin contains its length, so the additional byte is ignored.
	data := make([]byte, len(image)+1)
	copy(data, image)
	var pin runtime.Pinner
	pin.Pin(&data[0])
	defer pin.Unpin()
	err := d.do(f, cuModuleLoadDataEx, f.slot(0), uintptr(unsafe.Pointer(&data[0])), 0, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("cuda: load module %s (%d bytes): %w", name, len(image), err)
	}
	return &Module{device: d, handle: uintptr(f.out[0]), name: name}, nil
}

// Function finds a kernel of the module by its entry name and reads its attributes.
func (m *Module) Function(name string) (*Function, error) {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if len(name)+1 > len(f.block) {
		return nil, argumentError("the kernel's name has %d bytes", len(name))
	}
	n := copy(f.block[:], name)
	f.block[n] = 0
	if err := m.device.do(f, cuModuleGetFunction, f.slot(0), m.handle,
		uintptr(unsafe.Pointer(&f.block[0]))); err != nil {
		return nil, fmt.Errorf("cuda: kernel %s in module %s: %w", name, m.name, err)
	}
	fn := &Function{device: m.device, handle: uintptr(f.out[0]), name: name}
	for _, a := range []struct {
		id  int
		dst *int
	}{
		{funcMaxThreads, &fn.attrs.MaxThreads}, {funcSharedBytes, &fn.attrs.SharedBytes},
		{funcLocalBytes, &fn.attrs.LocalBytes}, {funcRegisters, &fn.attrs.Registers},
	} {
		v, err := fn.attribute(a.id)
		if err != nil {
			return nil, err
		}
		*a.dst = v
	}
	return fn, nil
}

// Close unloads the module, after which its functions must not be used. A second call does nothing.
func (m *Module) Close() error {
	if m == nil || m.handle == 0 {
		return nil
	}
	h := m.handle
	m.handle = 0
	return m.device.plain(cuModuleUnload, h)
}

// FunctionAttributes are the resources that a loaded kernel needs per thread and block.
type FunctionAttributes struct {
	MaxThreads  int // maximum threads of a block
	SharedBytes int // bytes of static shared memory
	LocalBytes  int // bytes of local memory per thread: 0 unless registers were spilled
	Registers   int // registers per thread
}

// Function is a kernel of a loaded module.
type Function struct {
	device     *Device
	handle     uintptr
	name       string
	attrs      FunctionAttributes
	dynamic    int // bytes of dynamic shared memory that launches may use
	paramBytes int // bytes of the argument block in the image's metadata, 0 if not known
}

// Numbers of function attributes (CUfunction_attribute).
const (
	funcMaxThreads    = 0
	funcSharedBytes   = 1
	funcLocalBytes    = 3
	funcRegisters     = 4
	funcMaxDynamic    = 8
	smallDynamicBytes = 48 << 10 // maximum bytes of a launch that need no opt-in
)

// Name returns the kernel's entry name.
func (f *Function) Name() string { return f.name }

// Attributes returns the resources that the kernel needs.
func (f *Function) Attributes() FunctionAttributes { return f.attrs }

func (f *Function) attribute(id int) (int, error) {
	fr := frames.Get().(*frame)
	defer frames.Put(fr)
	fr.out[0] = 0
	if err := f.device.do(fr, cuFuncGetAttribute, fr.slot(0), uintptr(id), f.handle); err != nil {
		return 0, fmt.Errorf("cuda: kernel %s: attribute %d: %w", f.name, id, err)
	}
	return int(int32(fr.out[0])), nil
}

// allowShared lets launches use up to the given number of bytes of dynamic shared memory. It must not be called while a
// stream is being captured.
func (f *Function) allowShared(bytes int) error {
	if limit := f.device.props.SharedOptinBytes - f.attrs.SharedBytes; bytes > limit {
		return argumentError("kernel %s: %d bytes of dynamic shared memory were requested, but %s allows %d in "+
			"addition to %d static",
			f.name, bytes, f.device.props.Name, limit, f.attrs.SharedBytes)
	}
	if err := f.device.plain(cuFuncSetAttribute, f.handle, funcMaxDynamic, uintptr(bytes)); err != nil {
		return fmt.Errorf("cuda: kernel %s: dynamic shared memory %d bytes: %w", f.name, bytes, err)
	}
	f.dynamic = bytes
	return nil
}
