package kernels

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sparrow/kernel"
)

// outs maps the output fields of an operation to their tolerances.
type outs map[string]float64

// rowwise returns an operation whose rows are independent. The check computes some of the rows one by one with the
// reference.
func rowwise[A kernel.Op](r *Rig, a A, outputs outs) *Op { return rowwiseAfter(r, a, outputs, nil) }

// rowwiseAfter does what rowwise does, and calls before ahead of every run, with the arguments and the row, or -1 for
// all rows. whole lists inputs that are not reduced to one row, because every row reads all of them.
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

// turns holds several sets of rows for a tensor. Each run reads the next set, so that the rows are not in a CPU cache.
type turns struct {
	sets []kernel.Tensor
	next int
}

// of returns the next set, or with row >= 0 that row of the set that was returned last.
func (t *turns) of(row int) kernel.Tensor {
	if row < 0 {
		t.next = (t.next + 1) % len(t.sets)
		return t.sets[t.next]
	}
	return t.sets[t.next].Slice(row, row+1)
}

// repeated returns an operation whose check runs the reference with its own output; same compares the two outputs.
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

// tensor returns a tensor of an operation's arguments, or the memory of a pool, by its field name.
func tensor[A any](a *A, name string) *kernel.Tensor {
	switch f := reflect.ValueOf(a).Elem().FieldByName(name).Addr().Interface().(type) {
	case *kernel.Tensor:
		return f
	case *kernel.Pool:
		return &f.Mem
	}
	panic(fmt.Sprintf("%T has no tensor %s", *a, name)) // cannot happen: the names are constants of this package
}

// takeRow replaces every tensor in args that has rows rows by its given row, except those listed in whole. Pools are
// not reduced, because they have pages instead of rows.
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
