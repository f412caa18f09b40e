package op

import (
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// A piece whose copy was enqueued is marked, so that it is filled again only after the copy. Tasks without a piece run.
func TestCopiedPiecesAreMarked(t *testing.T) {
	d := detached(t)
	x, err := kernel.New(d, kernel.U8, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := d.gpu.AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	used, err := d.gpu.NewMarker()
	if err != nil {
		t.Fatal(err)
	}
	u := &upload{d: d, stream: d.stream}
	p := &piece{memory: memory, used: used, from: make([]byte, 64)}
	if err := u.one(task{piece: p, to: at(x)}); err != nil || !p.sent {
		t.Errorf("%v, marked: %v", err, p.sent)
	}
	ran := false
	if err := u.one(task{to: cuda.Ptr(1), run: func() error { ran = true; return nil }}); err != nil || !ran {
		t.Errorf("%v, ran: %v", err, ran)
	}
	if err := used.Close(); err != nil {
		t.Error(err)
	}
	if err := memory.Free(); err != nil {
		t.Error(err)
	}
}
