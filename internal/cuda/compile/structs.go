package compile

import (
	"fmt"
	"regexp"
	"strings"

	"sparrow/internal/cuda/cubin"
)

// argStruct is a struct of the CUDA sources for which there is a Go struct with the same layout.
type argStruct struct {
	name      string
	qualified string // name with namespaces
	fields    []string
}

// mirrored reports whether the name of a struct is that of a struct that Go passes to the device.
func mirrored(name string) bool {
	return strings.HasSuffix(name, "Args") || strings.HasSuffix(name, "View")
}

var (
	comments   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	tokens     = regexp.MustCompile(`[A-Za-z_]\w*|[{};]|[^\sA-Za-z_{};]+`)
	identifier = regexp.MustCompile(`[A-Za-z_]\w*`)
	brackets   = regexp.MustCompile(`\[[^\]]*\]`)
)

// findStructs returns the argument structs that a source defines. It parses plain C members: one type, then one or more
// names, arrays allowed. The compiler checks the result, because the generated declarations contain the name of every
// struct and field.
func findStructs(source string) ([]argStruct, error) {
	source = comments.ReplaceAllString(source, " ")
	at := tokens.FindAllStringIndex(source, -1)
	word := func(i int) string {
		if i < len(at) {
			return source[at[i][0]:at[i][1]]
		}
		return ""
	}
	var found []argStruct
	var scopes []string // for each open brace: its namespace, or ""
	for i := 0; i < len(at); i++ {
		switch word(i) {
		case "{":
			scopes = append(scopes, "")
		case "}":
			if len(scopes) > 0 {
				scopes = scopes[:len(scopes)-1]
			}
		case "namespace":
			if word(i+2) == "{" {
				scopes = append(scopes, word(i+1)+"::")
				i += 2
			}
		case "struct":
			name, open := structHead(word, i)
			if !mirrored(name) || open < 0 {
				continue
			}
			end := open + 1
			for word(end) != "}" && word(end) != "" {
				end++
			}
			if word(end) == "" {
				return nil, fmt.Errorf("compile: struct %s does not end", name)
			}
			fields, err := structFields(source[at[open][1]:at[end][0]])
			if err != nil {
				return nil, fmt.Errorf("compile: struct %s: %w", name, err)
			}
			found = append(found, argStruct{name: name, qualified: strings.Join(scopes, "") + name, fields: fields})
			i = end
		}
	}
	return found, nil
}

// structHead returns the name after the keyword at token i, skipping an alignas, and the index of the token of the
// opening brace, or -1 if the struct is not defined there.
func structHead(word func(int) string, i int) (name string, open int) {
	for j := i + 1; j < i+8; j++ {
		switch w := word(j); {
		case w == "{":
			return name, j
		case w == ";" || w == "":
			return name, -1
		case identifier.MatchString(w) && w != "alignas":
			name = identifier.FindString(w)
		}
	}
	return name, -1
}

// structFields returns the names of the members in a struct's body, in order.
func structFields(body string) ([]string, error) {
	var fields []string
	for d := range strings.SplitSeq(body, ";") {
		d = strings.TrimSpace(brackets.ReplaceAllString(d, ""))
		if d == "" || strings.HasPrefix(d, "static") {
			continue
		}
		if strings.ContainsAny(d, "(){}:") {
			return nil, fmt.Errorf("member %q is not a plain C member (a type and names)", d)
		}
		for part := range strings.SplitSeq(d, ",") {
			names := identifier.FindAllString(part, -1)
			if len(names) == 0 {
				return nil, fmt.Errorf("member %q has no name", d)
			}
			fields = append(fields, names[len(names)-1])
		}
	}
	return fields, nil
}

// factSource returns device code with constants: the sizes and offsets of structs, which package cubin reads from the
// image. __INTADDR__ is an extension of the compiler: a constant expression for an address.
func factSource(list []argStruct) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "extern \"C\" __device__ unsigned %s%s[1] = {sizeof(%s)};\n", cubin.StructPrefix, s.name,
			s.qualified)
		for i, f := range s.fields {
			fmt.Fprintf(&b, "extern \"C\" __device__ unsigned %s%s__%d__%s[2] = "+
				"{(unsigned)__INTADDR__(&((%s*)0)->%s), sizeof(((%s*)0)->%s)};\n",
				cubin.FieldPrefix, s.name, i, f, s.qualified, f, s.qualified, f)
		}
	}
	return b.String()
}
