package grammar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Options change the interpretation of a schema.
type Options struct {
	// ClosedObjects forbids other names in objects whose schema lists properties but does not mention
	// additionalProperties. JSON Schema allows other names there, and small models then invent properties. The output
	// satisfies the schema with and without this option.
	ClosedObjects bool
	// Strict makes a keyword that is unknown or cannot be enforced an error. Otherwise the keyword is ignored and
	// listed by Grammar.Ignored.
	Strict bool
}

// Compile returns the grammar of the documents that satisfy a JSON schema. Errors are of type [*SchemaError].
func Compile(source []byte, t *Tokens) (*Grammar, error) {
	return CompileWith(source, t, Options{})
}

// CompileWith is [Compile] with options.
func CompileWith(source []byte, t *Tokens, o Options) (*Grammar, error) {
	root, err := parseValue(source)
	if err != nil {
		return nil, err
	}
	skip := newSkipped(o.Strict)
	for {
		c := newCompiler(root, t, o, skip)
		err := c.compile()
		if err == nil {
			c.g.ignored = skip.list()
			return c.g, nil
		}
		if !c.leaveOut(err) {
			return nil, err
		}
	}
}

// leaveOut makes the next attempt ignore the keyword that caused an error. It returns false if there is no such
// keyword.
func (c *compiler) leaveOut(err error) bool {
	var e *SchemaError
	if !errors.As(err, &e) {
		return false
	}
	if e.Kind == ErrUnsupported {
		return c.logic.parser.skip.add(origin{e.Pointer, e.Keyword}, e.Problem)
	}
	any := false
	if e.Kind == ErrTooLarge { // without negations the schema may have fewer alternatives
		for o := range c.logic.origins {
			any = c.logic.parser.skip.add(o, "with its negations the schema is too large: "+e.Problem) || any
		}
	}
	return any
}

func newCompiler(root value, t *Tokens, o Options, skip *skipped) *compiler {
	p := &parser{root: root, texts: map[string]int{}, refs: map[string]*schema{}, addresses: map[string]located{},
		skip: skip, old: oldDraft(&root)}
	p.locate(&p.root, "", "")
	l := &logic{parser: p, visited: map[int]int{}, patterns: map[source]*runeDFA{}, origins: map[origin]bool{},
		ones: map[string]choice{}, effort: effort{left: maxEffort}}
	return &compiler{g: newGrammar(t), options: o, logic: l, memo: map[string]int32{}, names: map[string]*nameList{}}
}

func (c *compiler) compile() error {
	g := c.g
	s, err := c.logic.parser.parse(&c.logic.parser.root, "", "")
	if err != nil {
		return err
	}
	if g.root, err = c.node([]*schema{s}); err != nil {
		return err
	}
	measure(g.nodes)
	if need := g.nodes[g.root].depth; need > MaxDepth {
		return c.unsatisfiable(need)
	}
	for i := range g.nodes {
		g.nodes[i].finish(g.nodes)
	}
	g.arena = newArena(g)
	return nil
}

// JSONObject returns the grammar of any JSON object.
func JSONObject(t *Tokens) (*Grammar, error) {
	return Compile([]byte(`{"type":"object"}`), t)
}

// newGrammar returns a grammar with the leaves that every grammar has, at fixed indices.
func newGrammar(t *Tokens) *Grammar {
	g := &Grammar{tokens: t, own: newMaskCache(maxMaskBytes)}
	marks := punctuation()
	for i := range marks {
		g.addLeaf(&marks[i])
	}
	return g
}

// compiler compiles goals to nodes. Equal goals share a node, which makes recursive schemas finite.
type compiler struct {
	g       *Grammar
	options Options
	logic   *logic
	memo    map[string]int32
	names   map[string]*nameList
	members int
}

// logic compares schemas and derives schemas from others: it resolves references, alternatives and negations, and
// reports whether a value satisfies a schema. It adds no nodes.
type logic struct {
	parser       *parser
	visited      map[int]int
	patterns     map[source]*runeDFA // automata by keyword and text of the pattern
	effort       effort
	combinations int
	ones         map[string]choice // results of exactlyOne, by the ids of schemas
	origins      map[origin]bool   // keywords from which schemas were derived
	reason       string            // reason why an alternative was dropped, for the error if all were dropped
}

// node compiles a goal. An empty goal allows any value.
func (c *compiler) node(goal []*schema) (int32, error) {
	key := keyOf(goal)
	if id, ok := c.memo[key]; ok {
		return id, nil
	}
	id, err := c.add(node{kind: anyNode})
	if err != nil {
		return 0, err
	}
	c.memo[key] = id
	list, err := c.logic.alternatives(goal)
	if err != nil {
		return 0, err
	}
	var kids []int32
	seen := map[string]bool{}
	for _, parts := range list {
		key := keyOf(parts)
		if seen[key] {
			continue // an equal alternative would only add an equal config
		}
		seen[key] = true
		if kids, err = c.values(parts, kids); err != nil {
			return 0, err
		}
	}
	c.g.nodes[id].kids = kids
	return id, nil
}

// keyOf returns a key that identifies a list of schemas by their ids.
func keyOf(list []*schema) string {
	var key []byte
	for i, s := range list {
		if !slices.ContainsFunc(list[:i], func(o *schema) bool { return o.id == s.id }) {
			key = binary.AppendUvarint(key, uint64(s.id))
		}
	}
	return string(key)
}

func (c *compiler) add(n node) (int32, error) {
	if len(c.g.nodes) >= MaxNodes {
		return 0,
			&SchemaError{
				Problem: fmt.Sprintf("more than %d different values after resolving references and alternatives",
					MaxNodes), Kind: ErrTooLarge}
	}
	c.g.nodes = append(c.g.nodes, n)
	return int32(len(c.g.nodes) - 1), nil
}

// charge adds to the number of members of objects, arrays and enums, and returns an error above MaxMembers.
// Alternatives multiply members, so that a short schema could otherwise exhaust memory.
func (c *compiler) charge(parts []*schema, members int) error {
	if c.members += members; c.members <= MaxMembers {
		return nil
	}
	e := &SchemaError{
		Problem: fmt.Sprintf("more than %d properties, tuple items and enum values after resolving alternatives",
			MaxMembers), Kind: ErrTooLarge}
	if len(parts) > 0 {
		e.Pointer = parts[0].pointer
	}
	return e
}

// addLeaf adds a node for a leaf to kids, a list of alternatives.
func (c *compiler) addLeaf(kids []int32, l leaf) ([]int32, error) {
	id, err := c.add(node{kind: leafNode, leaf: c.g.addLeaf(l)})
	return append(kids, id), err
}

// values adds the nodes of one alternative, one per type, to kids.
func (c *compiler) values(parts []*schema, kids []int32) (_ []int32, err error) {
	types := typeSet(allTypes)
	limited := false
	for _, s := range parts {
		types &= s.types
		limited = limited || s.enum != nil
	}
	if types == 0 {
		c.logic.drop(parts, "type", "no type is allowed by all parts")
		return kids, nil
	}
	if limited {
		return c.enum(parts, types, kids)
	}
	if kids, err = c.keywords(parts, types, kids); err != nil {
		return nil, err
	}
	if types&typeString != 0 {
		if kids, err = c.strings(parts, kids); err != nil {
			return nil, err
		}
	}
	if types&(typeInteger|typeFraction) != 0 {
		if kids, err = c.numbers(parts, types, kids); err != nil {
			return nil, err
		}
	}
	if types&typeArray != 0 {
		if kids, err = c.array(parts, kids); err != nil {
			return nil, err
		}
	}
	if types&typeObject != 0 {
		return c.object(parts, kids)
	}
	return kids, nil
}

// keywords adds the leaves of null, true and false that all parts allow to kids.
func (c *compiler) keywords(parts []*schema, types typeSet, kids []int32) ([]int32, error) {
	var list []literal
	for _, v := range []value{{kind: nullValue}, {kind: boolValue, truth: true}, {kind: boolValue}} {
		excluded := func(s *schema) bool {
			return slices.ContainsFunc(s.excluded, func(o value) bool { return o.kind == v.kind && o.truth == v.truth })
		}
		if types&v.typeOf() != 0 && !slices.ContainsFunc(parts, excluded) {
			list = append(list, literal{text: v.append(nil)})
		}
	}
	if len(list) == 0 {
		return kids, nil
	}
	return c.addLeaf(kids, newLiterals(list))
}

// drop records why an alternative is impossible; only the first reason is kept, for the error.
func (l *logic) drop(parts []*schema, keyword, reason string) {
	if l.reason != "" {
		return
	}
	where := "#"
	if len(parts) > 0 {
		where += parts[len(parts)-1].pointer
	}
	l.reason = fmt.Sprintf("%s: %s: %s", where, keyword, reason)
}

func (c *compiler) unsatisfiable(need int) error {
	problem := "no document satisfies it"
	switch {
	case need != impossible:
		return &SchemaError{Problem: fmt.Sprintf("every document nests at least %d levels; at most %d are supported",
			need, MaxDepth), Kind: ErrTooLarge}
	case c.logic.reason != "":
		problem += " (" + c.logic.reason + ")"
	default:
		problem += ": a required part contains itself or is the schema false"
	}
	return &SchemaError{Problem: problem, Kind: ErrUnsatisfiable}
}

// failAt returns an error located at the first schema of parts that has the keyword.
func failAt(parts []*schema, has func(*schema) bool, keyword string, kind error, format string, args ...any) error {
	e := &SchemaError{Keyword: keyword, Problem: fmt.Sprintf(format, args...), Kind: kind}
	if i := slices.IndexFunc(parts, has); i >= 0 {
		e.Pointer = parts[i].pointer
	}
	return e
}
