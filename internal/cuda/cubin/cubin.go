// Package cubin reads the properties of a compiled kernel image: its kernels with their registers, shared and local
// memory and parameters, and the sizes and offsets of their argument structs. The input is the bytes of an ELF image,
// the output is plain values; neither a GPU nor a driver is needed.
//
// The layouts of structs are symbols that the kernel build tool adds to every image: sparrow_struct__NAME holds the
// size, and sparrow_field__NAME__INDEX__FIELD holds offset and size of one field, each as 32-bit words of initialised
// global memory. A source may also set the dynamic shared memory of a kernel's launches, in one word with the name
// KERNEL_shared.
package cubin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Kernel is one entry function of an image.
type Kernel struct {
	Name        string  `json:"name"`
	Registers   int     `json:"registers"`    // registers per thread
	SharedBytes int     `json:"shared_bytes"` // static bytes per block
	LocalBytes  int     `json:"local_bytes"`  // stack bytes per thread, for spills and indexed arrays
	Dynamic     int     `json:"dynamic"`      // dynamic shared bytes of a launch, if the source sets them
	MaxThreads  int     `json:"max_threads"`  // maximum threads of a block; 0 if the source sets no limit
	ParamBytes  int     `json:"param_bytes"`  // bytes of all parameters
	Params      []Param `json:"params"`
}

// Param is one parameter of a kernel.
type Param struct {
	Offset int `json:"offset"`
	Size   int `json:"size"`
}

// Struct is the memory layout of an argument struct on the device.
type Struct struct {
	Name   string  `json:"name"`
	Size   int     `json:"size"`
	Fields []Field `json:"fields"`
}

// Field is one member of a Struct.
type Field struct {
	Name   string `json:"name"`
	Offset int    `json:"offset"`
	Size   int    `json:"size"`
}

// Image holds the properties of a cubin.
type Image struct {
	Kernels []Kernel
	Structs []Struct
}

// Prefixes of the symbols that hold struct layouts.
const (
	StructPrefix = "sparrow_struct__"
	FieldPrefix  = "sparrow_field__"
)

// dynamicSuffix ends the name of the word that holds a kernel's dynamic shared memory.
const dynamicSuffix = "_shared"

// machineCUDA is the ELF machine number of NVIDIA device code.
const machineCUDA = 190

// reserved returns the bytes of shared memory of every block that the system uses. The linker includes them in a
// kernel's static shared memory: 1 KiB from compute capability 9 on. The capability is in the flags of the ELF header.
func reserved(data []byte) uint64 {
	const flags, least, bytes = 48, 90, 1024
	if arch := binary.LittleEndian.Uint32(data[flags:]) >> 8 & 0xFF; arch >= least {
		return bytes
	}
	return 0
}

// Parse reads the properties of an image.
func Parse(data []byte) (*Image, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cubin: %w", err)
	}
	if f.Machine != machineCUDA || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("cubin: the machine is %d and the class %v, want %d and "+
			"64-bit", int(f.Machine), f.Class, machineCUDA)
	}
	syms, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("cubin: symbols: %w", err)
	}
	im := &Image{}
	if im.Kernels, err = kernels(f, syms, reserved(data)); err != nil {
		return nil, err
	}
	if im.Structs, err = structs(f, syms); err != nil {
		return nil, err
	}
	return im, nil
}

// kernels returns every global function with the properties in its attribute section.
func kernels(f *elf.File, syms []elf.Symbol, reserved uint64) ([]Kernel, error) {
	table, err := attributes(f, ".nv.info")
	if err != nil {
		return nil, err
	}
	var list []Kernel
	for i, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || elf.ST_BIND(s.Info) != elf.STB_GLOBAL {
			continue
		}
		k := Kernel{Name: s.Name}
		for _, a := range table {
			// Entries of the common section name their function by symbol number. The ELF reader drops the null symbol,
			// so symbol i has number i+1.
			if len(a.data) != 8 || int(binary.LittleEndian.Uint32(a.data)) != i+1 {
				continue
			}
			v := int(binary.LittleEndian.Uint32(a.data[4:]))
			switch a.id {
			case attrRegisters:
				k.Registers = v
			case attrFrame:
				k.LocalBytes = v
			}
		}
		if err := k.readOwn(f, reserved); err != nil {
			return nil, err
		}
		for _, d := range syms {
			if d.Name != k.Name+dynamicSuffix {
				continue
			}
			words, err := initialised(f, d)
			if err != nil {
				return nil, err
			}
			if len(words) == 1 {
				k.Dynamic = int(words[0])
			}
		}
		list = append(list, k)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

// readOwn sets the properties that are stored in the kernel's own sections.
func (k *Kernel) readOwn(f *elf.File, reserved uint64) error {
	own, err := attributes(f, ".nv.info."+k.Name)
	if err != nil {
		return err
	}
	for _, a := range own {
		switch {
		case a.id == attrParamBytes:
			k.ParamBytes = int(a.half)
		case a.id == attrMaxThreads && len(a.data) == 12:
			k.MaxThreads = 1
			for j := range 3 {
				k.MaxThreads *= int(binary.LittleEndian.Uint32(a.data[4*j:]))
			}
		case a.id == attrParam && len(a.data) == 12:
			k.Params = append(k.Params, Param{
				Offset: int(binary.LittleEndian.Uint16(a.data[6:])),
				Size:   int(binary.LittleEndian.Uint32(a.data[8:]) >> 18),
			})
		}
	}
	sort.Slice(k.Params, func(i, j int) bool { return k.Params[i].Offset < k.Params[j].Offset })
	if s := f.Section(".nv.shared." + k.Name); s != nil && s.Size > reserved {
		k.SharedBytes = int(s.Size - reserved)
	}
	return nil
}

// Attribute numbers in .nv.info sections that this package reads.
const (
	attrMaxThreads = 0x05
	attrFrame      = 0x11
	attrParam      = 0x17
	attrParamBytes = 0x19
	attrRegisters  = 0x2f
)

// attribute is one entry of a .nv.info section: a format byte, an attribute number, and a 16-bit value or a 16-bit
// length with as many bytes.
type attribute struct {
	id   byte
	half uint16
	data []byte
}

// attributes returns the entries of a .nv.info section, or none if the section is missing.
func attributes(f *elf.File, name string) ([]attribute, error) {
	s := f.Section(name)
	if s == nil {
		return nil, nil
	}
	b, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("cubin: section %s: %w", name, err)
	}
	var list []attribute
	const sized = 4 // format of entries that contain bytes
	for len(b) >= 4 {
		a := attribute{id: b[1], half: binary.LittleEndian.Uint16(b[2:])}
		format := b[0]
		b = b[4:]
		if format == sized {
			if int(a.half) > len(b) {
				return nil, fmt.Errorf("cubin: section %s: attribute %#x has %d bytes, but only %d are "+
					"left", name, a.id, a.half,
					len(b))
			}
			a.data, b = b[:a.half], b[a.half:]
		}
		list = append(list, a)
	}
	return list, nil
}

// structs collects the struct layouts from the initialised global memory of the image.
func structs(f *elf.File, syms []elf.Symbol) ([]Struct, error) {
	byName := map[string]*Struct{}
	get := func(name string) *Struct {
		if byName[name] == nil {
			byName[name] = &Struct{Name: name}
		}
		return byName[name]
	}
	for _, s := range syms {
		isStruct, isField := strings.HasPrefix(s.Name, StructPrefix), strings.HasPrefix(s.Name, FieldPrefix)
		if !isStruct && !isField {
			continue
		}
		words, err := initialised(f, s)
		if err != nil {
			return nil, err
		}
		if isStruct && len(words) == 1 {
			get(s.Name[len(StructPrefix):]).Size = int(words[0])
			continue
		}
		part := strings.SplitN(strings.TrimPrefix(s.Name, FieldPrefix), "__", 3)
		if !isField || len(part) != 3 || len(words) != 2 {
			return nil, fmt.Errorf("cubin: symbol %s of %d bytes is not a struct fact", s.Name, s.Size)
		}
		n, err := strconv.Atoi(part[1])
		if err != nil || n < 0 || n >= len(syms) {
			return nil, fmt.Errorf("cubin: symbol %s: %q is not the number of a field", s.Name, part[1])
		}
		st := get(part[0])
		for len(st.Fields) <= n {
			st.Fields = append(st.Fields, Field{})
		}
		st.Fields[n] = Field{Name: part[2], Offset: int(words[0]), Size: int(words[1])}
	}
	list := make([]Struct, 0, len(byName))
	for _, s := range byName {
		list = append(list, *s)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

// initialised reads the 32-bit words of a symbol from its section.
func initialised(f *elf.File, s elf.Symbol) ([]uint32, error) {
	if int(s.Section) >= len(f.Sections) || f.Sections[s.Section].Type == elf.SHT_NOBITS {
		return nil, fmt.Errorf("cubin: symbol %s has no initialised memory", s.Name)
	}
	b, err := f.Sections[s.Section].Data()
	if err != nil {
		return nil, fmt.Errorf("cubin: symbol %s: %w", s.Name, err)
	}
	if s.Value > uint64(len(b)) || s.Size > uint64(len(b))-s.Value {
		return nil, fmt.Errorf("cubin: symbol %s lies outside its section", s.Name)
	}
	b = b[s.Value : s.Value+s.Size]
	words := make([]uint32, len(b)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return words, nil
}
