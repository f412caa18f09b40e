package op

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Every operation answered by missing is in the list, and nothing else is.
func TestMissingListsWhatHasNoKernel(t *testing.T) {
	list := Missing()
	v := reflect.ValueOf(missing{})
	for i := range v.NumMethod() {
		name := v.Type().Method(i).Name
		err, _ := v.Method(i).Call([]reflect.Value{reflect.Zero(v.Method(i).Type().In(0))})[0].Interface().(error)
		if !errors.Is(err, kernel.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
			continue
		}
		at := slices.IndexFunc(list, func(op string) bool {
			return strings.HasSuffix(err.Error(), ": "+op+" has no kernel")
		})
		if at < 0 {
			t.Errorf("%s: %v names no operation of the list", name, err)
			continue
		}
		list = slices.Delete(list, at, at+1)
	}
	if len(list) > 0 {
		t.Errorf("%v are listed and no method answers for them", list)
	}
}

// Where there is no Hopper GPU the backend says why, by both of its names.
func TestBackendSaysWhyItCannotRun(t *testing.T) {
	var why *cuda.Unavailable
	if err := cuda.Available(); !errors.As(err, &why) {
		t.Skipf("there is a Hopper GPU, or its driver failed: %v", err)
	}
	b := Backends()[0]
	here := b.Available()
	if !errors.Is(here, kernel.ErrUnavailable) || here.Error() != why.Reason+"; "+why.Try {
		t.Errorf("available: %v, want %v", here, why)
	}
	if _, err := b.Open(kernel.Options{}); !errors.Is(err, kernel.ErrUnavailable) {
		t.Errorf("open: %v, want ErrUnavailable", err)
	}
	r := kernel.NewRegistry(Backends())
	for asked, want := range map[string]string{"cuda": "cuda (" + here.Error() + ")",
		"sm90": "sm90 (cuda: " + here.Error() + ")"} {
		if _, err := r.Open(asked, kernel.Options{}); !errors.Is(err, kernel.ErrUnavailable) ||
			!strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want it to end in %q", asked, err, want)
		}
	}
}
