package op

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/ops"
	tables "sparrow/internal/testkit/table"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// memory matches the numbers of memory without a name.
var memory = regexp.MustCompile(`\bm\d+`)

// place is a named range of device memory.
type place struct {
	name       string
	first, end cuda.Ptr
}

// Each operation launches the kernels that the golden table lists, with the grids and arguments of the table: a wrong
// tensor, stride, number of rows, scale or flag changes a line. Addresses are shown as offsets in tensors; other
// memory, such as scratch and weights, is numbered. A third table lists the strides of tensors whose rows are apart, by
// a different distance in each, as far as an operation allows it.
func TestTableOfLaunches(t *testing.T) {
	for _, tier := range []struct {
		name  string
		major int
		apart bool
		every bool // all fields of arguments are listed, including the packing of weights
	}{{"hopper", 9, false, true}, {"portable", 8, false, true}, {"apart", 9, true, false}} {
		gpu := cuda.OpenDetached(cuda.Properties{Name: "detached", Major: tier.major, SMs: 132,
			SharedOptinBytes: 232448, MemoryBytes: 1 << 37, ClusterLaunch: tier.major == 9})
		d, err := On(gpu)
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{"weights"}
		var places []place
		m := &ops.Maker{TB: t, Memory: d, Preparer: d, Activation: kernel.BF16, Apart: tier.apart,
			Formats: tier.every,
			Made: func(name string, x kernel.Tensor) {
				places = append(places, place{name, at(x), at(x).Add(x.Extent())})
			}}
		places = append(places, place{"faults", d.faults.Ptr(), d.faults.Ptr().Add(1)})
		other := map[cuda.Ptr]string{}
		named := func(p cuda.Ptr) string {
			if p == 0 {
				return "0"
			}
			for _, x := range places {
				if p >= x.first && p < x.end {
					return fmt.Sprintf("%s+%d", x.name, p-x.first)
				}
			}
			if other[p] == "" {
				other[p] = fmt.Sprintf("m%d", len(other))
			}
			return other[p]
		}
		listed := func(field string) bool { return tier.every || strings.HasSuffix(field, "Stride") }
		gpu.Watch(func(kernel string, l cuda.Launch, args any) {
			shape := ""
			if tier.every {
				shape = fmt.Sprintf(" grid %v block %v shared %d cluster %v", l.Grid, l.Block, l.Shared, l.Cluster)
			}
			line := "  " + kernel + shape + written(reflect.ValueOf(args), "", named, listed)
			lines = append(lines, line)
		})
		all := m.All()
		seen := map[string]bool{} // the experts of a layer are packed one after the other, with other addresses
		lines = slices.DeleteFunc(lines, func(line string) bool {
			line = memory.ReplaceAllString(line, "")
			again := seen[line] || !tier.every
			seen[line] = true
			return again
		})
		for _, c := range all {
			lines = append(lines, c.Name)
			clear(other)
			if err := kernel.Do(d, c.Op); err != nil {
				lines = append(lines, "  refused "+tables.Facts(err.Error()))
			}
			if err := d.Sync(); err != nil { // launches held operations
				t.Fatal(err)
			}
		}
		gpu.Watch(nil)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		tables.Check(t, "launches-"+tier.name+".txt", lines)
	}
}

// Each tensor of each operation is accepted or refused as in the golden table if its rows are apart, if it begins at
// its second element, and if it has another type: a requirement that is removed, or one of another tensor, changes a
// line.
func TestTableOfRequirements(t *testing.T) {
	d, err := On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	m := &ops.Maker{TB: t, Memory: d, Preparer: d, Activation: kernel.BF16}
	of := func(x kernel.Tensor, d kernel.DType, rows, cols int) kernel.Tensor {
		out, err := kernel.New(m.Memory, d, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		out.Rows, out.Cols = x.Rows, x.Cols
		return out
	}
	other := map[kernel.DType]kernel.DType{kernel.F32: kernel.BF16, kernel.BF16: kernel.F32}
	var lines []string
	for _, c := range m.All() {
		op := reflect.New(reflect.TypeOf(c.Op)).Elem()
		op.Set(reflect.ValueOf(c.Op))
		line := c.Name + ":"
		eachTensor(op, "", func(path string, f reflect.Value) {
			x := f.Interface().(kernel.Tensor)
			shifted := of(x, x.DType, x.Rows+1, x.Cols)
			shifted.Off += int64(x.DType.Size())
			wrong := map[string]kernel.Tensor{"apart": of(x, x.DType, x.Rows, x.Cols+16), "shifted": shifted}
			if to, ok := other[x.DType]; ok {
				wrong["type"] = of(x, to, x.Rows, x.Cols)
			}
			for _, name := range slices.Sorted(maps.Keys(wrong)) {
				f.Set(reflect.ValueOf(wrong[name]))
				if kernel.Do(d, op.Interface().(kernel.Op)) != nil {
					line += " " + path + " " + name
				}
				f.Set(reflect.ValueOf(x))
				if err := d.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		})
		lines = append(lines, line)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	tables.Check(t, "requirements.txt", lines)
}

// eachTensor calls visit for each given tensor of a struct.
func eachTensor(v reflect.Value, path string, visit func(path string, f reflect.Value)) {
	for i := range v.NumField() {
		switch f, name := v.Field(i), path+v.Type().Field(i).Name; {
		case f.Type() == reflect.TypeFor[kernel.Tensor]():
			if f.Interface().(kernel.Tensor).Given() {
				visit(name, f)
			}
		case f.Kind() == reflect.Struct:
			eachTensor(f, name+".", visit)
		}
	}
}

// Each argument that an operation gives to a launcher is accepted or refused as in the golden table if it is missing,
// negative, too large, or has another alignment.
func TestTableOfRefusedLaunches(t *testing.T) {
	gpu := cuda.OpenDetached(cuda.H200)
	d, err := On(gpu)
	if err != nil {
		t.Fatal(err)
	}
	m := &ops.Maker{TB: t, Memory: d, Preparer: d, Activation: kernel.BF16}
	all := m.All()
	given := map[reflect.Type]reflect.Value{} // the first arguments of each type
	gpu.Watch(func(_ string, _ cuda.Launch, args any) {
		if v := reflect.ValueOf(args); !given[v.Type()].IsValid() {
			given[v.Type()] = v
		}
	})
	for _, c := range all {
		_ = kernel.Do(d, c.Op) // TestTableOfLaunches lists what is refused
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	gpu.Watch(nil)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(launchers)) {
		call := reflect.ValueOf(launchers[name])
		typ := call.Type().In(2).Elem()
		if !given[typ].IsValid() {
			continue
		}
		args := reflect.New(typ)
		launch := func() string {
			out := call.Call([]reflect.Value{reflect.ValueOf(d.kernels), reflect.ValueOf(d.stream), args})
			if err, _ := out[0].Interface().(error); err != nil {
				return "refused"
			}
			return "taken"
		}
		set := given[typ]
		args.Elem().Set(set)
		if launch() != "taken" { // another launcher takes these arguments
			continue
		}
		for _, line := range tables.Numbers(name, args.Elem(), func() string {
			changed := reflect.New(set.Type()).Elem()
			changed.Set(args.Elem()) // launchers may change their arguments
			defer args.Elem().Set(changed)
			return launch()
		}) {
			// Addresses of this process are no part of the table.
			lines = append(lines, address.ReplaceAllString(line, "address"))
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	tables.Check(t, "refusals.txt", lines)
}

// address matches addresses of a detached device.
var address = regexp.MustCompile(`\b1\d{12}\b`)

// written returns those nonzero fields of launch arguments that are listed as text.
func written(v reflect.Value, path string, named func(cuda.Ptr) string, listed func(field string) bool) string {
	var out strings.Builder
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case f.IsZero():
		case f.Type() == reflect.TypeFor[cuda.TensorMap]():
			m := f.Interface().(cuda.TensorMap)
			base, dims, strides := m.Plain()
			fmt.Fprintf(&out, " %s %s %v by %v", name, named(base), dims, strides)
		case f.Kind() != reflect.Struct && f.Kind() != reflect.Array && !listed(name):
		case f.Type() == reflect.TypeFor[cuda.Ptr]():
			fmt.Fprintf(&out, " %s %s", name, named(cuda.Ptr(f.Uint())))
		case f.Kind() == reflect.Struct:
			out.WriteString(written(f, name+".", named, listed))
		case f.Kind() == reflect.Array && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				out.WriteString(written(f.Index(j), fmt.Sprintf("%s[%d].", name, j), named, listed))
			}
		default:
			fmt.Fprintf(&out, " %s %v", name, f)
		}
	}
	return out.String()
}

// A batch without rows is accepted. If an operation launches a kernel nevertheless, that kernel processes other rows.
func TestBatchesWithoutRows(t *testing.T) {
	gpu := cuda.OpenDetached(cuda.H200)
	d, err := On(gpu)
	if err != nil {
		t.Fatal(err)
	}
	launches := 0
	m := &ops.Maker{TB: t, Memory: d, Preparer: d, Activation: kernel.BF16, Empty: true}
	all := m.All()
	gpu.Watch(func(string, cuda.Launch, any) { launches++ })
	for _, c := range all {
		launches = 0
		err := kernel.Do(d, c.Op)
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		want := 0
		switch a := c.Op.(type) {
		case kernel.GatherArgs, kernel.UnpackArgs, kernel.IndexGatherArgs, kernel.ConvertArgs, kernel.ScoreArgs,
			kernel.CompressArgs:
			want = 1
		case kernel.DualArgs:
			want = min(a.Q.Rows, 1)
		case kernel.DeltaArgs:
			if a.Chunk > 0 {
				continue // the device has no chunked form
			}
		}
		if err != nil || launches != want {
			t.Errorf("%s: %d launches, want %d, error %v", c.Name, launches, want, err)
		}
	}
	gpu.Watch(nil)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// launchers are the launchers of package cuda whose arguments are one struct, except those in listed.
var launchers = map[string]any{
	"AcceptDrafts": cuda.AcceptDrafts, "AddAndMultiply": cuda.AddAndMultiply, "AllReduce": cuda.AllReduce,
	"BlockMax": cuda.BlockMax,
	"Collapse": cuda.Collapse, "CombineExperts": cuda.CombineExperts, "Convolve": cuda.Convolve, "Delta": cuda.Delta,
	"DrawValues": cuda.DrawValues, "Engram": cuda.Engram, "FetchExperts": cuda.FetchExperts, "Fold": cuda.Fold,
	"GateQuantise": cuda.GateQuantise, "GatedNorm": cuda.GatedNorm, "GatherIndexSlots": cuda.GatherIndexSlots,
	"GatherRanks": cuda.GatherRanks, "GatherV4Slots": cuda.GatherV4Slots, "HeadNormTurn": cuda.HeadNormTurn,
	"HyperPostSum": cuda.HyperPostSum, "LayerNorm": cuda.LayerNorm, "Locate": cuda.Locate,
	"LookUpPlaces": cuda.LookUpPlaces, "MeanStreams": cuda.MeanStreams, "MergeBlocks": cuda.MergeBlocks,
	"MixNorm":  cuda.MixNorm,
	"MoveRows": cuda.MoveRows, "Multiply": cuda.Multiply, "MultiplyFolded": cuda.MultiplyFolded,
	"MultiplyLowRank": cuda.MultiplyLowRank, "MultiplyPacked": cuda.MultiplyPacked,
	"NormQuantise": cuda.NormQuantise, "PartIDs": cuda.PartIDs, "Parts": cuda.Parts, "PostRows": cuda.PostRows,
	"PrepareQueriesV41": cuda.PrepareQueriesV41, "PutFour": cuda.PutFour, "PutRows": cuda.PutRows,
	"QuantiseRows": cuda.QuantiseRows, "QuantiseTurned": cuda.QuantiseTurned, "RMSNorm": cuda.RMSNorm,
	"RawToBlockPages": cuda.RawToBlockPages, "RawToBlockSlots": cuda.RawToBlockSlots, "ReadTable": cuda.ReadTable,
	"ReduceScatter": cuda.ReduceScatter, "ScoreV41": cuda.ScoreV41, "SparseAttendFlat": cuda.SparseAttendFlat,
	"SpreadPools": cuda.SpreadPools, "StepStreams": cuda.StepStreams, "TakeResults": cuda.TakeResults,
	"Turn": cuda.Turn, "WaitForHost": cuda.WaitForHost,
	"WidenWeight": cuda.WidenWeight, "WriteKeysV41": cuda.WriteKeysV41,
}

// listed are the launchers that the table of package cuda has.
var listed = []string{
	"CombineV4", "CompressGroups", "ComputeAngles", "FindCandidates", "GateRows", "HeadNorm", "HyperMix",
	"HyperPost", "PickRows", "PrepareIndexQueries", "RouteExperts", "SampleRows", "SelectTopK", "SelectedScores",
	"TallyChoices", "WriteIndexKeys", "WriteV4",
}

// Every launcher of package cuda whose arguments are one struct is in one of the two tables.
func TestEveryLauncherIsListed(t *testing.T) {
	files, err := filepath.Glob("../../../kernel/cuda/*.go")
	if err != nil {
		t.Fatal(err)
	}
	launcher := regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(k \*Kernels, s \*Stream, \w+ \*\w+\) error`)
	found := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range launcher.FindAllSubmatch(text, -1) {
			if found++; launchers[string(m[1])] == nil && !slices.Contains(listed, string(m[1])) {
				t.Errorf("%s: the launcher %s is in no table", filepath.Base(f), m[1])
			}
		}
	}
	if want := len(launchers) + len(listed); found != want {
		t.Errorf("%d launchers were found, want %d", found, want)
	}
}
