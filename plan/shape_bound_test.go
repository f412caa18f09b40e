package plan

import (
	"encoding/binary"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/testkit/heap"
)

// The stored shapes of batches with many prompts of different lengths stay within their limit in bytes.
func TestKeptShapesAreBoundedInBytes(t *testing.T) {
	for _, length := range []int{8, 1000, 30_000} {
		grown := heap.Kept(func() any {
			s := &Shaper{}
			for i := range uint64(20_000) {
				s.buf = append(s.buf[:0], make([]byte, length)...)
				binary.LittleEndian.PutUint64(s.buf, i)
				s.keep()
			}
			s.buf = nil
			return s
		})
		if grown > mostKept*5/4 {
			t.Errorf("shapes of %d bytes take %d bytes of the heap, at most %d are meant", length, grown, mostKept)
		}
	}
}

// The memory of a plan is that of its structs, its slices with their capacities, and its texts. Codes of errors are
// constants.
func TestPlansCountTheirMemory(t *testing.T) {
	var held func(v reflect.Value) int
	held = func(v reflect.Value) int {
		n := 0
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				n += held(v.Field(i))
			}
		case reflect.Slice:
			n = v.Cap() * int(v.Type().Elem().Size())
			for i := range v.Len() {
				n += held(v.Index(i))
			}
		case reflect.String:
			if v.Type() != reflect.TypeFor[Code]() {
				n = v.Len()
			}
		}
		return n
	}
	check := func(rt interface{ Fatalf(string, ...any) }, p *Plan) {
		if got, want := p.Bytes(), int(reflect.TypeFor[Plan]().Size())+held(reflect.ValueOf(*p)); got != want {
			rt.Fatalf("a plan of %d bytes counts %d", want, got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) { check(rt, mustBuild(rt, drawConfig(rt), drawBatch(rt))) })
	check(t, build(t, divided(t, "deepseek_v32", 4, ByRequests), decode(100, 5000)))
}
