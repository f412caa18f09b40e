package tokenizer

import (
	"encoding/json"
	"testing"
)

// readString reads one JSON string the way vocabularies are read.
func readString(data []byte) (string, error) {
	r := jsonReader{data: data}
	s, err := r.str()
	if err != nil {
		return "", err
	}
	return string(s), r.end()
}

func FuzzJSONStrings(f *testing.F) {
	for _, s := range []string{`""`, `"a\"\\\/\b\f\n\r\t"`, `"\u0120\ud83d\ude80"`, `"\ud83d"`, `"\ud83d\u0041"`, "\"\xff\"", "\"\n\"", `"a`, ` "x" `, `"\x"`, `"\u12"`, `"\u+123"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readString(data)
		if err != nil {
			return
		}
		var want string
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q: read %q, which encoding/json refuses: %v", data, got, err)
		}
		if got != want {
			t.Fatalf("%q: read %q, encoding/json reads %q", data, got, want)
		}
	})
}

func TestEveryJSONStringIsReadBack(t *testing.T) {
	for _, s := range append(tricky, "\\", "/", "\b\f", "<>&", "Ġthe") {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want string
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if got, err := readString(data); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", data, got, err, want)
		}
	}
}

func TestRawValuesEndWhereTheyShould(t *testing.T) {
	for text, want := range map[string]string{
		`1,2`: `1`, `"a,b"]`: `"a,b"`, `{"a":[1,{}],"b":"}"} ,`: `{"a":[1,{}],"b":"}"}`, `[[],"]\""]}`: `[[],"]\""]`, `true}`: `true`,
	} {
		r := jsonReader{data: []byte(text)}
		if got, err := r.raw(); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{``, `,`, `[`, `"a`, `{"a":"\`} {
		r := jsonReader{data: []byte(text)}
		if got, err := r.raw(); err == nil {
			t.Errorf("%s: %s, want an error", text, got)
		}
	}
}
