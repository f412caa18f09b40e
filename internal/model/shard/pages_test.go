package shard

import (
	"reflect"
	"slices"
	"testing"

	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// paged is the model of a rank with two tensors in each page and one in each window page; it computes nothing.
type paged struct {
	part
	memory kernel.HostBuffer
	how    plan.Division
}

func (p *paged) Facts() plan.Model { return plan.Model{Ranks: 3, Division: p.how} }

func (p *paged) PageParts(parts []kernel.Tensor, page int) []kernel.Tensor {
	return append(parts, kernel.Tensor{Buf: p.memory, Off: int64(page)},
		kernel.Tensor{Buf: p.memory, Off: int64(100 + page)})
}

func (p *paged) WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor {
	return append(parts, kernel.Tensor{Buf: p.memory, Off: int64(200 + window)})
}

// If ranks divide attention by requests, the memory of a page is that of the rank that has it, at the rank's own page
// number. Otherwise it is that of all ranks, at the same offset.
func TestTheMemoryOfPages(t *testing.T) {
	for _, how := range []plan.Division{plan.ByRequests, plan.ByHeads} {
		m := ranks{pages: 5, windows: 4}
		var all []kernel.Buffer
		for range 3 {
			memory := make(kernel.HostBuffer, 1)
			m.parts, all = append(m.parts, &paged{memory: memory, how: how}), append(all, memory)
		}
		before := kernel.Tensor{Off: 7}
		for page := range 15 {
			got := m.PageParts([]kernel.Tensor{before}, page)
			want := []kernel.Tensor{before}
			for _, off := range []int{0, 100} {
				x := kernel.Tensor{Buf: group.Join(all), Off: int64(off + page)}
				if how == plan.ByRequests {
					x = kernel.Tensor{Buf: group.Alone(page/5, all[page/5]), Off: int64(off + page%5)}
				}
				want = append(want, x)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%v: page %d is in %v, want %v", how, page, got, want)
			}
		}
		for window := range 12 {
			want := kernel.Tensor{Buf: group.Join(all), Off: int64(200 + window)}
			if how == plan.ByRequests {
				want = kernel.Tensor{Buf: group.Alone(window/4, all[window/4]), Off: int64(200 + window%4)}
			}
			got := m.WindowParts([]kernel.Tensor{before}, window)
			if !reflect.DeepEqual(got, []kernel.Tensor{before, want}) {
				t.Fatalf("%v: window page %d is in %v, want %v", how, window, got[1:], want)
			}
		}
	}
}

// The page and window tables of each request are converted to the page numbers of its rank. The caller's tables are
// unchanged, negative numbers stay, and the tables of a later batch do not contain those of an earlier one.
func TestTablesOfARank(t *testing.T) {
	p := &pass{m: &ranks{pages: 10, windows: 4}}
	batch := &plan.Batch{Requests: []plan.Request{{}, {Rank: 2}, {Rank: 1}, {Rank: 1}}}
	for range 2 {
		in := &model.Input{}
		in.Tables = [][]int32{{3, 4}, {20, 29, 21}, {10}, nil}
		in.Windows = [][]int32{{1, -1}, {-1, 8, 11}, {4, 7}, nil}
		in.Batch.Batch = batch
		given := []int32{20, 29, 21}
		out := p.localise(in)
		if want := [][]int32{{3, 4}, {0, 9, 1}, {0}, nil}; !reflect.DeepEqual(out.Tables, want) {
			t.Errorf("page tables %v, want %v", out.Tables, want)
		}
		if want := [][]int32{{1, -1}, {-1, 0, 3}, {0, 3}, nil}; !reflect.DeepEqual(out.Windows, want) {
			t.Errorf("window tables %v, want %v", out.Windows, want)
		}
		if !slices.Equal(in.Tables[1], given) || out.Batch.Batch != batch {
			t.Errorf("the caller's table became %v, want %v", in.Tables[1], given)
		}
		batch = &plan.Batch{Requests: slices.Clone(batch.Requests)}
	}
}
