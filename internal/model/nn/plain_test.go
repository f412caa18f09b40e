package nn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/weight"
)

// Packed FP4 weights are used as they are stored: each byte has two values, and each scale byte applies to 32 values.
func TestPackedMatrix(t *testing.T) {
	data, scales := filled(4*16, 0x21), []byte{120, 127, 130, 1}
	for _, d := range []weight.DType{weight.U8, weight.I8} {
		l := loader(t, nil, tensor("w.weight", d, data, 4, 16), tensor("w.scale", weight.F8E8M0, scales, 4, 1))
		w := l.Weight("w.weight", 4, 32)
		if err := l.Finish(); err != nil {
			t.Fatal(err)
		}
		if w.Out() != 4 || w.In() != 32 || w.Data.DType != kernel.E2M1x2 || w.Scale.DType != kernel.E8M0 ||
			w.BlockRows != 1 || w.BlockCols != 32 ||
			string(host.Bytes(w.Data)) != string(data) || string(host.Bytes(w.Scale)) != string(scales) {
			t.Errorf("%v: loaded %v with scales %v in blocks of %d x %d", d, w.Data, w.Scale, w.BlockRows, w.BlockCols)
		}
	}
}

func TestStacksAndTables(t *testing.T) {
	stack := make([]byte, 3*2*4*2)
	for i := range stack {
		stack[i] = byte(i)
	}
	l := loader(t, nil,
		tensor("stack", weight.BF16, stack, 3, 2, 4),
		tensor("map", weight.I64, []byte{1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, 2, 1),
		tensor("small", weight.BF16, []byte{0x80, 0x3F, 0x20, 0xC0}, 1, 2),
		tensor("mtp.0.x", weight.F32, filled(4, 0), 1))
	list := l.Stack("stack", 3, 2, 4)
	ids, small := l.Indices("map", 2, 1, 4), l.Floats("small", 1, 2)
	l.Skip("drafts", func(name string) bool { return strings.HasPrefix(name, "mtp.") })
	if got := l.Skipped(); len(got) != 1 || got[0] != "1 tensors: drafts" {
		t.Errorf("skipped %q", got)
	}
	if err := l.Finish(); err != nil {
		t.Fatal(err)
	}
	for i, w := range list {
		if w.Out() != 2 || w.In() != 4 || string(host.Bytes(w.Data)) != string(stack[i*16:(i+1)*16]) {
			t.Errorf("matrix %d of the stack is %v: % x", i, w.Data, host.Bytes(w.Data))
		}
	}
	if !slices.Equal(host.I32(ids), []int32{1, 3}) || !slices.Equal(host.F32(small), []float32{1, -2.5}) {
		t.Errorf("loaded %v and %v", host.I32(ids), host.F32(small))
	}
}

func TestStacksAndTablesThatDoNotFit(t *testing.T) {
	l := loader(t, nil,
		tensor("flat", weight.BF16, filled(16, 0), 2, 4), tensor("ints", weight.I32, filled(16, 0), 1, 2, 2),
		tensor("map", weight.I32, []byte{4, 0, 0, 0, 0, 0, 0, 0}, 2, 1),
		tensor("floats", weight.F32, filled(8, 0), 2, 1))
	l.Stack("flat", 2, 2, 2)
	l.Stack("ints", 1, 2, 2)
	l.Stack("gone", 1, 2, 3)
	l.Indices("map", 2, 1, 4)
	l.Indices("floats", 2, 1, 4)
	l.Floats("nowhere", 2, 2)
	l.AddProblem("a problem of the family")
	err := l.Finish()
	if !errors.Is(err, nn.ErrTensors) {
		t.Fatalf("got %v, want ErrTensors", err)
	}
	for _, want := range []string{"7 problems", "flat has shape [2 4], want [2 2 2]",
		"ints is I32; a stack of matrices must be", "missing gone, want shape [1 2 3]", "map[0][0] is 4, want 0 to 3",
		`tensor "floats"`, "missing nowhere, want shape [2 2]", "a problem of the family"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}
