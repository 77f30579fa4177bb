package meaning

import (
	"slices"
	"strconv"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// opKeys are the fields in which objects name their operation on the objects inside them.
var opKeys = [...]string{"op", "operation", "operator", "function", "func", "fn", "call", "tool", "action", "step", "task", "do"}

// groupKeys are fields whose objects are parts of the surrounding object rather than its inputs.
var groupKeys = setOf("children subtasks then else next branches body catch states items nodes on_error on_failure")

// nestedOps reads objects with operations on the objects inside them: {"op": "join", "inputs": [{"op":
// "read"}]}. Inner objects come first. It returns nil for other values.
func nestedOps(src *form.Source, root *form.Value) *Reading {
	key, _ := opOf(root, "")
	if key == "" || root.Kind != form.KindObject {
		return nil
	}
	r := &Reading{Form: "records", root: root, Stated: true, Start: root.Off, End: root.End, Weight: 91, Evidence: []string{"objects inside of objects that use them"}}
	count := map[string]int{}
	groups := false
	var inside func(v *form.Value, owner string, depth int)
	inside = func(v *form.Value, owner string, depth int) {
		if depth > src.MaxDepth || len(r.Items) > src.MaxItems {
			return
		}
		if _, name := opOf(v, key); name != "" {
			id := name
			for _, f := range v.Fields {
				if role, _ := lexicon.Field(f.Key); role == lexicon.ID && f.Val.Text() != "" {
					id = f.Val.Str
					break
				}
			}
			if count[id]++; count[id] > 1 {
				id += "#" + strconv.Itoa(count[id])
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: id, Off: v.Off, Message: name + " occurs in the text more than once; this one is named " + id})
			}
			it := Item{ID: id, Shown: true, Title: name, Parent: -1, Off: v.Off, End: v.End}
			for _, f := range v.Fields[:min(len(v.Fields), maxAttrs)] {
				if s := f.Val.Text(); hasContent(f.Val) && (f.Val.IsScalar() || linkLike(f.Val)) && s != id && s != name {
					it.Attrs = append(it.Attrs, Attr{Key: f.Key, Role: Args, Value: form.JSON(f.Val), Off: f.Off})
				}
			}
			r.Items = append(r.Items, it)
			if owner != "" {
				r.Links = append(r.Links, Link{From: id, To: owner, Source: Stated, Off: v.Off})
			}
			owner = id
		}
		for _, f := range v.Fields {
			before := len(r.Items)
			inside(f.Val, owner, depth+1)
			groups = groups || len(r.Items) > before && (groupKeys[f.Key] || planish(f.Key))
		}
		for _, x := range v.Items {
			inside(x, owner, depth+1)
		}
	}
	inside(root, "", 0)
	if groups || len(r.Items) < 3 || len(r.Links) != len(r.Items)-1 {
		return nil
	}
	return r
}

// opOf returns the field that names the operation of an object, and the operation. If key is not empty, only
// that field counts.
func opOf(v *form.Value, key string) (string, string) {
	for i := range v.Fields {
		if f := &v.Fields[i]; f.Val.Kind == form.KindString && f.Val.Str != "" && len(f.Val.Str) <= 60 && slices.Contains(opKeys[:], f.Key) && (key == "" || key == f.Key) {
			return f.Key, f.Val.Str
		}
	}
	return "", ""
}
