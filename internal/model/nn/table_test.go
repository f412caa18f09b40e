package nn_test

import (
	"errors"
	"testing"

	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/weight"
)

// reader is a device that reads tables in host memory itself.
type reader struct {
	*ref.Device
	prepared preparer
}

func (d *reader) Tables() kernel.TableReader { return &d.prepared }

// preparer lists the tables that were prepared.
type preparer struct {
	tables []*kernel.Table
	fail   error
}

func (p *preparer) Prepare(t *kernel.Table) error {
	p.tables = append(p.tables, t)
	return p.fail
}

func (*preparer) Announce(kernel.TableArgs, []int32) error { return nil }

// drawn returns a checkpoint of random weights.
func drawn(t *testing.T, list ...weight.Tensor) *weight.Checkpoint {
	t.Helper()
	w, err := weight.FromShapes("drawn", list)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A table is prepared by a device that reads tables itself, unless its tensors are missing or of another type. Then
// only Finish returns an error. An error of the device is returned by Finish too.
func TestTablesArePrepared(t *testing.T) {
	any := &weight.Distribution{Spread: 1}
	w := drawn(t, weight.Tensor{Name: "good.weight", DType: weight.F32, Shape: []int{3, 32}, Drawn: any},
		weight.Tensor{Name: "ints.weight", DType: weight.I32, Shape: []int{3, 32}, Drawn: any},
		weight.Tensor{Name: "unscaled.weight", DType: weight.F8E4M3, Shape: []int{3, 32}, Drawn: any})
	fault := errors.New("fault")
	for _, c := range []struct {
		name     string
		fail     error
		prepared bool
		want     error
	}{
		{"good.weight", nil, true, nil}, {"good.weight", fault, true, fault},
		{"gone.weight", nil, false, nn.ErrTensors},
		{"ints.weight", nil, false, nn.ErrTensors}, {"unscaled.weight", nil, false, nn.ErrTensors},
	} {
		d := &reader{&ref.Device{}, preparer{fail: c.fail}}
		l := nn.NewLoader(w, d, nil)
		l.Skip("others", func(string) bool { return true })
		table := l.HostTable(c.name, 3, 32)
		if err := l.Finish(); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		tables := d.prepared.tables
		if c.prepared && (len(tables) != 1 || tables[0] != table || table.Values.Rows != 3 || table.Mapped) ||
			!c.prepared && (len(tables) != 0 || table != nil) {
			t.Errorf("%s: prepared %v, loaded %v", c.name, tables, table)
		}
	}
}

// drawer is a device that generates random values itself.
type drawer struct {
	*ref.Device
	given []kernel.Weight
}

func (d *drawer) Draw(kernel.Tensor, kernel.Drawn) error { return nil }

func (d *drawer) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	d.given = append(d.given, w)
	return nil, nil
}

// A device that generates random values gets, in place of memory, their distribution and the size of the tensor.
func TestDevicesDrawValues(t *testing.T) {
	w := drawn(t, weight.Tensor{Name: "a.weight", DType: weight.BF16, Shape: []int{3, 32},
		Drawn: &weight.Distribution{Seed: 5, Mean: 2, Spread: 3}})
	d := &drawer{Device: &ref.Device{}}
	l := nn.NewLoader(w, d, nil)
	l.Matrix("a.weight", 3, 32)
	if err := l.Finish(); err != nil {
		t.Fatal(err)
	}
	if want := (kernel.Drawn{Seed: 5, Mean: 2, Spread: 3, Bytes: 2 * 3 * 32}); len(d.given) != 1 ||
		d.given[0].Data.Buf != kernel.Buffer(want) {
		t.Errorf("the device got %+v, want %+v", d.given, want)
	}
}
