package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sparrow/internal/model/estimate"
	"sparrow/internal/model/family"
	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
	"sparrow/plan"
)

// Host describes how a model uses the memory of a machine without a GPU, with one sequence of estimate.Tokens tokens.
type Host struct {
	Model   string          `json:"model"`
	Machine string          `json:"machine"`
	Parts   []estimate.Part `json:"host"`
	Memory  int64           `json:"memory"`
	// TokenBytes is the size of the weights that are read for one token.
	TokenBytes int64 `json:"token_bytes"`
	// Stream is the memory bandwidth in GB/s; 0 if the user did not give it. Tokens is the resulting upper bound of
	// tokens per second when one sequence is decoded.
	Stream float64  `json:"stream_gb_per_second,omitempty"`
	Tokens float64  `json:"tokens_per_second,omitempty"`
	Losses []string `json:"losses,omitempty"`
	// Assumed lists the assumptions about sizes (Summary.Assumed).
	Assumed string `json:"assumed,omitempty"`
}

// ErrNoRoom is wrapped if a model does not fit in the memory of a machine.
var ErrNoRoom = errors.New("the model does not fit the memory")

// hostBytes is the memory, in bytes, that is reserved for the system and the process.
const hostBytes = 4 << 30

// OnHost computes whether a model fits on a machine without a GPU, or returns an error with the missing memory. asked
// is the description of the machine as the user gave it.
func (s *Summary) OnHost(src *family.Source, m *estimate.Machine, asked string) (*Host, error) {
	memory := m.CPU.MemoryBytes
	if memory == 0 {
		if memory = sysmem.Total(); memory <= 0 {
			return nil, fmt.Errorf("hardware %q: the memory of this machine is unknown; give it, as in cpu,64G",
				asked)
		}
	}
	facts, err := family.Facts(src.Model)
	if err != nil {
		return nil, err
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		return nil, err
	}
	cfg, _, err := plan.Resolve(hw, facts, plan.Policy{})
	if err != nil {
		return nil, err
	}
	of := func(c CacheSize) bool { return c.Layout == cfg.Layout.String() }
	cache := s.Cache[max(slices.IndexFunc(s.Cache, of), 0)]
	each := cmp.Or(cache.DraftedTokenBytes, cache.TokenBytes)
	tokens := min(estimate.Tokens, s.MaxPositions)
	weights, note := s.TotalBytes-s.visionBytes, ""
	if s.NoWeights {
		note = s.Format
	}
	if s.Tables != nil {
		weights -= s.Tables.Bytes
		note = fmt.Sprintf("without n-gram tables of %s, which are read from the files as needed",
			unit.Bytes(s.Tables.Bytes))
	}
	h := &Host{Model: s.Checkpoint, Machine: asked, Memory: memory, TokenBytes: s.activeBytes,
		Stream: m.CPU.Stream * 1e6 / 1e9, Losses: onHost(s.Losses), Assumed: s.Assumed, Parts: []estimate.Part{
			{Name: "weights", Bytes: weights, Note: note},
			{Name: "cache", Bytes: each*int64(tokens) + cache.SequenceBytes,
				Note: fmt.Sprintf("a sequence of %d tokens, %s", tokens, cache.Layout)},
			{Name: "system and process", Bytes: hostBytes, Note: "assumed"}}}
	if h.Stream > 0 {
		h.Tokens = h.Stream * 1e9 / float64(h.TokenBytes)
	}
	if sum := h.sum(); sum > memory {
		return nil, fmt.Errorf("%s on %s: %w: weights %s, cache %s and system %s take %s, but the machine has %s: "+
			"weights would be read from the disk for every token; use a machine with more memory, or a GGUF file in "+
			"fewer bits (docs/gguf.md)", s.Checkpoint, asked, ErrNoRoom, unit.Bytes(h.Parts[0].Bytes),
			unit.Bytes(h.Parts[1].Bytes), unit.Bytes(h.Parts[2].Bytes), unit.Bytes(sum), unit.Bytes(memory))
	}
	return h, nil
}

// onHost returns the losses without those that apply only to a GPU.
func onHost(losses []string) []string {
	return slices.DeleteFunc(slices.Clone(losses), func(l string) bool {
		return strings.HasPrefix(l, "GPUs:") || strings.Contains(l, " on GPUs:")
	})
}

func (h *Host) sum() (bytes int64) {
	for _, p := range h.Parts {
		bytes += p.Bytes
	}
	return bytes
}

// Print writes the memory use with the sums of its parts.
func (h *Host) Print(w io.Writer) error {
	sayAssumed(w, h.Assumed)
	fmt.Fprintf(w, "%s on %s: it fits, and runs on the CPU. This is computed; nothing was run.\n\n", h.Model, h.Machine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "memory of the machine: %s of %s\n", unit.Bytes(h.sum()), unit.Bytes(h.Memory))
	for _, p := range h.Parts {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", p.Name, unit.Bytes(p.Bytes), p.Note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\ndecode, batch 1: a token reads %s of weights", unit.Bytes(h.TokenBytes))
	if h.Stream > 0 {
		fmt.Fprintf(w, ", at %.0f GB/s at most %.1f tokens/s\n", h.Stream, h.Tokens)
	} else {
		fmt.Fprint(w, "; give the speed at which the cores read memory, as in cpu,64G,stream=90G, to see the highest "+
			"possible tokens/s "+
			"('sparrow bench kernels' measures it)\n")
	}
	for _, l := range h.Losses {
		fmt.Fprintf(w, "without %s\n", l)
	}
	return nil
}
