package verify_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/verify"
	"sparrow/weight"
)

// tensorsOf returns the header and the data of a safetensors file.
func tensorsOf(t *testing.T, path string) (header map[string]map[string]any, data []byte) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.Uint64(file)
	if err := json.Unmarshal(file[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	return header, file[8+size:]
}

// withHead returns a folder with the reference checkpoint and a random DSpark head.
func withHead(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer(`"num_nextn_predict_layers": 0`, `"num_nextn_predict_layers": 1`,
		`"dspark_block_size": 0`, `"dspark_block_size": 5`).Replace(string(text))
	c, err := synth.New("head", []byte(config), synth.Options{Seed: 1})
	random := filepath.Join(t.TempDir(), "random")
	if err == nil {
		err = c.Write(t.Context(), random, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	header, data := tensorsOf(t, filepath.Join(dir, "model.safetensors"))
	more, drawn := tensorsOf(t, filepath.Join(random, "model.safetensors"))
	for name, x := range more {
		if strings.HasPrefix(name, "mtp.") {
			at := x["data_offsets"].([]any)
			from, to := int(at[0].(float64)), int(at[1].(float64))
			x["data_offsets"] = []int{len(data), len(data) + to - from}
			header[name], data = x, append(data, drawn[from:to]...)
		}
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	head = append(head, strings.Repeat(" ", (8-len(head)%8)%8)...)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	out := t.TempDir()
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil { // the token map is among the golden outputs
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"config.json": []byte(config), "model.safetensors": append(file, data...)} {
		if err := errors.Join(os.Remove(filepath.Join(out, name)),
			os.WriteFile(filepath.Join(out, name), b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// tapped is a device that stores the means of residual streams.
type tapped struct {
	kernel.Device
	rows [][]float32 // the stored means, each [rows, hidden]
}

func (d *tapped) Do(op kernel.Op) error {
	if err := kernel.Do(d.Device, op); err != nil {
		return err
	}
	if a, ok := op.(kernel.HyperHeadArgs); ok {
		for r := range a.Out.Rows {
			row := make([]float32, a.Out.Cols)
			if err := kernel.ReadF32(d.Device, row, a.Out.Slice(r, r+1)); err != nil {
				return err
			}
			d.rows = append(d.rows, row)
		}
	}
	return nil
}

// The stages of a DSpark head read the same means of the streams that enter three layers as in the independent
// implementation.
func TestV41Taps(t *testing.T) {
	oracle := unpacked(t, "deepseek_v41-1")
	src, err := family.Open(withHead(t, oracle))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	host, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Precise: true, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	dev := &tapped{Device: host}
	defer host.Close()
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32", Speculation: plan.Speculation{Tokens: 6}})
	if err == nil {
		err = m.Allocate(&cfg, 4)
	}
	if err != nil {
		t.Fatal(err)
	}
	steps, err := step.New(m, cfg, step.Limits{Rows: 700, Requests: 1, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer steps.Close()
	golden, err := verify.ReadGolden(oracle)
	if err != nil {
		t.Fatal(err)
	}
	file, err := weight.OpenFile(filepath.Join(oracle, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	g := golden[0]
	x, _ := file.Tensor(g.Name + ".dspark_main")
	want, err := weight.ReadF32(x)
	if err != nil {
		t.Fatal(err)
	}
	state, err := m.(model.Stateful).NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer state.Release()
	dev.rows = nil
	n := len(g.Input)
	if _, err := steps.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: g.Input, Pages: []int32{3, 1, 2},
		State: state}}); err != nil {
		t.Fatal(err)
	}
	hidden := m.Config().Hidden
	if len(dev.rows) != 3*n || len(want) != 4*3*hidden {
		t.Fatalf("%d rows of means, want those of three layers of %d tokens", len(dev.rows), n)
	}
	for r := range 4 {
		for tap := range 3 {
			for c, v := range dev.rows[tap*n+n-4+r] {
				if w := want[(r*3+tap)*hidden+c]; !(math.Abs(float64(v-w)) <= 2e-3) {
					t.Fatalf("row %d, tap %d, value %d: %v, want %v", n-4+r, tap, c, v, w)
				}
			}
		}
	}
}
