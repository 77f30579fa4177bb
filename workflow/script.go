package workflow

import (
	"fmt"
	"strings"

	"go.starlark.net/syntax"
)

// maxScript bounds the text of a script, in bytes. It is what the actor starlark takes.
const maxScript = 64 << 10

// script is a script in which the named arguments are variables. One that is written like the body of a
// function, with `return`, becomes one.
func script(code string, named []string) (string, error) {
	if len(code) > maxScript {
		return "", fmt.Errorf("the script has %d bytes, the limit is %d", len(code), maxScript)
	}
	options := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}
	f, err := options.Parse("script", code, 0)
	if err != nil {
		return "", fmt.Errorf("the script cannot be read: %w", err)
	}
	if !returns(f.Stmts) {
		values := make([]string, len(named))
		for i, name := range named {
			values[i] = "named[" + literal(name) + "]"
		}
		return strings.Join(named, ", ") + " = " + strings.Join(values, ", ") + "\n" + code, nil
	}
	inside := textLines(f)
	var b strings.Builder
	b.WriteString("def main(" + strings.Join(named, ", ") + "):\n")
	n := int32(0)
	for line := range strings.Lines(code) {
		if n++; !inside[n] {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String(), nil
}

// returns reports whether statements return from the function that they are the body of.
func returns(stmts []syntax.Stmt) bool {
	found := false
	for _, s := range stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n.(type) {
			case *syntax.DefStmt, *syntax.LambdaExpr:
				return false
			case *syntax.ReturnStmt:
				found = true
			}
			return !found
		})
	}
	return found
}

// textLines are the lines of a script that begin within a text, where blanks would belong to it.
func textLines(f *syntax.File) map[int32]bool {
	inside := map[int32]bool{}
	for _, s := range f.Stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			if l, ok := n.(*syntax.Literal); ok {
				for i := range strings.Count(l.Raw, "\n") {
					inside[l.TokenPos.Line+int32(i)+1] = true
				}
			}
			return true
		})
	}
	return inside
}
