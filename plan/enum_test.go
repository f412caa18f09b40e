package plan

import (
	"encoding"
	"encoding/json"
	"strings"
	"testing"

	"sparrow/layout"
)

// checkEnum checks that every name of an enum is parsed back to its value, and that unknown names and values are
// refused.
func checkEnum[T ~uint8, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, e *enum[T]) {
	t.Run(e.noun, func(t *testing.T) {
		for i, word := range e.words {
			text, err := any(T(i)).(encoding.TextMarshaler).MarshalText()
			if err != nil || string(text) != word {
				t.Errorf("value %d is written %q, %v; want %q", i, text, err, word)
			}
			var back T
			if err := P(&back).UnmarshalText(text); err != nil || back != T(i) {
				t.Errorf("%q is read as %d, %v; want %d", text, back, err, i)
			}
			want(t, "string", e.text(T(i)), word)
		}
		if _, err := any(T(200)).(encoding.TextMarshaler).MarshalText(); err == nil {
			t.Error("value 200 was written")
		}
		if text := e.text(T(200)); text == "" {
			t.Error("value 200 has no text")
		}
		var v T
		if err := P(&v).UnmarshalText([]byte("no such word")); err == nil {
			t.Error("a stranger was read")
		}
	})
}

func TestEnumsAreClosed(t *testing.T) {
	checkEnum[Mode](t, &modes)
	checkEnum[RowKind](t, &rowKinds)
	checkEnum[Form](t, &forms)
	checkEnum[Transform](t, &transforms)
	checkEnum[Convert](t, &converts)
	checkEnum[IndexerKind](t, &indexerKinds)
	checkEnum[GraphMode](t, &graphModes)
	checkEnum[Variant](t, &variants)
	checkEnum[Switch](t, &switches)
	checkEnum[DType](t, &dtypes)
	checkEnum[Layout](t, &layouts)
	checkEnum[Kernel](t, &kernels)
	checkEnum[Phase](t, &phases)
	checkEnum[Catalog](t, &catalogs)
	checkEnum[SparsePrefill](t, &sparsePrefills)
	checkEnum[Schedule](t, &schedules)
	checkEnum[KeySplit](t, &keySplits)
	checkEnum[NoticeLevel](t, &noticeLevels)
	checkEnum[Arch](t, &archs)
	checkEnum[Family](t, &families)
}

// TestLayoutsHaveOneSpelling checks that package layout uses the same names for layouts as package plan.
func TestLayoutsHaveOneSpelling(t *testing.T) {
	for _, l := range []Layout{BF16Row1152, FP8Row656, FP8Row576, F32Row2304, IndexPage132, IndexF32Row512} {
		kind, err := layout.ParseKind(l.String())
		if err != nil || kind.String() != l.String() {
			t.Errorf("%s is %v there: %v", l, kind, err)
		}
	}
	for alias, l := range map[string]Layout{"BF16_576": BF16Row1152, "FP8_BLOCK_656": FP8Row656,
		"FP8_RAW_576": FP8Row576, "V4_PACKED_584": V4Row584, "INDEX_132": IndexPage132} {
		var got Layout
		if err := got.UnmarshalText([]byte(alias)); err != nil || got != l {
			t.Errorf("%s is %s, %v; want %s", alias, got, err, l)
		}
	}
}

func TestPresets(t *testing.T) {
	for _, name := range strings.Split(archs.list(), ", ") {
		if hw, err := HardwareFor(name); err != nil || hw.Arch.String() != name {
			t.Errorf("%s is %s, %v", name, hw.Arch, err)
		}
	}
	for device, arch := range map[string]Arch{"h100": SM90, "H200": SM90, "b200": SM100, "a100": SM80} {
		if hw, err := HardwareFor(device); err != nil || hw.Arch != arch {
			t.Errorf("%s is %s, %v; want %s", device, hw.Arch, err, arch)
		}
	}
	for device, want := range map[string][2]int64{"h20": {78, 96}, "h100": {132, 80}, "h200": {132, 141}, "l4": {58,
		24},
		"sm90": {132, 141}} {
		hw, err := HardwareFor(device)
		if err != nil || int64(hw.SMs) != want[0] || hw.MemoryBytes != want[1]*gb {
			t.Errorf("%s has %d multiprocessors and %d bytes, %v; want %v", device, hw.SMs, hw.MemoryBytes, err, want)
		}
	}
	if _, err := HardwareFor("tpu"); err == nil {
		t.Error("a tpu was found")
	}
	for _, name := range ModelNames() {
		m, err := ModelFor(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := ModelFor("gpt-2")
	if err == nil || !strings.Contains(err.Error(), "supported: deepseek-v3.2, deepseek-v3.2-exp, glm-5, glm-5.1, ") {
		t.Errorf("gpt-2: %v, want it to begin with the names of releases", err)
	}
	for _, name := range ModelNames() {
		if err == nil || !strings.Contains(err.Error()+",", " "+name+",") &&
			!strings.Contains(err.Error(), " "+name+";") {
			t.Errorf("gpt-2: %v, want it to list %s", err, name)
		}
	}
	for _, spelling := range []string{"GLM-5", "glm_5", " glm-moe-dsa", "DeepSeek-V4"} {
		if _, err := ModelFor(spelling); err != nil {
			t.Error(err)
		}
	}
	t.Run("two callers share no memory", func(t *testing.T) {
		a, b := hardware(t, "sm90"), hardware(t, "sm90")
		a.NativeNextN[0] = 99
		want(t, "native width", b.NativeNextN[0], 2)
	})
	t.Run("v4-pro has 30 layers of ratio 4 and 31 of 128", func(t *testing.T) {
		m := model(t, "deepseek_v4-pro", 128)
		count := map[int]int{}
		for _, r := range m.Ratios {
			count[r]++
		}
		want(t, "ratio 4", count[4], 30)
		want(t, "ratio 128", count[128], 31)
	})
}

func TestErrorsAreWrittenAsJSON(t *testing.T) {
	e := newSetup(t, "gfx95", kv("fp8")).refused(t, E01)
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var back Error
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	want(t, "code", back.Code, E01)
	want(t, "tried", len(back.Tried), len(e.Tried))
	want(t, "message", back.Error(), e.Error())
}
