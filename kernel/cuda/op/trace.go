package op

import "sparrow/kernel"

// Trace starts to time launches, or ends it.
func (d *Device) Trace(on bool) (err error) {
	if on && d.trace == nil {
		d.trace, err = d.stream.NewTrace()
		return err
	}
	if !on && d.trace != nil {
		err = d.trace.Close()
		d.trace = nil
	}
	return err
}

// TraceLabel goes with the launches from now on.
func (d *Device) TraceLabel(label int) {
	if d.trace != nil {
		d.trace.Label = label
	}
}

// Traced waits for the launches since the last call and returns their times.
func (d *Device) Traced() ([]kernel.TracedLaunch, error) {
	if d.trace == nil {
		return nil, nil
	}
	list, err := d.trace.Take()
	out := make([]kernel.TracedLaunch, len(list))
	for i, e := range list {
		out[i] = kernel.TracedLaunch{Kernel: e.Kernel, Label: e.Label, Time: e.Time}
	}
	return out, err
}
