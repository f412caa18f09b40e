package event

// frame is a numbered batch. All receivers share its bytes.
type frame struct {
	seq     uint64
	payload []byte
}

// size returns the memory of the payload in bytes, as Go allocates it: below 32 KiB at most an eighth more than
// requested, above that a multiple of 8 KiB.
func (f *frame) size() int {
	n := cap(f.payload)
	if n < 32<<10 {
		return n + n/8
	}
	return (n + 8<<10 - 1) &^ (8<<10 - 1)
}

// Maximum number and bytes of the batches that are kept for replays.
const (
	maxKept      = 10_000 // batches
	maxKeptBytes = 64 << 20
)

// history holds the latest batches, which have consecutive numbers.
type history struct {
	frames []frame
	bytes  int
}

func (h *history) add(f frame) {
	h.frames = append(h.frames, f)
	h.bytes += f.size()
	for len(h.frames) > maxKept || h.bytes > maxKeptBytes && len(h.frames) > 1 {
		h.bytes -= h.frames[0].size()
		h.frames[0] = frame{}
		h.frames = h.frames[1:]
	}
}

// oldest returns the number of the oldest kept batch; the history must not be empty.
func (h *history) oldest() uint64 { return h.frames[0].seq }

// since returns the kept batches with number seq or higher.
func (h *history) since(seq uint64) []frame {
	skip := uint64(0)
	if seq > h.oldest() {
		skip = min(seq-h.oldest(), uint64(len(h.frames)))
	}
	return append([]frame(nil), h.frames[skip:]...)
}
