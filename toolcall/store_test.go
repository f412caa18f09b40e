package toolcall_test

import (
	"fmt"
	"testing"

	"sparrow/chat"
	"sparrow/toolcall"
)

func TestAStoreForgetsWhatNobodyUses(t *testing.T) {
	b := newBench(t)
	syntax, _ := chat.DeepSeekV31{}.CallSyntax()
	rules := func(s *toolcall.Store, tools ...int) *toolcall.Rules {
		t.Helper()
		var list []chat.Tool
		for _, i := range tools {
			list = append(list, chat.Tool{Name: fmt.Sprintf("f%d", i), Parameters: fmt.Appendf(nil,
				`{"type": "object", "properties": {"p%d": {"type": "string"}}}`, i)})
		}
		return b.rules(syntax, list, toolcall.Options{Store: s})
	}
	s := toolcall.NewStore(1 << 30)
	first := rules(s, 0)
	size := s.Bytes()
	if again := rules(s, 0); s.Compiled() != 1 || s.Bytes() != size || first.Bytes()+again.Bytes() != 0 {
		t.Errorf("%d compiled, %d bytes, of the rules %d", s.Compiled(), s.Bytes(), first.Bytes()+again.Bytes())
	}
	most := 2*size + size/2
	s = toolcall.NewStore(most)
	held := rules(s, 0, 1, 2, 3) // all rules are in use, so more than the limit stay
	if s.Compiled() != 4 || s.Bytes() <= most {
		t.Errorf("%d compiled, %d bytes", s.Compiled(), s.Bytes())
	}
	held.Release()
	held.Release() // a second release has no effect
	if s.Bytes() > most || s.Bytes() == 0 {
		t.Errorf("%d bytes are kept, at most %d fit", s.Bytes(), most)
	}
	rules(s, 3).Release() // the most recent rules are still stored
	if s.Compiled() != 4 {
		t.Errorf("%d were compiled, want 4", s.Compiled())
	}
	rules(s, 0).Release() // the oldest rules were dropped
	if s.Compiled() != 5 {
		t.Errorf("%d were compiled, want 5", s.Compiled())
	}
}

// Tools that are refused leave nothing in use: the schemas that were compiled before the invalid one can be dropped.
func TestRefusedToolsGiveTheirSchemasBack(t *testing.T) {
	b := newBench(t)
	strict, store := odd, toolcall.NewStore(1)
	strict.Strict = true
	if _, err := toolcall.Compile(v31, []chat.Tool{weather, wide, strict}, toolcall.Options{Store: store}, b.encode,
		b.tokens, []int32{1}); err == nil {
		t.Fatal("the invalid tool is accepted")
	}
	if store.Compiled() != 2 || store.Bytes() != 0 {
		t.Errorf("%d schemas were compiled, %d bytes are still in use", store.Compiled(), store.Bytes())
	}
}
