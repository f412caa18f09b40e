package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// invoke runs the program in this process and returns its exit status and output.
func invoke(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(context.Background(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// answer holds the fields of the output of `explain --json` that a script reads.
type answer struct {
	Error *struct {
		Code, Asked, Supported, Try, Command string
	}
	Config struct {
		KV, Prefill, Decode, Layout string
		Page                        int
		Chunk                       int `json:"chunked_prefill"`
	}
	Notices []struct{ Level, Rule, Text string }
	Plan    *struct {
		Key         string
		Collectives bool
		Runnable    bool
		Segments    []segment
	}
	Arrays  [][]array // one list for each segment
	Lengths []map[string]json.RawMessage
	Layer   *struct {
		Indexers []struct{ Kind string }
	}
}

type segment struct {
	Row, Form, Kernel, Layout, Convert, Transform, Variant string
	Rows                                                   int
	KernelRows                                             int  `json:"kernel_rows"`
	KernelHeads                                            int  `json:"kernel_heads"`
	RopeInKernel                                           bool `json:"rope_in_kernel"`
	SplitsFixed                                            bool `json:"splits_fixed"`
	Indexer                                                struct {
		Kind         string
		NextN        int `json:"next_n"`
		KernelN      int `json:"kernel_n"`
		Schedule     string
		RowsPerChunk int `json:"rows_per_chunk"`
		Chunks       int
	}
	Launches []struct{ Rows, Keys int }
	Reasons  []struct{ Rule, Text string }
	Rejected []struct{ Kernel, Reason string }
}

type array struct {
	Name  string
	Shape []int
}

// decode returns the answer in a JSON text; unknown fields are allowed, but wrong types fail the test.
func decode(t *testing.T, text string) *answer {
	t.Helper()
	a := &answer{}
	if err := json.Unmarshal([]byte(text), a); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return a
}

// facts returns the values of an answer by the names that expectations use.
func (a *answer) facts() map[string]string {
	f := map[string]string{}
	if a.Error != nil {
		f["code"] = a.Error.Code
		return f
	}
	c := &a.Config
	f["kv"], f["prefill"], f["decode"], f["layout"], f["page"] = c.KV, c.Prefill, c.Decode, c.Layout, fmt.Sprint(c.Page)
	for _, n := range a.Notices {
		f["notice"] += n.Level + ":" + strings.ReplaceAll(n.Rule, " ", "-") + ";"
	}
	if a.Layer != nil && len(a.Layer.Indexers) > 0 {
		f["layer"] = a.Layer.Indexers[0].Kind
	}
	if a.Plan == nil {
		return f
	}
	f["collectives"], f["runnable"], f["segments"] = fmt.Sprint(a.Plan.Collectives), fmt.Sprint(a.Plan.Runnable),
		fmt.Sprint(len(a.Plan.Segments))
	if len(a.Plan.Segments) > 0 {
		a.Plan.Segments[0].facts(f)
	}
	if len(a.Arrays) > 0 {
		for _, x := range a.Arrays[0] {
			f["array:"+x.Name] = strings.ReplaceAll(fmt.Sprint(x.Shape), " ", ",")
		}
	}
	if len(a.Lengths) > 0 {
		for name, v := range a.Lengths[0] {
			var compact bytes.Buffer
			if json.Compact(&compact, v) == nil {
				f[name] = strings.Trim(compact.String(), "[]")
			}
		}
	}
	return f
}

func (s *segment) facts(f map[string]string) {
	f["form"], f["kernel"], f["convert"], f["transform"], f["variant"], f["rows-layout"] = s.Form, s.Kernel, s.Convert,
		s.Transform, s.Variant, s.Layout
	f["rows"], f["kernel-rows"], f["heads"] = fmt.Sprint(s.Rows), fmt.Sprint(s.KernelRows), fmt.Sprint(s.KernelHeads)
	f["rope-in-kernel"], f["splits-fixed"] = fmt.Sprint(s.RopeInKernel), fmt.Sprint(s.SplitsFixed)
	f["indexer"], f["next-n"], f["kernel-n"], f["schedule"] = s.Indexer.Kind, fmt.Sprint(s.Indexer.NextN),
		fmt.Sprint(s.Indexer.KernelN), s.Indexer.Schedule
	f["chunk"], f["chunks"] = fmt.Sprint(s.Indexer.RowsPerChunk), fmt.Sprint(s.Indexer.Chunks)
	var rows []string
	keys := 0
	for _, l := range s.Launches {
		rows = append(rows, fmt.Sprint(l.Rows))
		keys += l.Keys
	}
	f["launches"], f["keys"] = strings.Join(rows, "+"), fmt.Sprint(keys)
	for _, r := range s.Reasons {
		f["reasons"] += strings.ReplaceAll(r.Rule, " ", "-") + ";"
	}
}

// expect checks facts against expectations that are separated by spaces: name=value, name~part (the value contains
// part), or name! (the name is absent).
func expect(t *testing.T, f map[string]string, wants string) {
	t.Helper()
	for _, w := range strings.Fields(wants) {
		if name, ok := strings.CutSuffix(w, "!"); ok {
			if v, there := f[name]; there {
				t.Errorf("%s is there: %s", name, v)
			}
			continue
		}
		if name, part, ok := strings.Cut(w, "~"); ok {
			if !strings.Contains(f[name], part) {
				t.Errorf("%s is %q, want something with %q", name, f[name], part)
			}
			continue
		}
		name, value, _ := strings.Cut(w, "=")
		if v, there := f[name]; !there || v != value {
			t.Errorf("%s is %q, want %q", name, v, value)
		}
	}
	if t.Failed() {
		names := []string{}
		for n, v := range f {
			names = append(names, n+"="+v)
		}
		slices.Sort(names)
		t.Log(strings.Join(names, "\n"))
	}
}
