package workgraph

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

const (
	// maxExprLen bounds the text of one expression in bytes. maxExprTokens bounds the words, numbers, texts
	// and signs in it; the parser takes some ten microseconds for each.
	maxExprLen    = 16 << 10
	maxExprTokens = 4000
	// maxExprDepth bounds the nesting that the parser accepts.
	maxExprDepth = 250
	// maxExprNesting bounds the nesting of lists, maps and macros, and maxExprTypes the sum of the squares of
	// these depths: the type of each is as long as it is deep, and the checker walks through everything in
	// it.
	maxExprNesting = 32
	maxExprTypes   = 30_000
)

// parse reads the text of an expression and refuses text that would take the checker long. It makes every
// round of a macro and every computed index a call, so that both are charged.
func (env *environment) parse(ctx context.Context, src string) (*cel.Ast, error) {
	if len(src) > maxExprLen {
		return nil, fmt.Errorf("expression is longer than %d bytes", maxExprLen)
	}
	if countTokens(src) > maxExprTokens {
		return nil, fmt.Errorf("expression has more than %d words and signs", maxExprTokens)
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	parsed, iss := env.Parse(src)
	if err := env.firstIssue(src, iss); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	r := rewriter{tree: parsed.NativeRep(), make: ast.NewExprFactory(), id: ast.MaxID(parsed.NativeRep())}
	r.visit(r.tree.Expr(), 0)
	if r.fault != "" {
		return nil, fmt.Errorf("expression has %s", r.fault)
	}
	return parsed, nil
}

// firstIssue is the first error of the parser or the checker in plain words, with its place in src. It is nil
// if there is none.
func (env *environment) firstIssue(src string, iss *cel.Issues) error {
	if iss.Err() == nil {
		return nil
	}
	all := iss.Errors()
	if len(all) == 0 {
		return iss.Err()
	}
	at := all[0].Location
	words := exprWords(all[0].Message)
	if strings.HasPrefix(words, nothingCalled) && strings.HasSuffix(words, " here") {
		words += "; there " + isOrAre(env.names) + ", and functions of CEL"
	}
	return errors.New(pointAt(src, at.Line(), at.Column(), words))
}

func isOrAre(names []string) string {
	if len(names) == 1 {
		return "is " + names[0]
	}
	return "are " + strings.Join(names, ", ")
}

// maxIssue bounds, in bytes, the message about a fault, because the checker prints types.
const maxIssue = 400

// countTokens counts words, numbers, texts and signs.
func countTokens(src string) int {
	n := 0
	for i := 0; i < len(src); n++ {
		switch c := src[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
			i++
			n--
		case c == '"' || c == '\'':
			i += quoted(src[i:], strings.ContainsAny(src[max(0, i-2):i], "rR"))
		case wordByte(c):
			for i < len(src) && wordByte(src[i]) {
				i++
			}
		default:
			i++
		}
	}
	return n
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// quoted is the length of the quoted text at the start of src. A quote that is not closed on its line counts
// as a sign.
func quoted(src string, raw bool) int {
	end := src[:1]
	if strings.HasPrefix(src, strings.Repeat(end, 3)) {
		end = src[:3]
	}
	for i := len(end); i < len(src); i++ {
		switch {
		case strings.HasPrefix(src[i:], end):
			return i + len(end)
		case src[i] == '\\' && !raw:
			i++
		case src[i] == '\n' && len(end) == 1:
			return 1
		}
	}
	return 1
}

// rewriter walks through a parsed expression.
type rewriter struct {
	tree  *ast.AST
	make  ast.ExprFactory
	id    int64
	types int
	fault string
}

// visit measures e, at nesting depth in lists, maps and macros, and everything below it. It returns how deep
// lists, maps and macros are nested in e.
func (r *rewriter) visit(e ast.Expr, depth int) (below int) {
	if r.fault != "" {
		return 0
	}
	kids := func(list ...ast.Expr) {
		for _, k := range list {
			if k != nil {
				below = max(below, r.visit(k, depth))
			}
		}
	}
	collects := true
	switch e.Kind() {
	case ast.ListKind:
		kids(e.AsList().Elements()...)
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			kids(x.AsMapEntry().Key(), x.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			kids(f.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		kids(c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
		// A condition that calls nothing would make a round free of charge.
		if cond := c.LoopCondition(); cond.Kind() == ast.LiteralKind && cond.AsLiteral() == types.True {
			cond.SetKindCase(r.make.NewCall(cond.ID(), stepFunction))
		}
	case ast.CallKind:
		collects = false
		c := e.AsCall()
		if c.IsMemberFunction() {
			kids(c.Target())
		}
		kids(c.Args()...)
		if args := c.Args(); c.FunctionName() == operators.Index && len(args) == 2 && args[1].Kind() != ast.LiteralKind {
			r.id++
			if at, ok := r.tree.SourceInfo().GetOffsetRange(args[1].ID()); ok {
				r.tree.SourceInfo().SetOffsetRange(r.id, at)
			}
			e.SetKindCase(r.make.NewCall(e.ID(), operators.Index, args[0], r.make.NewCall(r.id, indexFunction, args[1])))
		}
	case ast.SelectKind:
		collects = false
		kids(e.AsSelect().Operand())
	default:
		return 0
	}
	if collects {
		below++
		r.types += below * below
	}
	switch {
	case below > maxExprNesting:
		r.fault = fmt.Sprintf("more than %d lists, maps and macros in each other", maxExprNesting)
	case r.types > maxExprTypes:
		r.fault = "too many lists, maps and macros in each other"
	}
	return below
}
