package kernel

import (
	"fmt"
	"reflect"
)

// Op is one operation: a value of an argument struct, with everything that it reads and writes. All operations are
// defined in this package.
type Op interface {
	// Name returns the operation's name in messages.
	Name() string
	// Check validates the arguments. The arguments of an operation in a list are checked when it is added.
	Check() error
}

// shared is an operation that all ranks run together.
type shared interface {
	Op
	among(Collective) error
}

// Do checks and runs a single operation, for example in tests. Passes run lists of operations instead.
func Do(d Device, op Op) error {
	if err := op.Check(); err != nil {
		return err
	}
	return d.Do(op)
}

// OpTable holds the functions with which devices of type D run operations, by the type of the operation. A device does
// not support operations that are not in its table.
type OpTable[D Device] map[reflect.Type]func(D, Op) error

// Entry is the function of one operation in an OpTable.
type Entry[D Device] struct {
	op  reflect.Type
	run func(D, Op) error
}

// Runs makes the entry of a function, which runs operations of type A.
func Runs[D Device, A Op](run func(D, A) error) Entry[D] {
	return Entry[D]{reflect.TypeFor[A](), func(d D, op Op) error { return run(d, op.(A)) }}
}

// NewOpTable makes a table. Two entries of one operation are an error in the program, and panic.
func NewOpTable[D Device](list ...Entry[D]) OpTable[D] {
	t := OpTable[D]{}
	for _, e := range list {
		if t[e.op] != nil {
			panic(fmt.Sprintf("kernel: two functions of a device run %v", e.op))
		}
		t[e.op] = e.run
	}
	return t
}

// Do runs an operation whose arguments were checked.
func (t OpTable[D]) Do(d D, op Op) error {
	if run := t[reflect.TypeOf(op)]; run != nil {
		return run(d, op)
	}
	if _, ok := op.(shared); ok {
		return fmt.Errorf("%w: %s needs several ranks, but %s is one device", ErrUnsupported, op.Name(), d.Name())
	}
	return fmt.Errorf("%w: %s does not support the operation %s", ErrUnsupported, d.Name(), op.Name())
}
