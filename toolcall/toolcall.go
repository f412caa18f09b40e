// Package toolcall constrains the generation of tool calls.
//
// Its inputs are the call syntax of a chat format, the tools of a request and a tokenizer. It returns the tokens that
// are allowed next: in text all tokens except markers that do not begin a call; in a name those of the tools' names; in
// arguments those of JSON that satisfies the tool's schema; otherwise the marker that must follow. If a request
// requires a call, the answer must begin with one.
package toolcall

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/sample"
)

// ErrTools means that a request's tools cannot be enforced.
var ErrTools = errors.New("toolcall: the tools cannot be enforced")

// Options holds the requirements of a request.
type Options struct {
	Demand    bool   // whether the answer must be a call
	Only      string // name of the only tool that may be called, or empty
	Single    bool   // whether at most one call is allowed
	Reasoning bool   // whether the reply begins inside a reasoning block

	Store *Store // cache of compiled schemas, or nil
}

// Rules holds the constraints of one request, which all choices share.
type Rules struct {
	options Options
	words   int
	eos     []int32

	start []int32 // tokens of Begin and Open
	open  []int32
	end   []int32
	close []int32
	think int32 // token that ends reasoning, or -1
	tools []tool

	released atomic.Bool
	// text is the mask outside of calls: all tokens except markers that do not begin a call. It is nil if arguments are
	// not JSON.
	text sample.Mask
}

// tool holds the tokens of a tool's name, including Sep, and the grammar of its arguments.
type tool struct {
	index int // index of the tool in the request
	name  []int32
	args  *grammar.Grammar // grammar of the arguments; nil if they are not JSON
	whole bool             // whether the grammar does not support the schema, so that args accepts any object
	from  *entry           // entry of the store with args; nil if args is not from a store
}

// Ignored is a keyword of a tool's schema that is not enforced. An empty keyword means the whole schema.
type Ignored struct {
	Tool int // index of the tool
	grammar.Ignored
}

// Bytes returns the bytes of the compiled schemas, without those in a store.
func (r *Rules) Bytes() (n int) {
	for i := range r.tools {
		if t := &r.tools[i]; t.args != nil && t.from == nil {
			n += t.args.Bytes()
		}
	}
	return n
}

// Release must be called when no sequence uses the rules any more. It may be called more than once.
func (r *Rules) Release() {
	if r.released.Swap(true) {
		return
	}
	for i := range r.tools {
		switch t := &r.tools[i]; {
		case t.from != nil:
			r.options.Store.giveBack(t.from)
		case t.args != nil:
			t.args.Release()
		}
	}
}

// Ignored returns the schema keywords that are not enforced.
func (r *Rules) Ignored() []Ignored {
	var list []Ignored
	for i := range r.tools {
		t := &r.tools[i]
		if t.whole {
			list = append(list, Ignored{Tool: t.index})
		} else if t.args != nil {
			for _, k := range t.args.Ignored() {
				list = append(list, Ignored{t.index, k})
			}
		}
	}
	return list
}

// Encoder returns the token ids of a text that may contain markers.
type Encoder func(text string) ([]int32, error)

// Compile compiles the rules. It returns nil, without an error, if nothing can be enforced: no call is required, and
// the calls of the format do not begin with special tokens or contain no JSON.
func Compile(s chat.CallSyntax, tools []chat.Tool, o Options, encode Encoder, t *grammar.Tokens, eos []int32) (*Rules,
	error) {
	r := &Rules{options: o, words: t.MaskWords(), eos: eos, think: -1}
	var errs []error
	tokens := func(text string) []int32 {
		if text == "" {
			return nil
		}
		ids, err := encode(text)
		errs = append(errs, err)
		return ids
	}
	r.start, r.open, r.end, r.close = tokens(s.Begin+s.Open), tokens(s.Open), tokens(s.End), tokens(s.Close)
	if think := tokens(s.ReasoningEnd); len(think) == 1 {
		r.think = think[0]
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTools, err)
	}
	if !o.Demand && (len(r.open) != 1 || !s.JSON) {
		return nil, nil
	}
	if o.Reasoning && r.think < 0 && o.Demand {
		return nil, fmt.Errorf("%w: the tokenizer has no single token for %q, so the end of reasoning cannot be "+
			"detected", ErrTools, s.ReasoningEnd)
	}
	for i := range tools {
		if o.Only != "" && tools[i].Name != o.Only {
			continue
		}
		x, err := compileTool(s, &tools[i], tokens(tools[i].Name+s.Sep), t, o.Store)
		if err != nil {
			r.Release()
			return nil, fmt.Errorf("%w: tools[%d]: %w", ErrTools, i, err)
		}
		x.index = i
		r.tools = append(r.tools, x)
	}
	if len(r.tools) == 0 {
		return nil, fmt.Errorf("%w: none of the %[3]d tools has the name %[2]q", ErrTools, o.Only, len(tools))
	}
	if s.JSON && len(r.open) == 1 {
		r.text = freeText(r.words, s.Markers, tokens, r.start[0], r.open[0])
	}
	if err := errors.Join(errs...); err != nil {
		r.Release()
		return nil, fmt.Errorf("%w: %w", ErrTools, err)
	}
	return r, nil
}

// freeText returns the mask of all tokens except markers that do not begin a call, which would be content.
func freeText(words int, markers []string, tokens func(string) []int32, begin ...int32) sample.Mask {
	var stray []int32
	for _, text := range markers {
		if ids := tokens(text); len(ids) == 1 && !slices.Contains(begin, ids[0]) {
			stray = append(stray, ids[0])
		}
	}
	return sample.AllBut(64*words, stray)
}

// compileTool compiles the name and the arguments of a tool.
func compileTool(s chat.CallSyntax, x *chat.Tool, name []int32, t *grammar.Tokens, from *Store) (out tool, err error) {
	out.name = name
	if !s.JSON {
		return out, nil
	}
	schema := x.Parameters
	if len(x.Enforced) > 0 {
		schema = x.Enforced
	}
	compile := func() (*grammar.Grammar, bool, error) { return compileSchema(schema, x.Strict, t) }
	if from == nil {
		out.args, out.whole, err = compile()
		return out, err
	}
	if out.from, err = from.use(schema, x.Strict, compile); err != nil {
		return out, err
	}
	out.args, out.whole = out.from.args, out.from.whole
	return out, nil
}

// compileSchema compiles the grammar of arguments. If the grammar does not support the schema, this is an error for a
// strict tool; for other tools any JSON object is accepted, and whole is true.
func compileSchema(schema []byte, strict bool, t *grammar.Tokens) (args *grammar.Grammar, whole bool, err error) {
	if len(schema) > 0 {
		// Members that the schema does not list are not allowed, because the tool does not use them.
		o := grammar.Options{ClosedObjects: true, Strict: strict}
		if args, err = grammar.CompileWith(schema, t, o); err == nil || strict {
			return args, false, err
		}
		whole = true
	}
	args, err = grammar.JSONObject(t)
	return args, whole, err
}

// stage is the position of a reply inside or outside of calls.
type stage uint8

const (
	free    stage = iota // text
	forced               // marker tokens in queue
	naming               // name of a tool
	arguing              // JSON arguments
	between              // after a call: another call, or the end of calls
	ended                // only the end of the sequence is allowed
)

// State is the state of one running reply.
type State struct {
	rules *Rules
	stage stage
	queue []int32 // marker tokens that must follow
	then  stage   // stage after queue
	depth int     // number of tokens of the name so far
	alive []bool  // [tools] whether the tokens so far match the name
	args  *grammar.State
	lead  bool // whether a call must follow the reasoning
}

// Start returns the state at the beginning of a reply.
func (r *Rules) Start() *State {
	s := &State{rules: r, alive: make([]bool, len(r.tools))}
	switch {
	case !r.options.Demand:
	case r.options.Reasoning:
		s.lead = true
	default:
		s.force(r.start, naming)
	}
	return s
}

// Clone returns an independent copy.
func (s *State) Clone() *State {
	c := *s
	c.alive = slices.Clone(s.alive)
	if s.args != nil {
		c.args = s.args.Clone()
	}
	return &c
}

// force sets the marker tokens that must follow, and the stage after them.
func (s *State) force(ids []int32, then stage) {
	s.queue, s.then = ids, then
	s.enter(forced)
}

// enter begins a stage, or the next one if it is forced and no marker token remains.
func (s *State) enter(next stage) {
	if next == forced && len(s.queue) == 0 {
		next = s.then
	}
	s.stage = next
	if next == naming {
		s.depth = 0
		for i := range s.alive {
			s.alive[i] = true
		}
	}
}

// Mask fills dst with the tokens that are allowed next. If every token is allowed, it returns false and does not change
// dst.
func (s *State) Mask(dst []uint64) (limited bool, err error) {
	set := func(id int32) { dst[id/64] |= 1 << (id % 64) }
	if s.stage == free && s.rules.text == nil {
		return false, nil
	}
	if len(dst) < s.rules.words {
		return true, fmt.Errorf("%w: the mask has %d words, want %d", ErrTools, len(dst), s.rules.words)
	}
	clear(dst)
	switch s.stage {
	case free:
		copy(dst, s.rules.text)
	case forced:
		set(s.queue[0])
	case naming:
		for i, x := range s.rules.tools {
			if s.alive[i] && s.depth < len(x.name) {
				set(x.name[s.depth])
			}
		}
	case arguing:
		if err := s.args.Mask(dst); err != nil {
			return true, err
		}
		if s.args.Done() {
			// The closing marker of the call must follow the arguments, not the end of the sequence.
			for _, id := range s.rules.eos {
				dst[id/64] &^= 1 << (id % 64)
			}
			set(s.rules.close[0])
		}
	case between:
		set(s.rules.end[0])
		if !s.rules.options.Single {
			set(s.rules.open[0])
		}
	case ended:
		for _, id := range s.rules.eos {
			set(id)
		}
	}
	return true, nil
}

// Accept advances the state by the next token.
func (s *State) Accept(token int32) error {
	switch s.stage {
	case free:
		s.watch(token)
		return nil
	case forced:
		if token != s.queue[0] {
			return s.rejected(token)
		}
		s.queue = s.queue[1:]
		s.enter(forced)
		return nil
	case naming:
		return s.name(token)
	case arguing:
		if s.args.Done() && token == s.rules.close[0] {
			s.force(s.rules.close[1:], between)
			return nil
		}
		return s.args.Accept(token)
	case between:
		switch {
		case token == s.rules.end[0]:
			s.force(s.rules.end[1:], ended)
		case token == s.rules.open[0] && !s.rules.options.Single:
			s.force(s.rules.open[1:], naming)
		default:
			return s.rejected(token)
		}
		return nil
	}
	if !slices.Contains(s.rules.eos, token) {
		return s.rejected(token)
	}
	return nil
}

func (s *State) rejected(token int32) error {
	return fmt.Errorf("%w: token %d does not belong to a call", ErrTools, token)
}

// watch detects the end of reasoning, and the beginning of a call.
func (s *State) watch(token int32) {
	switch {
	case s.lead && token == s.rules.think:
		s.lead = false
		s.force(s.rules.start, naming)
	case s.rules.text == nil:
	case token == s.rules.open[0]:
		s.enter(naming)
	case token == s.rules.start[0]:
		s.force(s.rules.start[1:], naming)
	}
}

// name accepts a token of a tool's name. A name ends with its separator, so that it may be a prefix of another name.
func (s *State) name(token int32) error {
	fits := false
	for i, x := range s.rules.tools {
		s.alive[i] = s.alive[i] && s.depth < len(x.name) && x.name[s.depth] == token
		fits = fits || s.alive[i]
	}
	if !fits {
		return s.rejected(token)
	}
	s.depth++
	for i, x := range s.rules.tools {
		if s.alive[i] && s.depth == len(x.name) {
			if x.args == nil {
				s.enter(free)
				return nil
			}
			s.args = x.args.Start()
			s.enter(arguing)
			return nil
		}
	}
	return nil
}
