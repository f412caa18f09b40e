package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// Every number of a report is written at its place, in all formats.
func TestTableOfReports(t *testing.T) {
	var lines []string
	say := func(title string, r *Report) {
		var text, md, kernels, svg bytes.Buffer
		err := errors.Join(r.Print(&text), r.Markdown(&md), r.PrintKernels(&kernels), r.Plot().Write(&svg))
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Report
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if twice, err := json.Marshal(&again); err != nil || !bytes.Equal(twice, data) {
			t.Errorf("%s: JSON that is read again is\n%s, %v, want\n%s", title, twice, err, data)
		}
		for _, part := range []struct {
			name string
			text []byte
		}{{"text", text.Bytes()}, {"Markdown", md.Bytes()}, {"kernels", kernels.Bytes()}, {"chart", svg.Bytes()},
			{"JSON", data}} {
			lines = append(lines, title+": "+part.name)
			for line := range strings.Lines(string(part.text)) {
				lines = append(lines, "  "+strings.TrimRight(line, "\n"))
			}
		}
	}
	full := &Report{}
	table.Fill(full)
	for _, p := range full.phases() {
		p.Reads.Bytes, p.Reads.HeadBytes = p.Reads.Bytes<<30, p.Reads.HeadBytes<<28
		for i := range p.Kernels {
			p.Kernels[i].Bytes <<= 20
		}
	}
	full.judge()
	say("on a GPU, and a reason why it was not measured", full)
	for i := range full.Cells {
		full.Cells[i].Skipped = ""
	}
	for _, p := range full.phases() {
		p.Launches, p.OverlapMs = 0, 0
	}
	full.Load.Mapped, full.Packed, full.Precise, full.DenseOff, full.Deterministic = false, false, false, false, false
	full.Plain, full.Experts, full.Drafts, full.Accept = "", nil, nil, nil
	full.Flat, full.Pause.Worst, full.Targets = &Flat{ShallowMs: 2, DeepMs: 2.3}, 19.99, nil
	full.judge()
	say("on a CPU", full)
	if c := full.cell(full.Cells[1].Context, full.Cells[1].Batch); c != &full.Cells[1] {
		t.Errorf("cell %v", c)
	}
	say("empty", &Report{})
	table.Check(t, "reports.txt", lines)
}

// phases returns all phases of the report.
func (r *Report) phases() (list []*Phase) {
	for i := range r.Cells {
		c := &r.Cells[i]
		list = append(list, c.Decode, c.Prefill, c.Draft, c.Verify)
	}
	for i := range r.Prompts {
		list = append(list, r.Prompts[i].Time)
	}
	return list
}
