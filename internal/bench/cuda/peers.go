package bench

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Peer holds another engine's time for the same work on the same kind of GPU.
type Peer struct {
	Name   string
	Micros float64
}

//go:embed peers.tsv
var peerTimes string

// peers returns the times of other engines; the key is a case's name and shape separated by a tab.
func peers() (map[string]Peer, error) {
	out := map[string]Peer{}
	for line := range strings.Lines(peerTimes) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "\t")
		if len(cells) != 4 {
			return nil, fmt.Errorf("bench: peers.tsv: %q has %d cells, want engine, case, shape and time", line,
				len(cells))
		}
		us, err := strconv.ParseFloat(cells[3], 64)
		if err != nil {
			return nil, fmt.Errorf("bench: peers.tsv: %q: %w", line, err)
		}
		out[cells[1]+"\t"+cells[2]] = Peer{cells[0], us}
	}
	return out, nil
}

// overlap is appended to the shapes of cases whose launches overlap. Times of peers are listed without it.
const overlap = ", overlapping"

func (c *Case) peerKey() string { return c.Name + "\t" + strings.TrimSuffix(c.Shape, overlap) }
