package starlark

import (
	"fmt"

	"go.starlark.net/syntax"
)

// maxNesting bounds how deeply the parts of a script may be nested.
const maxNesting = 500

// Names of the guards. No script can name them, since none is an identifier.
const (
	guardIndex   = "[]"     // what an index or a key is looked up with
	guardSlice   = "[:]"    // a slice
	guardAttr    = "."      // an attribute
	guardDict    = "{}"     // a dict that was just made
	guardElement = "[e]"    // an element of a comprehension
	guardEntry   = "{e}"    // a key of a new entry
	guardLoop    = "for"    // what a loop goes through; it gives the loop a place in errors
	guardSpread  = "*"      // the iterable of f(*x)
	guardAugment = "[]="    // x[i] op= y
	guardNone    = "[none]" // None, however a script names its own things
	guardUnary   = "unary"  // the name of a unary guard is this and its operator
)

// rewriter turns every operation whose cost depends on its operands into a call of a guard, which looks at
// the operands first. What stays costs about the same for whatever values.
type rewriter struct{ depth int }

// fault is a finding about the text of a script, at its place.
type fault struct {
	at      syntax.Position
	message string
}

// Error says where and what.
func (f *fault) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", f.at.Line, f.at.Col, f.message)
}

// rewrite changes the tree of a file. The error is a *fault.
func rewrite(f *syntax.File) (err error) {
	r := &rewriter{}
	defer func() {
		if p := recover(); p != nil {
			found, ok := p.(*fault)
			if !ok {
				panic(p)
			}
			err = found
		}
	}()
	r.stmts(f.Stmts)
	return nil
}

func (r *rewriter) enter(n syntax.Node) {
	if r.depth++; r.depth > maxNesting {
		at, _ := n.Span()
		panic(&fault{at, fmt.Sprintf("the script is nested deeper than %d", maxNesting)})
	}
}

func (r *rewriter) leave() { r.depth-- }

func (r *rewriter) stmts(list []syntax.Stmt) {
	for i, s := range list {
		list[i] = r.stmt(s)
	}
}

func (r *rewriter) stmt(s syntax.Stmt) syntax.Stmt {
	r.enter(s)
	defer r.leave()
	switch s := s.(type) {
	case *syntax.AssignStmt:
		return r.assign(s)
	case *syntax.DefStmt:
		r.params(s.Params)
		r.stmts(s.Body)
	case *syntax.ExprStmt:
		s.X = r.expr(s.X)
	case *syntax.ForStmt:
		r.target(s.Vars)
		s.X = guarded(guardLoop, s.For, r.expr(s.X))
		r.stmts(s.Body)
	case *syntax.WhileStmt:
		s.Cond = guarded(guardLoop, s.While, r.expr(s.Cond))
		r.stmts(s.Body)
	case *syntax.IfStmt:
		s.Cond = r.expr(s.Cond)
		r.stmts(s.True)
		r.stmts(s.False)
	case *syntax.ReturnStmt:
		s.Result = r.expr(s.Result)
	case *syntax.LoadStmt:
		panic(&fault{s.Load, "a script cannot load other files"})
	}
	return s
}

// assign handles x = y and x op= y. The latter becomes x = guard(x, y), or a guard that evaluates the parts
// of x[i] once.
func (r *rewriter) assign(s *syntax.AssignStmt) syntax.Stmt {
	s.RHS = r.expr(s.RHS)
	if s.Op == syntax.EQ {
		r.target(s.LHS)
		return s
	}
	op := s.Op - syntax.PLUS_EQ + syntax.PLUS
	switch x := unparen(s.LHS).(type) {
	case *syntax.Ident:
		old := &syntax.Ident{NamePos: x.NamePos, Name: x.Name}
		s.RHS = guarded(augmented(op), s.OpPos, old, s.RHS)
		s.Op = syntax.EQ
	case *syntax.IndexExpr:
		op := &syntax.Literal{Token: syntax.STRING, TokenPos: s.OpPos, Value: augmented(op)}
		return &syntax.ExprStmt{X: guarded(guardAugment, s.OpPos, op, r.expr(x.X), r.expr(x.Y), s.RHS)}
	default:
		panic(&fault{s.OpPos, "only a name or an element can be augmented"})
	}
	return s
}

func augmented(op syntax.Token) string { return op.String() + "=" }

func unparen(x syntax.Expr) syntax.Expr {
	for {
		p, ok := x.(*syntax.ParenExpr)
		if !ok {
			return x
		}
		x = p.X
	}
}

// target handles what is assigned to.
func (r *rewriter) target(x syntax.Expr) {
	r.enter(x)
	defer r.leave()
	switch x := x.(type) {
	case *syntax.ParenExpr:
		r.target(x.X)
	case *syntax.TupleExpr:
		for _, e := range x.List {
			r.target(e)
		}
	case *syntax.ListExpr:
		for _, e := range x.List {
			r.target(e)
		}
	case *syntax.IndexExpr:
		x.X, x.Y = r.expr(x.X), guarded(guardEntry, x.Lbrack, r.expr(x.Y))
	case *syntax.DotExpr:
		x.X = r.expr(x.X)
	}
}

// params handles the defaults of parameters.
func (r *rewriter) params(list []syntax.Expr) {
	for _, p := range list {
		if b, ok := p.(*syntax.BinaryExpr); ok {
			b.Y = r.expr(b.Y)
		}
	}
}

func (r *rewriter) exprs(list []syntax.Expr) {
	for i, x := range list {
		list[i] = r.expr(x)
	}
}

// expr handles an expression whose value is used; nil stays nil.
func (r *rewriter) expr(x syntax.Expr) syntax.Expr {
	if x == nil {
		return nil
	}
	r.enter(x)
	defer r.leave()
	switch x := x.(type) {
	case *syntax.ParenExpr:
		x.X = r.expr(x.X)
	case *syntax.CallExpr:
		x.Fn = r.expr(x.Fn)
		r.arguments(x.Args)
	case *syntax.DotExpr:
		name := &syntax.Literal{Token: syntax.STRING, TokenPos: x.NamePos, Value: x.Name.Name}
		return guarded(guardAttr, x.Dot, r.expr(x.X), name)
	case *syntax.Comprehension:
		return r.comprehension(x)
	case *syntax.DictExpr:
		for _, e := range x.List {
			r.entry(e.(*syntax.DictEntry))
		}
		return guarded(guardDict, x.Lbrace, x)
	case *syntax.LambdaExpr:
		r.params(x.Params)
		x.Body = r.expr(x.Body)
	case *syntax.ListExpr:
		r.exprs(x.List)
	case *syntax.TupleExpr:
		r.exprs(x.List)
	case *syntax.CondExpr:
		x.Cond, x.True, x.False = r.expr(x.Cond), r.expr(x.True), r.expr(x.False)
	case *syntax.UnaryExpr:
		x.X = r.expr(x.X)
		if x.Op == syntax.MINUS || x.Op == syntax.TILDE || x.Op == syntax.PLUS {
			return guarded(guardUnary+x.Op.String(), x.OpPos, x.X)
		}
	case *syntax.BinaryExpr:
		x.X, x.Y = r.expr(x.X), r.expr(x.Y)
		if x.Op != syntax.AND && x.Op != syntax.OR {
			return guarded(operator(x.Op), x.OpPos, x.X, x.Y)
		}
	case *syntax.SliceExpr:
		return guarded(guardSlice, x.Lbrack, r.expr(x.X), orNone(r.expr(x.Lo)), orNone(r.expr(x.Hi)), orNone(r.expr(x.Step)))
	case *syntax.IndexExpr:
		x.X, x.Y = r.expr(x.X), guarded(guardIndex, x.Lbrack, r.expr(x.Y))
	}
	return x
}

// operator is the name of the guard of a binary operator.
func operator(op syntax.Token) string { return "binary" + op.String() }

func orNone(x syntax.Expr) syntax.Expr {
	if x == nil {
		return &syntax.Ident{Name: guardNone}
	}
	return x
}

func (r *rewriter) arguments(args []syntax.Expr) {
	for i, a := range args {
		switch a := a.(type) {
		case *syntax.BinaryExpr:
			if a.Op == syntax.EQ { // name=value
				a.Y = r.expr(a.Y)
				continue
			}
		case *syntax.UnaryExpr:
			if a.Op == syntax.STAR || a.Op == syntax.STARSTAR {
				a.X = guarded(guardSpread, a.OpPos, r.expr(a.X))
				continue
			}
		}
		args[i] = r.expr(a)
	}
}

func (r *rewriter) entry(e *syntax.DictEntry) {
	e.Key, e.Value = guarded(guardEntry, e.Colon, r.expr(e.Key)), r.expr(e.Value)
}

func (r *rewriter) comprehension(x *syntax.Comprehension) syntax.Expr {
	for _, c := range x.Clauses {
		switch c := c.(type) {
		case *syntax.ForClause:
			r.target(c.Vars)
			c.X = r.expr(c.X)
		case *syntax.IfClause:
			c.Cond = r.expr(c.Cond)
		}
	}
	entry, isDict := x.Body.(*syntax.DictEntry)
	switch {
	case isDict:
		r.entry(entry)
	case x.Curly:
		x.Body = guarded(guardEntry, x.Lbrack, r.expr(x.Body))
	default:
		x.Body = guarded(guardElement, x.Lbrack, r.expr(x.Body))
		return x
	}
	return guarded(guardDict, x.Lbrack, x)
}

// guarded is the call of a guard in the place of an operation.
func guarded(name string, at syntax.Position, args ...syntax.Expr) *syntax.CallExpr {
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: at, Name: name}, Lparen: at, Args: args, Rparen: at}
}
