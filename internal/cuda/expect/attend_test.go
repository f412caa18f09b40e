package expect

import (
	"math"
	"testing"
)

func TestAttendIsASoftmaxWithASink(t *testing.T) {
	q := make([]float32, 576)
	rows := [][]float32{make([]float32, 576), make([]float32, 576)}
	q[575], rows[0][575], rows[1][575] = 2, 1, 0.5 // the rotary part changes the score but not the result
	rows[0][0], rows[1][0], rows[1][511] = 1, -1, 3
	out, lse, largest := Attend(q, rows, 0.5, math.Inf(-1))
	p := 1 / (1 + math.Exp(-0.5))
	if math.Abs(out[0]-(2*p-1)) > 1e-12 || math.Abs(out[511]-3*(1-p)) > 1e-12 || largest != 1 ||
		math.Abs(lse-math.Log(math.E+math.Exp(0.5))) > 1e-12 {
		t.Errorf("out %g %g, lse %g, largest %g", out[0], out[511], lse, largest)
	}
	sunk, again, _ := Attend(q, rows, 0.5, lse)
	if math.Abs(sunk[0]-out[0]/2) > 1e-12 || again != lse {
		t.Errorf("a sink as heavy as all keys gives %g, want half of %g; lse %g, want %g", sunk[0], out[0], again, lse)
	}
	none, lse, largest := Attend(q, nil, 0.5, 1)
	if none[0] != 0 || !math.IsInf(lse, 1) || !math.IsInf(largest, -1) {
		t.Errorf("no rows: %g, lse %g, largest %g", none[0], lse, largest)
	}
	if d := Distance([]float32{3, 0}, []float64{4, 0}); math.Abs(d-0.25) > 1e-12 {
		t.Errorf("distance %g", d)
	}
	if d := Distance([]float32{3, 4}, []float64{0, 0}); math.Abs(d-5) > 1e-12 {
		t.Errorf("distance from zero %g", d)
	}
	if d := Distance([]float32{float32(math.NaN())}, []float64{1}); !math.IsNaN(d) {
		t.Errorf("distance of NaN %g", d)
	}
}
