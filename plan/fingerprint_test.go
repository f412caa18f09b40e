package plan

import (
	"encoding"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// exempt maps each field of Config that the fingerprint does not cover to the reason for that.
var exempt = map[string]string{
	"Asked":        "what it asks for is in the fields that Resolve decided",
	"Reasons":      "text for people",
	"Rejected":     "text for people",
	"DenseAgainst": "text for people; DenseOK says whether there is any",
	"Fingerprint":  "the hash itself",
}

// TestFingerprintCoversEveryField checks that a change of any field of Config, including fields of Hardware and Model,
// changes the fingerprint, except for exempt fields.
func TestFingerprintCoversEveryField(t *testing.T) {
	cfg := newSetup(t, "sm90", family(t, "glm-5.2")).resolve(t)
	cfg.Model.Ratios, cfg.Model.Share.Types, cfg.Hardware.Missing = []int{4, 128}, []bool{false, true}, []Kernel{FA3}
	hash := func() Key {
		key, err := fingerprint(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	before := hash()
	v := reflect.ValueOf(&cfg).Elem()
	visited := 0
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		_, out := exempt[name]
		eachChange(t, v.Field(i), name, func(path string) {
			visited++
			if same := hash() == before; same != out {
				t.Errorf("%s: fingerprint unchanged %v, want %v", path, same, out)
			}
		})
	}
	want(t, "fingerprint after every change was undone", hash(), before)
	if visited < 80 {
		t.Errorf("%d changes: the walk is too small", visited)
	}
	for name := range exempt {
		if !v.FieldByName(name).IsValid() {
			t.Errorf("the exempt field %s does not exist", name)
		}
	}
}

// eachChange changes v, or each part of it one after the other, calls visit with the path of the change, and restores
// the value.
func eachChange(t *testing.T, v reflect.Value, path string, visit func(path string)) {
	t.Helper()
	if !v.CanSet() {
		t.Fatalf("%s is unexported: JSON leaves it out, and so does the fingerprint", path)
	}
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachChange(t, v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
		return
	case reflect.Slice:
		if v.Len() > 0 {
			eachChange(t, v.Index(0), path+"[0]", visit)
		}
		v.Set(reflect.Append(v.Slice3(0, v.Len(), v.Len()), reflect.Zero(v.Type().Elem())))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
		if text, ok := v.Interface().(encoding.TextMarshaler); ok {
			if _, err := text.MarshalText(); err != nil { // the changed value is beyond the last value of the enum
				v.SetUint(old.Uint() - 1)
			}
		}
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.25)
	case reflect.String:
		v.SetString(v.String() + "x")
	default:
		t.Fatalf("%s: the walk knows no values of kind %s", path, v.Kind())
	}
	visit(path)
	v.Set(old)
}

// TestPlansIgnoreWhatTheFingerprintLeavesOut checks that configurations that differ only in exempt fields have equal
// fingerprints and equal plans.
func TestPlansIgnoreWhatTheFingerprintLeavesOut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		b := drawBatch(rt)
		bare := cfg
		bare.Asked, bare.Reasons, bare.Rejected = Policy{}, nil, nil
		bare.DenseAgainst = slices.Repeat([]string{"a reason"}, len(cfg.DenseAgainst))
		p, q := mustBuild(rt, cfg, b), mustBuild(rt, bare, b)
		for _, x := range []*Plan{p, q} {
			for i := range x.Segments {
				x.Segments[i].Reasons, x.Segments[i].Rejected = nil, nil
			}
		}
		if !reflect.DeepEqual(p, q) {
			rt.Fatalf("%+v\n%+v without wishes and reasons", p, q)
		}
	})
}
