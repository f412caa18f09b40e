package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Options change how a schema is read.
type Options struct {
	// ClosedObjects closes objects whose schema lists properties but does not mention additionalProperties. JSON
	// Schema leaves them open, which invites small models to invent properties. Either way, what is produced
	// satisfies the schema.
	ClosedObjects bool
}

// Compile makes the grammar of the documents that satisfy a JSON schema. Errors are of type [*SchemaError].
func Compile(source []byte, t *Tokens) (*Grammar, error) {
	return CompileWith(source, t, Options{})
}

// CompileWith is [Compile] with options.
func CompileWith(source []byte, t *Tokens, o Options) (*Grammar, error) {
	root, err := parseValue(source)
	if err != nil {
		return nil, err
	}
	g := newGrammar(t)
	c := &compiler{
		g:       g,
		options: o,
		parser:  &parser{root: root, texts: map[string]int{}, refs: map[string]*schema{}},
		memo:    map[string]int32{},
		visited: map[int]int{},
		formats: map[string]*runeDFA{},
		names:   map[string]*nameList{},
		effort:  effort{left: maxEffort},
	}
	s, err := c.parser.parse(&root, "")
	if err != nil {
		return nil, err
	}
	if g.root, err = c.node([]*schema{s}); err != nil {
		return nil, err
	}
	measure(g.nodes)
	if need := g.nodes[g.root].depth; need > MaxDepth {
		return nil, c.unsatisfiable(need)
	}
	for i := range g.nodes {
		g.nodes[i].finish(g.nodes)
	}
	g.arena = newArena(g)
	return g, nil
}

// JSONObject is the grammar of any JSON object.
func JSONObject(t *Tokens) (*Grammar, error) {
	return Compile([]byte(`{"type":"object"}`), t)
}

// newGrammar holds the leaves that every grammar has; their numbers are fixed.
func newGrammar(t *Tokens) *Grammar {
	g := &Grammar{tokens: t, own: newMaskCache(maxLeafMasks)}
	marks := punctuation()
	for i := range marks {
		g.addLeaf(&marks[i])
	}
	return g
}

// compiler turns goals into nodes. The same goal is the same node, which is what makes recursive schemas finite.
type compiler struct {
	g       *Grammar
	options Options
	parser  *parser
	memo    map[string]int32
	visited map[int]int
	formats map[string]*runeDFA
	names   map[string]*nameList
	effort  effort
	members int
	reasons []string // why alternatives were dropped, for the case that none is left
}

// node compiles a goal. An empty goal is any value.
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
	list, err := c.alternatives(goal)
	if err != nil {
		return 0, err
	}
	var kids []int32
	seen := map[string]bool{}
	for _, parts := range list {
		key := keyOf(parts)
		if seen[key] {
			continue // equal alternatives would only double the readings
		}
		seen[key] = true
		if kids, err = c.values(parts, kids); err != nil {
			return 0, err
		}
	}
	c.g.nodes[id].kids = kids
	return id, nil
}

// keyOf identifies a list of schemas by their texts.
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

// charge counts members of objects, arrays and enums. Alternatives multiply them, so that a short schema could fill
// the memory.
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

// addLeaf adds a node for a leaf to a list of alternatives.
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
		c.drop(parts, "type", "no type is allowed by all parts")
		return kids, nil
	}
	if limited {
		return c.enum(parts, types, kids)
	}
	if kids, err = c.keywords(types, kids); err != nil {
		return nil, err
	}
	if types&typeString != 0 {
		if kids, err = c.strings(parts, kids); err != nil {
			return nil, err
		}
	}
	if types&(typeInteger|typeFraction) != 0 {
		if kids, err = c.numbers(parts, types&typeFraction == 0, kids); err != nil {
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

// keywords adds null, true and false.
func (c *compiler) keywords(types typeSet, kids []int32) ([]int32, error) {
	var list []literal
	if types&typeNull != 0 {
		list = append(list, literal{text: []byte("null")})
	}
	if types&typeBoolean != 0 {
		list = append(list, literal{text: []byte("true")}, literal{text: []byte("false")})
	}
	if len(list) == 0 {
		return kids, nil
	}
	return c.addLeaf(kids, newLiterals(list))
}

// drop notes why an alternative is impossible.
func (c *compiler) drop(parts []*schema, keyword, reason string) {
	where := "#"
	if len(parts) > 0 {
		where += parts[len(parts)-1].pointer
	}
	c.reasons = append(c.reasons, fmt.Sprintf("%s: %s: %s", where, keyword, reason))
}

func (c *compiler) unsatisfiable(need int) error {
	problem := "no document satisfies it"
	switch {
	case need != impossible:
		return &SchemaError{Problem: fmt.Sprintf("every document nests at least %d levels; at most %d are supported",
			need, MaxDepth), Kind: ErrTooLarge}
	case len(c.reasons) > 0:
		problem += " (" + c.reasons[0] + ")"
	default:
		problem += ": a required part contains itself, or is the schema false"
	}
	return &SchemaError{Problem: problem, Kind: ErrUnsatisfiable}
}

// failAt is an error in the first part that has the keyword.
func failAt(parts []*schema, has func(*schema) bool, keyword string, kind error, format string, args ...any) error {
	e := &SchemaError{Keyword: keyword, Problem: fmt.Sprintf(format, args...), Kind: kind}
	if i := slices.IndexFunc(parts, has); i >= 0 {
		e.Pointer = parts[i].pointer
	}
	return e
}
