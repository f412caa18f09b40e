package cuda

import (
	"errors"
	"fmt"
)

// Reaches makes the memory of another GPU accessible to kernels of this GPU, at its own addresses. A GPU can always
// access its own memory.
func (d *Device) Reaches(other *Device) error {
	if d.handle == other.handle {
		return nil
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	f.out[0] = 0
	if err := d.do(f, cuDeviceCanAccessPeer, f.slot(0), uintptr(d.handle), uintptr(other.handle)); err != nil {
		return err
	}
	if int32(f.out[0]) == 0 {
		return argumentError("GPU %d cannot reach the memory of GPU %d: they are not joined by NVLink or a PCIe "+
			"switch; run on GPUs that are ('nvidia-smi topo -p2p r' lists them)", d.props.Ordinal, other.props.Ordinal)
	}
	err := d.do(f, cuCtxEnablePeerAccess, other.context, 0)
	var known *DriverError
	if errors.As(err, &known) && known.Code == codePeerAlreadyEnabled {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cuda: access of GPU %d to the memory of GPU %d: %w", d.props.Ordinal, other.props.Ordinal,
			err)
	}
	return nil
}
