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

// No model can run here, on any machine, and the backend says why.
func TestBackendSaysWhyItCannotRun(t *testing.T) {
	b := Backends()[0]
	err := b.Available()
	if !errors.Is(err, kernel.ErrUnavailable) {
		t.Fatalf("available: %v, want ErrUnavailable", err)
	}
	if _, openErr := b.Open(kernel.Options{}); openErr == nil || openErr.Error() != err.Error() {
		t.Errorf("open: %v, want %v", openErr, err)
	}
	if !strings.Contains(err.Error(), "multiply, ") {
		t.Errorf("%v does not list what is missing", err)
	}
	if here := cuda.Available(); here != nil && !errors.Is(err, cuda.ErrUnavailable) {
		t.Errorf("%v does not say that %v", err, here)
	}
	driver := &cuda.Unavailable{Reason: "no driver", Try: "install it"}
	for _, c := range []struct {
		name       string
		here       error
		missing    []string
		begin, end string
	}{
		{"neither", driver, []string{"embed", "put"}, "no whole model runs on a GPU yet: ",
			"(without a CUDA kernel: embed, put); and here no driver"},
		{"a driver", nil, []string{"embed", "put"}, "no whole model runs on a GPU yet: ",
			"(without a CUDA kernel: embed, put)"},
		{"kernels", driver, nil, driver.Error(), ""},
	} {
		err := incomplete(c.here, c.missing)
		if !errors.Is(err, kernel.ErrUnavailable) || !strings.HasPrefix(err.Error(), c.begin) ||
			!strings.HasSuffix(err.Error(), c.end) {
			t.Errorf("%s: %v, want it to begin with %q and end in %q", c.name, err, c.begin, c.end)
		}
	}
	if err := incomplete(nil, nil); err != nil {
		t.Errorf("with driver and kernels: %v", err)
	}
	r := kernel.NewRegistry(Backends())
	for asked, want := range map[string]string{"cuda": "cuda (" + err.Error() + ")",
		"sm90": "sm90 (cuda: " + err.Error() + ")"} {
		if _, err := r.Open(asked, kernel.Options{}); !errors.Is(err, kernel.ErrUnavailable) ||
			!strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want it to end in %q", asked, err, want)
		}
	}
}
