package jinja

// expr is an expression. place returns its position in the source, for error messages.
type expr interface{ place() pos }

type node struct{ at pos }

func (n node) place() pos { return n.at }

type (
	constExpr struct {
		node
		value Value
	}
	nameExpr struct {
		node
		name string
	}
	listExpr struct {
		node
		items []expr
		tuple bool
	}
	dictExpr struct {
		node
		keys, values []expr
	}
	condExpr struct {
		node
		test, yes, no expr // condition and the two results; no may be nil
	}
	binaryExpr struct {
		node
		op          string // operator: + - * / // % ** and or
		left, right expr
	}
	concatExpr struct {
		node
		parts []expr
	}
	unaryExpr struct {
		node
		op      string // operator: - + not
		operand expr
	}
	compareExpr struct {
		node
		first expr
		ops   []string // operators: == != < <= > >= in "not in"
		rest  []expr
	}
	attrExpr struct {
		node
		object expr
		name   string
	}
	itemExpr struct {
		node
		object, key expr
	}
	sliceExpr struct {
		node
		object            expr
		start, stop, step expr // each may be nil
	}
	callExpr struct {
		node
		callee expr
		args   arguments
	}
	filterExpr struct {
		node
		operand expr // nil if the filter is applied to the text of a block
		name    string
		args    arguments
	}
	testExpr struct {
		node
		operand expr
		name    string
		args    arguments
	}
)

// arguments holds the arguments of a call, a filter or a test.
type arguments struct {
	positional []expr
	names      []string // names of the keyword arguments in named
	named      []expr
	star       expr // operand of *args, or nil
	starStar   expr // operand of **kwargs, or nil
}

// stmt is a statement. place returns its position in the source.
type stmt interface{ place() pos }

type (
	textStmt struct {
		node
		text string
	}
	outputStmt struct {
		node
		value expr
	}
	ifStmt struct {
		node
		tests  []expr
		bodies [][]stmt
		other  []stmt
	}
	forStmt struct {
		node
		targets targets
		iter    expr
		filter  expr // condition for items, or nil
		body    []stmt
		other   []stmt
	}
	setStmt struct {
		node
		targets targets
		value   expr
	}
	setBlockStmt struct {
		node
		target target
		filter expr // chain of filterExpr whose innermost operand is nil; nil without filters
		body   []stmt
	}
	withStmt struct {
		node
		names  []string
		values []expr
		body   []stmt
	}
	filterStmt struct {
		node
		filter expr
		body   []stmt
	}
	macroStmt struct {
		node
		macro *macroDef
	}
	callStmt struct {
		node
		caller *macroDef
		call   *callExpr
	}
	groupStmt struct { // tag without effect on its body, such as generation
		node
		body []stmt
	}
	breakStmt    struct{ node }
	continueStmt struct{ node }
)

// target is what a set statement assigns to: a variable, or an attribute of a namespace.
type target struct {
	at   pos
	name string
	attr string
}

// targets holds one target for a value, or several for the items of the value.
type targets struct {
	list   []target
	unpack bool
}

// macroDef is the definition of a macro.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // default values of the last len(defaults) params
	body     []stmt
	varargs  bool // whether the body uses varargs, so that further positional arguments are accepted
	kwargs   bool // whether the body uses kwargs, so that further keyword arguments are accepted
}
