package main

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// encodings returns every instruction with registers of both halves of each register file and with every form of
// address.
func encodings() []instruction {
	var all []instruction
	addresses := []memory{
		{base: "AX"}, {base: "R13"}, {base: "BP"}, {base: "R12"}, {base: "SP"}, {base: "BX", disp: 64},
		{base: "R9", disp: -64}, {base: "SI", disp: 0x1000},
	}
	for _, m := range addresses {
		all = append(all, ldtilecfg(m))
	}
	all = append(all, tilerelease())
	strided := []memory{
		{base: "AX", index: "BX"}, {base: "R8", index: "R15"}, {base: "R13", index: "CX"}, {base: "BP", index: "R12"},
		{base: "SP", index: "DX"}, {base: "SI", index: "R9", disp: 127}, {base: "DI", index: "R10", disp: -128},
		{base: "R12", index: "R11", disp: 1024}, {base: "R14", index: "DI", disp: -4096},
	}
	for t := range 8 {
		all = append(all, tilezero(t))
		for _, m := range strided {
			all = append(all, tileload(m, t), tileloadOnce(m, t), tilestore(t, m))
		}
		for i := 1; i < 7; i++ {
			// The three tiles must be different, otherwise the instruction is undefined.
			all = append(all, tdpbf16ps((t+i)%8, (t+i+1)%8, t), tdpbssd((t+i)%8, (t+i+1)%8, t))
		}
	}
	for _, r := range [][3]int{{0, 1, 2}, {7, 8, 9}, {15, 16, 17}, {31, 23, 24}, {8, 31, 16}} {
		all = append(all, narrowPair(r[0], r[1], r[2]), narrowOne(r[0], r[2]))
	}
	return all
}

// Every instruction has the encoding that GNU as produced; testdata/amx.txt holds these encodings.
func TestEncodingsAreThoseOfGNU(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "amx.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(golden)) {
		code, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[text] = code
	}
	for _, i := range encodings() {
		if got := hex.EncodeToString(i.bytes); got != want[i.text] {
			t.Errorf("%s: %s, want %s", i.text, got, want[i.text])
		}
	}
}

// If GNU as is installed, encodings are compared with its output. The golden file was made from such output.
func TestEncodingsAgainstTheAssemblerOfThisMachine(t *testing.T) {
	as, err := exec.LookPath("as")
	if err != nil {
		t.Skip("no GNU as on this machine; the golden file replaces it")
	}
	all := encodings()
	var source, wanted bytes.Buffer
	for _, i := range all {
		source.WriteString("\t" + i.text + "\n")
		wanted.Write(i.bytes)
	}
	object := filepath.Join(t.TempDir(), "amx.o")
	run := exec.Command(as, "--64", "-o", object, "-")
	run.Stdin = &source
	if out, err := run.CombinedOutput(); err != nil {
		t.Skipf("this as does not support the instructions: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	// The bytes are consecutive only in the text section.
	if !bytes.Contains(raw, wanted.Bytes()) {
		t.Fatal("GNU as encodes some instruction otherwise: compare objdump -d with testdata/amx.txt")
	}
}
