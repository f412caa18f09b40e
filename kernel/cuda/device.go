package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"sparrow/kernel"
)

// Properties are the properties of a device that kernels and the planner depend on. All values are from the driver.
type Properties struct {
	Ordinal            int    `json:"ordinal"`
	Name               string `json:"name"`
	Major              int    `json:"major"` // compute capability, major part
	Minor              int    `json:"minor"`
	SMs                int    `json:"sms"`
	L2Bytes            int    `json:"l2_bytes"`
	SharedOptinBytes   int    `json:"shared_optin_bytes"` // maximum dynamic shared memory of one block after opting in
	SharedPerSMBytes   int    `json:"shared_per_sm_bytes"`
	RegistersPerSM     int    `json:"registers_per_sm"`
	MaxThreadsPerBlock int    `json:"max_threads_per_block"`
	ClockKHz           int    `json:"clock_khz"` // highest SM clock in kHz
	MemoryClockKHz     int    `json:"memory_clock_khz"`
	MemoryBusBits      int    `json:"memory_bus_bits"`
	MemoryBytes        int64  `json:"memory_bytes"`
	ClusterLaunch      bool   `json:"cluster_launch"`
	DriverVersion      int    `json:"driver_version"` // 1000*major + 10*minor of the CUDA version the driver supports
}

// Hardware returns the planner's name of the architecture, such as sm90.
func (p Properties) Hardware() string { return fmt.Sprintf("sm%d%d", p.Major, p.Minor) }

func (p Properties) String() string {
	return fmt.Sprintf("%s (compute %d.%d, %d SMs, %d MiB, L2 %d MiB, opt-in shared %d B, driver CUDA %d.%d)",
		p.Name, p.Major, p.Minor, p.SMs, p.MemoryBytes>>20, p.L2Bytes>>20, p.SharedOptinBytes, p.DriverVersion/1000,
		p.DriverVersion%1000/10)
}

// Device is one GPU with its primary context. Close releases the context; objects made from the device must be closed
// first.
type Device struct {
	driver  *driver
	handle  int
	context uintptr
	props   Properties
	// portable means that kernels are loaded from PTX, which runs on every device from Ampere on, and not from machine
	// code for Hopper.
	portable bool
	limits   limited
	watch    func(kernel string, l Launch, args any) // called for each launch (Watch); may be nil
}

// native reports whether machine code for the device is embedded.
func (p Properties) native() bool { return p.Major == 9 && p.Minor == 0 }

// runs reports whether the device can run the kernels for Hopper or the portable kernels.
func (p Properties) runs() bool { return p.Major >= oldestMajor }

// capability returns the compute capability times ten, such as 90.
func (d *Device) capability() int { return 10*d.props.Major + d.props.Minor }

// oldestMajor is the first compute capability, 8.0, whose devices have the instructions of the portable kernels.
const oldestMajor = 8

// Available returns nil if at least one device of compute capability 9.0 is present, and otherwise the reason why the
// kernels for Hopper cannot be used.
func Available() error {
	return available(Properties.native, "9.0", "use a Hopper GPU (H100, H200), or the portable kernels (--kernels "+
		"cuda-portable) on any GPU from compute capability 8.0 on")
}

// PortableAvailable returns nil if at least one device of compute capability 8.0 or newer is present, and otherwise the
// reason why the portable kernels cannot be used.
func PortableAvailable() error {
	return available(Properties.runs, "8.0 or newer", "use a GPU from Ampere on (A100, RTX 30 and newer)")
}

func available(fits func(Properties) bool, capability, try string) error {
	d, err := load()
	if err != nil {
		return err
	}
	var seen []string
	for i := range d.devices {
		p, _, err := d.properties(i)
		if err != nil {
			return err
		}
		if fits(p) {
			return nil
		}
		seen = append(seen, p.String())
	}
	return &Unavailable{
		Reason: fmt.Sprintf("no GPU of compute capability %s among %v", capability, seen),
		Try:    try + orCPU,
	}
}

// Memory returns the total memory, in bytes, of all GPUs that the kernels run on; 0 if there is no such GPU.
func Memory() (bytes int64) {
	d, err := load()
	if err != nil {
		return 0
	}
	for i := range d.devices {
		if p, _, err := d.properties(i); err == nil && p.runs() {
			bytes += p.MemoryBytes
		}
	}
	return bytes
}

// Open retains the primary context of one GPU. With compute capability 9.0 it uses the kernels for Hopper, otherwise
// the portable kernels.
func Open(ordinal int) (*Device, error) { return open(ordinal, false) }

// OpenPortable is Open with the portable kernels, on any GPU of compute capability 8.0 or newer.
func OpenPortable(ordinal int) (*Device, error) { return open(ordinal, true) }

func open(ordinal int, portable bool) (*Device, error) {
	d, err := load()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= d.devices {
		return nil, argumentError("device %d was requested, but the driver has only devices 0 to "+
			"%d", ordinal, d.devices-1)
	}
	props, handle, err := d.properties(ordinal)
	if err != nil {
		return nil, fmt.Errorf("cuda: open device %d: %w", ordinal, err)
	}
	if !props.runs() {
		return nil, fmt.Errorf("cuda: open device %d: %w", ordinal, &Unavailable{
			Reason: fmt.Sprintf("%v; the kernels need compute capability 8.0 or newer", props),
			Try:    "use a GPU from Ampere on (A100, RTX 30 and newer)" + orCPU})
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if err := d.call(f, cuDevicePrimaryCtxRetain, f.slot(0), uintptr(handle)); err != nil {
		if isOutOfMemory(err) {
			err = fmt.Errorf("%w: other programs use too much of its %d MiB, so that a context does not fit; end "+
				"them, or run on the CPU: %w", kernel.ErrMemory, props.MemoryBytes>>20, err)
		}
		return nil, fmt.Errorf("cuda: open device %d (%s): %w", ordinal, props.Name, err)
	}
	dev := &Device{driver: d, handle: handle, context: uintptr(f.out[0]), props: props,
		portable: portable || !props.native()}
	dev.limits.chip = props.Hardware()
	return dev, nil
}

// Portable reports whether the device's kernels are the portable ones.
func (d *Device) Portable() bool { return d.portable }

// Properties returns the device's properties, which were read when it was opened.
func (d *Device) Properties() Properties { return d.props }

// Sync waits for everything enqueued on every stream of the device.
func (d *Device) Sync() error { return d.plain(cuCtxSynchronize) }

// MemoryFree returns the free memory and the size of the device's memory, in bytes.
func (d *Device) MemoryFree() (free, total int64, err error) {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if err := d.do(f, cuMemGetInfo, f.slot(0), f.slot(1)); err != nil {
		return 0, 0, err
	}
	free, total = int64(f.out[0]), int64(f.out[1])
	if most := d.limits.memory; most > 0 {
		return max(min(free, most-d.limits.used.Load()), 0), min(total, most), nil
	}
	return free, total, nil
}

// Close releases the primary context. A second call does nothing.
func (d *Device) Close() error {
	if d.context == 0 {
		return nil
	}
	err := d.limits.bus.state.Free()
	d.context = 0
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if d.limits.green != 0 {
		err = errors.Join(err, d.driver.call(f, cuGreenCtxDestroy, d.limits.green))
	}
	return errors.Join(err, d.driver.call(f, cuDevicePrimaryCtxRelease, uintptr(d.handle)))
}

// Numbers of device attributes (CUdevice_attribute).
const (
	attrMaxThreadsPerBlock = 1
	attrClockKHz           = 13
	attrSMs                = 16
	attrMemoryClockKHz     = 36
	attrMemoryBusBits      = 37
	attrL2Bytes            = 38
	attrMajor              = 75
	attrMinor              = 76
	attrSharedPerSM        = 81
	attrRegistersPerSM     = 82
	attrSharedOptin        = 97
	attrClusterLaunch      = 120
)

// properties reads a device's properties. It needs no context.
func (d *driver) properties(ordinal int) (Properties, int, error) {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	p := Properties{Ordinal: ordinal, DriverVersion: d.version}
	f.out[0] = 0
	if err := d.call(f, cuDeviceGet, f.slot(0), uintptr(ordinal)); err != nil {
		return p, 0, err
	}
	handle := int(int32(f.out[0]))
	name := f.block[:256]
	clear(name)
	if err := d.call(f, cuDeviceGetName, uintptr(unsafe.Pointer(&f.block[0])), uintptr(len(name)),
		uintptr(handle)); err != nil {
		return p, 0, err
	}
	p.Name = string(bytes.TrimRight(name, "\x00"))
	if err := d.call(f, cuDeviceTotalMem, f.slot(0), uintptr(handle)); err != nil {
		return p, 0, err
	}
	p.MemoryBytes = int64(f.out[0])
	var cluster int
	for _, a := range []struct {
		id  int
		dst *int
	}{
		{attrMajor, &p.Major}, {attrMinor, &p.Minor}, {attrSMs, &p.SMs}, {attrL2Bytes, &p.L2Bytes},
		{attrSharedOptin, &p.SharedOptinBytes}, {attrSharedPerSM, &p.SharedPerSMBytes},
		{attrRegistersPerSM, &p.RegistersPerSM}, {attrMaxThreadsPerBlock, &p.MaxThreadsPerBlock},
		{attrClockKHz, &p.ClockKHz}, {attrMemoryClockKHz, &p.MemoryClockKHz}, {attrMemoryBusBits, &p.MemoryBusBits},
		{attrClusterLaunch, &cluster},
	} {
		f.out[0] = 0
		if err := d.call(f, cuDeviceGetAttribute, f.slot(0), uintptr(a.id), uintptr(handle)); err != nil {
			return p, 0, fmt.Errorf("device attribute %d: %w", a.id, err)
		}
		*a.dst = int(int32(f.out[0]))
	}
	p.ClusterLaunch = cluster != 0
	return p, handle, nil
}
