package kernels

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sparrow/kernel"
)

// outs maps the outputs of an operation, by field name, to their maximum error.
type outs map[string]float64

// rowwise returns an operation whose rows do not depend on each other. The reference computes some of the rows one by
// one.
func rowwise[A kernel.Op](r *Rig, a A, outputs outs) *Op { return rowwiseAfter(r, a, outputs, nil) }

// rowwiseAfter is like rowwise with preparations: before, unless nil, is called with the arguments of every run and
// their row, or -1 for all rows. whole lists tensors that all rows read, though they have as many rows as the outputs.
func rowwiseAfter[A kernel.Op](r *Rig, a A, outputs outs, before func(d kernel.Device, a *A, row int) error,
	whole ...string) *Op {
	run := func(d kernel.Device, a A, row int) error {
		if before != nil {
			if err := before(d, &a, row); err != nil {
				return err
			}
		}
		return kernel.Do(d, a)
	}
	names := slices.Sorted(maps.Keys(outputs))
	got := make([]kernel.Tensor, len(names))
	for i, name := range names {
		got[i] = *tensor(&a, name)
	}
	rows := got[0].Rows
	return &Op{
		Run:    func(d kernel.Device) error { return run(d, a, -1) },
		Poison: poison(got...),
		Check: func(ref kernel.Device) error {
			for _, row := range slices.Compact([]int{0, rows / 2, rows - 1}) {
				b := a
				takeRow(reflect.ValueOf(&b).Elem(), rows, row, whole)
				for i, name := range names {
					*tensor(&b, name) = r.empty(got[i].DType, 1, got[i].Cols)
				}
				if err := run(ref, b, row); err != nil {
					return err
				}
				for i, name := range names {
					if err := near(got[i].Slice(row, row+1), *tensor(&b, name), outputs[name]); err != nil {
						return fmt.Errorf("%s, row %d: %w", name, row, err)
					}
				}
			}
			return nil
		},
	}
}

// turns holds sets of rows of a tensor that runs read one after the other, so that they are not in a CPU cache.
type turns struct {
	sets []kernel.Tensor
	next int
}

// of returns the next set if row is negative, or otherwise the given row of the set that was returned last.
func (t *turns) of(row int) kernel.Tensor {
	if row < 0 {
		t.next = (t.next + 1) % len(t.sets)
		return t.sets[t.next]
	}
	return t.sets[t.next].Slice(row, row+1)
}

// repeated returns an operation that the reference repeats with its own output; same compares the two outputs.
func repeated[A kernel.Op](r *Rig, a A, name string, same func(got, want kernel.Tensor) error) *Op {
	out := *tensor(&a, name)
	return &Op{
		Run:    func(d kernel.Device) error { return kernel.Do(d, a) },
		Poison: poison(out),
		Check: func(ref kernel.Device) error {
			b := a
			want := tensor(&b, name)
			*want = r.empty(out.DType, out.Rows, out.Cols)
			if err := kernel.Do(ref, b); err != nil {
				return err
			}
			return same(out, *want)
		},
	}
}

// tensor returns a tensor of an operation's arguments, or the memory of a pool, by the name of its field.
func tensor[A any](a *A, name string) *kernel.Tensor {
	switch f := reflect.ValueOf(a).Elem().FieldByName(name).Addr().Interface().(type) {
	case *kernel.Tensor:
		return f
	case *kernel.Pool:
		return &f.Mem
	}
	panic(fmt.Sprintf("%T has no tensor %s", *a, name)) // the names are constants of this package
}

// takeRow reduces every tensor of the arguments with the given number of rows to one row. Pools are not reduced,
// because they have pages instead of rows.
func takeRow(args reflect.Value, rows, row int, whole []string) {
	for i := range args.NumField() {
		switch f := args.Field(i).Addr().Interface().(type) {
		case *kernel.Tensor:
			if f.Rows == rows && !slices.Contains(whole, args.Type().Field(i).Name) {
				*f = f.Slice(row, row+1)
			}
		case *kernel.Stream:
			takeRow(reflect.ValueOf(f).Elem(), rows, row, whole)
		}
	}
}
