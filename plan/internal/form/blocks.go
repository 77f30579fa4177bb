package form

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// labeled is a line that is a field of a block: "Depends on: 1", "- **Owner:** Ann". A number before the
// first field of a block is a field as well.
type labeled struct {
	fields []Field
	key    string // of the last field, folded
	end    int
}

// Blocks returns the lists of records that have each field on a line of its own and begin with the same
// field: "Task: dig", "Depends on: none", "Task: plant", "Depends on: dig". Bullets and emphasis are ignored.
func Blocks(src *Source) (trees []*Tree) {
	budget := maxValueNodes
	for i := 0; i < len(src.Lines) && budget > 0; i++ {
		var run []labeled
		for ; i < len(src.Lines); i++ {
			l := &src.Lines[i]
			if l.Text == "" || isRule(l.Text) {
				continue
			}
			f, ok := fieldLine(l)
			if !ok {
				break
			}
			budget--
			run = append(run, f)
		}
		if t := blocks(run); t != nil {
			trees = append(trees, t)
		}
	}
	return trees
}

// blocks makes records of the fields of consecutive lines. It returns nil if they are no records.
func blocks(run []labeled) *Tree {
	count := map[string]int{}
	for i := range run {
		count[run[i].key]++
	}
	first := 0
	for first < len(run) && count[run[first].key] < 2 {
		first++
	}
	if first == len(run) || count[run[first].key] < 2 {
		return nil
	}
	head, related := run[first].key, false
	root := &Value{Kind: KindList, Off: run[first].fields[0].Off}
	var rec *Value
	for _, l := range run[first:] {
		role, known := lexicon.Field(l.key)
		if count[l.key] < 2 && !known {
			return nil // a line of another kind: "T2: plant"
		}
		related = related || role == lexicon.Requires || role == lexicon.Next
		if l.key == head {
			rec = &Value{Kind: KindObject, Off: l.fields[0].Off}
			root.Items = append(root.Items, rec)
		}
		rec.Fields = append(rec.Fields, l.fields...)
		rec.End, root.End = l.end, l.end
	}
	if !related || len(count) < 2 || len(root.Items) < 2 {
		return nil
	}
	return &Tree{Root: root, YAML: true, AnyKeys: true, Texts: true}
}

// fieldLine reads a line as a field.
func fieldLine(l *Line) (out labeled, ok bool) {
	if l.Fence || l.InCode && !ProseFence(l.Lang) || strings.HasPrefix(l.Text, "#") || strings.HasPrefix(l.Text, "|") {
		return out, false
	}
	s := blankEmphasis(l.Text)
	var it Item
	at := skipSpace(s, it.bullet(s, 0))
	if m := numberMark(s, at); m.Style == Number && !m.Weak && m.Noun == "" && m.End < len(s) {
		out.fields = append(out.fields, Field{Key: "#", Off: l.Off + at, Val: &Value{Kind: KindString, Str: m.Label, Off: l.Off + at, End: l.Off + at + len(m.Label)}})
		at = skipSpace(s, m.End)
	}
	colon := strings.IndexAny(s[at:min(len(s), at+2*maxLabel)], ":：")
	if colon <= 0 {
		return out, false
	}
	name := strings.TrimSpace(s[at : at+colon])
	rest := at + colon + 1
	if s[at+colon] != ':' {
		rest = at + colon + len("：")
	} else if rest < len(s) && s[rest] != ' ' {
		return out, false
	}
	if strings.Count(name, " ") > 3 || strings.ContainsAny(name, ".,;()[]{}\"?!|=") {
		return out, false
	}
	rest = skipSpace(s, rest)
	value := strings.TrimRight(s[rest:], " ")
	out.key, out.end = lexicon.Fold(name), l.End
	out.fields = append(out.fields, Field{Key: name, Off: l.Off + at, Val: &Value{Kind: KindString, Str: value, Off: l.Off + rest, End: l.Off + rest + len(value)}})
	return out, true
}
