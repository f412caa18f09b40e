package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// Each part is written once, and the parts are written in order.
func TestPartsAreWrittenInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 100} {
		var out bytes.Buffer
		err := inOrder(context.Background(), &out, n, func(i int) ([]byte, error) { return []byte{byte(i)}, nil })
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i)
		}
		if err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%d parts: %v, error %v", n, out.Bytes(), err)
		}
	}
}

// The first error of a part ends the run and is returned. A failing writer and a cancelled context end the run, too.
func TestAFailedPartEndsTheRun(t *testing.T) {
	broken := errors.New("broken")
	var out bytes.Buffer
	err := inOrder(context.Background(), &out, 1000, func(i int) ([]byte, error) {
		if i == 7 {
			return nil, broken
		}
		return []byte("x"), nil
	})
	if !errors.Is(err, broken) || out.String() != strings.Repeat("x", 7) {
		t.Errorf("error %v after %q", err, out.String())
	}
	if err := inOrder(context.Background(), failing{broken}, 10, func(int) ([]byte, error) {
		return []byte("x"), nil
	}); !errors.Is(err, broken) {
		t.Errorf("error %v of a writer that fails", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := inOrder(ctx, &out, 10, func(int) ([]byte, error) { return nil, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a context that ended", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
