package meaning

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// origin is the call or object from which an item was made.
type origin struct {
	expr      *form.Expr
	elsewhere map[string]bool // arguments that are read otherwise, by key, or by position if they have no key
	body      bool            // the lines below the first one are the body of the item
}

// maxSource bounds the source text that stands for an argument that is no plain value, in bytes.
const maxSource = 1000

// arguments sets the arguments of the items from the calls that make them, each with its type. An argument
// without a key is positional. The argument that names the item is left out.
func (p *program) arguments(text string) {
	for k := range p.r.Items {
		it := &p.r.Items[k]
		m := p.origins[k]
		if m.body {
			it.Details = body(text, it)
		}
		refs := byOffset(it.Refs)
		for e := m.expr; e != nil && (e.Kind == form.Call || e.Kind == form.List); e = e.Base {
			for n, a := range e.Args {
				if len(it.Attrs) == maxAttrs || a.Val.End == a.Val.Off {
					break
				}
				role, _ := lexicon.Field(a.Key)
				if m.body && (role == lexicon.Requires || role == lexicon.Next) {
					continue
				}
				p.argument(it, refs, a, text)
				if name := a.Val.Path(); m.elsewhere[argKey(n, a)] || isName(a, it) || name != "" && (name == callName(e) || name == "self" || name == "this") {
					it.Attrs = it.Attrs[:len(it.Attrs)-1]
				}
			}
			if e.Base != nil && e.Base.Kind == form.Attr { // f(x).options(n=3), f(x)(y)
				e = e.Base
			}
			if e.Base == nil || e.Base.Kind != form.Call {
				break
			}
		}
	}
}

// body returns the text of an item below its first line.
func body(text string, it *Item) string {
	end := min(it.End, len(text))
	n := strings.IndexByte(text[it.Off:max(end, it.Off)], '\n')
	if n < 0 {
		_, rest, _ := strings.Cut(text[it.Off:max(end, it.Off)], "{")
		return strings.TrimSpace(rest)
	}
	return dedent(strings.Split(strings.TrimRight(text[it.Off+n+1:end], " \t\r\n}"), "\n"))
}

// argKey returns the key of an argument, or its index if it has none.
func argKey(n int, a form.ArgExpr) string {
	if a.Key == "" {
		return itoa(n)
	}
	return a.Key
}

// isName reports whether an argument holds nothing but the id or the title of an item.
func isName(a form.ArgExpr, it *Item) bool {
	x := a.Val.Path()
	if isText(a.Val) {
		x = a.Val.Text
	}
	return x != "" && (x == it.ID || x == it.Title)
}

// byOffset returns references in the order of their offsets.
func byOffset(refs []Ref) []*Ref {
	out := make([]*Ref, len(refs))
	for i := range refs {
		out[i] = &refs[i]
	}
	slices.SortStableFunc(out, func(a, b *Ref) int { return a.Off - b.Off })
	return out
}

// argument adds an argument to an item, and sets the argument's key at the references inside of it.
func (p *program) argument(it *Item, refs []*Ref, a form.ArgExpr, text string) {
	attr := Attr{Key: a.Key, Role: roleOf(a.Key, a.Val.Text), Off: a.Val.Off}
	i, _ := slices.BinarySearchFunc(refs, a.Val.Off, func(r *Ref, off int) int { return r.Off - off })
	for ; i < len(refs) && refs[i].Off < a.Val.End; i++ {
		refs[i].Arg, attr.Refers = a.Key, true
	}
	var b strings.Builder
	if literal(a.Val, text, &b, 0) {
		attr.Value = b.String()
	} else {
		attr.Value = form.Quote(strings.TrimSpace(text[a.Val.Off:min(a.Val.End, a.Val.Off+maxSource)]))
	}
	it.Attrs = append(it.Attrs, attr)
	if isText(a.Val) && a.Val.Open {
		p.note(true, "UNCLOSED", it.ID, "a text among the arguments of "+it.ID+" is not closed", "write the closing quotation mark", a.Val.Off)
	}
}

// toolNames are the names of fields that can only name a tool.
var toolNames = wordsOf("names of tools")

// roleOf returns the role of a field of an item. The value of an ambiguous field such as "action" or "run" is
// a tool only if it is a single word.
func roleOf(key, value string) Role {
	role, _ := lexicon.Field(key)
	if role == lexicon.Tool && !toolNames[strings.ToLower(key)] && (strings.Contains(value, " ") || digits(value)) {
		return ""
	}
	return roleOfAttr[role]
}

// literal writes an expression as JSON. It returns false if the expression is no plain value.
func literal(e *form.Expr, text string, b *strings.Builder, depth int) bool {
	if e == nil || depth > 100 {
		return false
	}
	switch e.Kind {
	case form.Text:
		s := e.Text
		if c := text[e.Off] | 0x20; c != 'r' { // escapes in a raw string are no escapes
			s = form.Unescape(s, true)
		}
		b.WriteString(form.Quote(s))
	case form.Digits:
		s := strings.ReplaceAll(e.Text, "_", "")
		if e.Off > 0 && text[e.Off-1] == '-' {
			s = "-" + s
		}
		if !json.Valid([]byte(s)) {
			return false
		}
		b.WriteString(s)
	case form.Ident:
		switch e.Text {
		case "true", "True":
			b.WriteString("true")
		case "false", "False":
			b.WriteString("false")
		case "null", "None", "nil", "undefined":
			b.WriteString("null")
		default:
			return false
		}
	case form.List:
		return literalList(e, text, b, depth)
	default:
		return false
	}
	return true
}

// literalList writes a list of plain values, or an object if all of them have keys.
func literalList(e *form.Expr, text string, b *strings.Builder, depth int) bool {
	keyed := len(e.Args) > 0 && e.Args[0].Key != ""
	open, closing := "[", "]"
	if keyed || text[e.Off] == '{' && len(e.Args) == 0 {
		open, closing = "{", "}"
	}
	b.WriteString(open)
	for i, a := range e.Args {
		if i > 0 {
			b.WriteByte(',')
		}
		if keyed {
			b.WriteString(form.Quote(a.Key) + ":")
		}
		if (a.Key != "") != keyed || !literal(a.Val, text, b, depth+1) {
			return false
		}
	}
	b.WriteString(closing)
	return true
}
