package estimate

import (
	"fmt"
	"math"

	"sparrow/model/placement"
)

// split is the experts of a model in two memories.
type split struct {
	ask       placement.Ask
	placement *placement.Placement
	method    [2]placement.Method // of experts in host memory: of decodes, and of prompts
	ranks     float64
}

// share is the share of rows that choose an expert.
func (s *split) share(layer, expert int) float64 {
	if s.ask.Usage != nil {
		return s.ask.Usage.Share(layer, expert)
	}
	return float64(s.ask.Chosen) / float64(s.ask.Layers[layer]) / s.ranks
}

// over adds up a layer's experts in one of the memories: how many are read for that many rows, and how many a row
// chooses.
func (s *split) over(layer int, rows float64, resident bool) (read, used float64) {
	for e, m := range s.placement.Decode[layer] {
		if (m == placement.Resident) == resident {
			p := s.share(layer, e)
			read += 1 - math.Pow(1-p, rows)
			used += p
		}
	}
	return read * s.ranks, used * s.ranks
}

// method is that of the batch for experts in host memory.
func (p *parts) method() placement.Method {
	if p.decodes == 0 {
		return p.split.method[1]
	}
	return p.split.method[0]
}

// onHost adds the time that experts of a layer in host memory take longer than what the device computes beside them.
func (p *parts) onHost(l int, beside float64) {
	s := p.split
	read, used := s.over(l, p.rows, false)
	n := float64(len(s.placement.OnHost(l))) * s.ranks
	method := p.method()
	if read == 0 || p.decodes == 0 && method == placement.Fetched { // streamed beside the layer before: see stream
		return
	}
	each := s.ask.TimesOf(p.rows*used/read, false)
	micros, start, text := each.Computed, s.ask.Bus.Wait+2*p.rows*p.all.hidden*2/s.ask.Bus.Rate, ""
	if method == placement.Fetched {
		micros, start = each.Fetched/s.ranks, 0
		text = fmt.Sprintf("%.0f us for each expert that is fetched", micros)
	} else {
		text = fmt.Sprintf("rows to the host and back %.0f us, %.0f us for each expert that the CPU computes", start,
			micros)
	}
	p.add("experts of the host", excess(n, read/n, start, micros, beside), text+", less what the device computes "+
		"beside them; the mean over how many of a layer are chosen")
}

// stream adds the time that a prompt's streamed experts take longer than the layer that computes meanwhile.
func (p *parts) stream(l int, layer float64) {
	s := p.split
	if s == nil || p.decodes > 0 || p.all.layers[l] == 0 || s.method[1] != placement.Fetched {
		return
	}
	read, _ := s.over(l, p.rows, false)
	copied := read / s.ranks * float64(s.ask.Bytes) / s.ask.Bus.Rate
	p.add("experts of the host", max(0, copied-layer), fmt.Sprintf("bytes of experts that are streamed / %.0f GB/s, "+
		"less the layer that computes meanwhile", s.ask.Bus.Rate/1e3))
}

// excess is the mean of max(0, start + k each - beside), where k of n experts are chosen, each with probability q, and
// none starts nothing.
func excess(n, q, start, each, beside float64) float64 {
	mean := 0.0
	for k := 1.0; k <= n; k++ {
		mean += binomial(n, k, q) * max(0, start+k*each-beside)
	}
	return mean
}

// binomial is the probability of k of n.
func binomial(n, k, q float64) float64 {
	if q >= 1 {
		if k == n {
			return 1
		}
		return 0
	}
	lg := func(x float64) float64 {
		v, _ := math.Lgamma(x + 1)
		return v
	}
	return math.Exp(lg(n) - lg(k) - lg(n-k) + k*math.Log(q) + (n-k)*math.Log1p(-q))
}
