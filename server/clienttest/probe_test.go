package clienttest
import ("testing";"sparrow";"sparrow/server";"github.com/openai/openai-go/v3";"github.com/openai/openai-go/v3/option")
func TestProbe(t *testing.T){
 s:=start(t,sparrow.Config{},server.Options{})
 for _,q:=range []string{"zebra","The road and the road and","Colors","Copy this text: x, ü, 漢, 9, {","ok ok ok no no","Tell me a random number","What is the weather in Paris?"}{
  for seed:=range int64(3){ p:=ask(q); p.Temperature,p.Seed,p.MaxTokens=openai.Float(2),openai.Int(seed),openai.Int(24)
   t.Logf("%q %q", q, text(t,s.chat(t,p)))
   t.Logf("   endless %q", text(t,s.chat(t,p,option.WithJSONSet("ignore_eos",true))))
  }
 }
}
