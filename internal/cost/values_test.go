package cost

import (
	"math"
	"reflect"
	"testing"
)

// The times of near rows and of far rows are trusted separately: many measurements of one kind do not make the other
// kind trusted.
func TestKindsOfRowsAreTrustedApart(t *testing.T) {
	m := NewModel()
	m.nearRows, m.farRows = 100, 10
	for _, c := range []struct {
		near, far, least float64
		want             bool
	}{{150, 15, 0, true}, {151, 0, 0, false}, {0, 16, 0, false}, {0, 16, 16, true}, {151, 1, 150, false}} {
		w := Work{Near: Rows{N: c.near}, Far: Rows{N: c.far}}
		if got := m.Trusts(&w, c.least); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// If a batch has more decodes than the largest observed batch without prompts, knownDecoding uses the number of keys of
// the observed batch.
func TestKnownDecodesHaveTheirOwnKeys(t *testing.T) {
	m := NewModel()
	m.most = 4
	w := Work{Decode: Rows{N: 8, Seen: 6}}
	half := Work{Decode: Rows{N: 4, Seen: 3}}
	if got, want := m.knownDecoding(&w), m.Decoding(&half); math.Abs(got-want) > 1e-12 {
		t.Errorf("knownDecoding returned %v, want %v", got, want)
	}
	m.most = 8
	if got, want := m.knownDecoding(&w), m.Decoding(&w); got != want {
		t.Errorf("knownDecoding returned %v, want %v", got, want)
	}
}

// Figures of a machine are refused if any of them is zero, negative or infinite.
func TestEveryFigureIsChecked(t *testing.T) {
	good := Figures{Bus: H200().Bus, CPU: H200().CPU}
	if !good.valid() {
		t.Fatal("valid figures of an H200 are refused")
	}
	var visit func(v reflect.Value, path string)
	visit = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; name != "MemoryBytes" && name != "Wait" || path == "Bus." {
					visit(v.Field(i), path+name+".")
				}
			}
		case reflect.Array:
			for i := range v.Len() {
				visit(v.Index(i), path)
			}
		case reflect.Float64:
			old := v.Float()
			for _, bad := range []float64{0, -1, math.Inf(1), math.NaN()} {
				if v.SetFloat(bad); good.valid() && path != "CPU.Inside." {
					t.Errorf("%s %v is accepted as a figure", path, bad)
				}
			}
			v.SetFloat(old)
		case reflect.Int:
			old := v.Int()
			if v.SetInt(0); good.valid() {
				t.Errorf("%s 0 is accepted as a figure", path)
			}
			v.SetInt(old)
		}
	}
	visit(reflect.ValueOf(&good).Elem(), "")
}

// The factor by which batches may be late stays between its bounds, however many batches are early or late.
func TestLatenessIsBounded(t *testing.T) {
	m := NewModel()
	if m.Late() != firstLate {
		t.Errorf("Late is %v at first", m.Late())
	}
	for range 10_000 {
		m.note(0.5)
	}
	if m.Late() != leastLate {
		t.Errorf("Late is %v after early batches, want %v", m.Late(), leastLate)
	}
	for range 10_000 {
		m.note(9)
	}
	if m.Late() != mostLate {
		t.Errorf("Late is %v after late batches, want %v", m.Late(), mostLate)
	}
}
