package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Tally counts how often each expert was chosen. An expert that does not exist raises a fault.
func (d *Device) Tally(a kernel.TallyArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "tally"}
	args := cuda.TallyArgs{Counts: at(a.Counts), IDs: at(a.IDs), Seen: at(a.Seen), Faults: d.faults.Ptr(),
		IDStride: stride(a.IDs), SeenStride: stride(a.Seen), Rows: r.count("rows", a.IDs.Rows),
		Top: r.count("choices", a.IDs.Cols), Experts: r.count("experts", a.Counts.Cols)}
	if r.err != nil || args.Rows == 0 || args.Top == 0 {
		return r.err
	}
	return cuda.TallyChoices(d.kernels, d.stream, &args)
}
