package workflow

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ChangeKind says what became of a part of a definition.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
	// Moved is a step that stands elsewhere among those that are in both definitions.
	Moved ChangeKind = "moved"
)

// Change is one difference between two definitions.
type Change struct {
	// Path names the part: a key such as "model" or "budget.usd", "steps.ID", "steps.ID.KEY",
	// "agents.NAME" or "agents.NAME.KEY". Steps within others are named by their own ids.
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	// Before and After are the values as JSON, empty for one that is not there. Of a step that moved
	// they say where it stands, such as "behind fetch".
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Changes are all differences between two definitions. They are no longer than both texts together.
type Changes []Change

// Diff tells what must be changed in a definition to make another one of it: keys in the order of the
// language, then agents and steps, those that are removed first. A step is the same if its id is,
// wherever it stands. Comments and the order of keys do not count.
func Diff(a, b *Definition) Changes {
	var d differ
	was, is := a.root.finder(), b.root.finder()
	for _, key := range keysOf(a.root, b.root, topKeys) {
		if key != "steps" && key != "agents" {
			d.values(key, was(key), is(key))
		}
	}
	d.agents(a, b)
	d.steps(a, b)
	return d.out
}

type differ struct{ out Changes }

// keysOf are the keys of two mappings, each once: those of an order first, then the others as they
// come.
func keysOf(a, b *value, order []string) []string {
	var out []string
	seen := map[string]bool{}
	note := func(key string) {
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	for _, key := range order {
		if a.get(key) != nil || b.get(key) != nil {
			note(key)
		}
	}
	for _, v := range []*value{a, b} {
		for i := range v.entries {
			note(v.entries[i].key)
		}
	}
	return out
}

// values compares two values, of which one may be missing. Keys are compared by themselves, lists as a
// whole.
func (d *differ) values(path string, a, b *value) {
	switch {
	case a == nil && b == nil:
	case a == nil:
		d.out = append(d.out, Change{Path: path, Kind: Added, After: string(b.json())})
	case b == nil:
		d.out = append(d.out, Change{Path: path, Kind: Removed, Before: string(a.json())})
	case a.kind == mapping && b.kind == mapping:
		was, is := a.finder(), b.finder()
		for _, key := range keysOf(a, b, nil) {
			d.values(path+"."+key, was(key), is(key))
		}
	case !equal(a, b):
		d.out = append(d.out, Change{Path: path, Kind: Changed, Before: string(a.json()), After: string(b.json())})
	}
}

// equal reports whether two values mean the same, keys in any order.
func equal(a, b *value) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) || len(a.entries) != len(b.entries) || a.kind != null && a.text != b.text {
		return false
	}
	for i := range a.items {
		if !equal(a.items[i], b.items[i]) {
			return false
		}
	}
	find := b.finder()
	for i := range a.entries {
		other := find(a.entries[i].key)
		if other == nil || !equal(a.entries[i].value, other) {
			return false
		}
	}
	return true
}

func (d *differ) agents(a, b *Definition) {
	of := func(d *Definition) *value {
		if v := d.root.get("agents"); v != nil {
			return v
		}
		return &value{kind: mapping}
	}
	before, after := of(a), of(b)
	was, is := before.finder(), after.finder()
	for _, name := range keysOf(before, after, nil) {
		d.values("agents."+name, was(name), is(name))
	}
}

// stepAt is a step with where it stands.
type stepAt struct {
	*Step
	// list names the list that the step stands in, and behind the step before it, if there is one.
	list, behind string
	number       int
}

func (s *stepAt) place() string {
	switch {
	case s.behind != "":
		return "behind " + s.behind
	case s.list != "":
		return "first of " + s.list
	}
	return "first"
}

// placed are the steps of a definition by id, and their ids in order.
func placed(d *Definition) (map[string]*stepAt, []string) {
	steps, order := map[string]*stepAt{}, []string(nil)
	var walk func(list []*Step, name, within string)
	walk = func(list []*Step, name, within string) {
		behind := ""
		for _, s := range list {
			inside := within
			if s.whole() { // its keys are those of the workflow
				continue
			}
			if s.Parallel == nil {
				steps[s.ID] = &stepAt{Step: s, list: name, behind: behind, number: len(order)}
				order = append(order, s.ID)
				behind, inside = s.ID, s.ID
			} else {
				behind = ""
			}
			for i, in := range s.within() {
				walk(in, strings.TrimPrefix(fmt.Sprintf("%s branch %d", inside, i+1), " "), inside)
			}
		}
	}
	walk(d.Steps, "", "")
	return steps, order
}

func (d *differ) steps(a, b *Definition) {
	before, was := placed(a)
	after, is := placed(b)
	for _, id := range was {
		if after[id] == nil {
			d.out = append(d.out, Change{Path: "steps." + id, Kind: Removed, Before: string(outline(before[id].Step).json())})
		}
	}
	stay := unmoved(before, after, is)
	for _, id := range is {
		x, y := before[id], after[id]
		path := "steps." + id
		switch {
		case x == nil:
			d.out = append(d.out, Change{Path: path, Kind: Added, After: string(outline(y.Step).json())})
			continue
		case x.list != y.list || !stay[id]:
			d.out = append(d.out, Change{Path: path, Kind: Moved, Before: x.place(), After: y.place()})
		}
		d.values(path, outline(x.Step), outline(y.Step))
	}
}

// unmoved are the steps whose order among each other is the same in both definitions: as many as can
// be.
func unmoved(before, after map[string]*stepAt, is []string) map[string]bool {
	var common []string
	for _, id := range is {
		if x := before[id]; x != nil && x.list == after[id].list {
			common = append(common, id)
		}
	}
	// The longest rising sequence of the former places. tails[n] is the end of the best one of n+1
	// steps.
	var tails []int
	prior := make([]int, len(common))
	for i, id := range common {
		n, _ := slices.BinarySearchFunc(tails, before[id].number, func(t, number int) int { return before[common[t]].number - number })
		prior[i] = -1
		if n > 0 {
			prior[i] = tails[n-1]
		}
		if n == len(tails) {
			tails = append(tails, i)
		} else {
			tails[n] = i
		}
	}
	out := map[string]bool{}
	if len(tails) == 0 {
		return out
	}
	for i := tails[len(tails)-1]; i >= 0; i = prior[i] {
		out[common[i]] = true
	}
	return out
}

// outline is a step without its id and without the steps within it, which are compared by themselves.
func outline(s *Step) *value {
	within := map[*value]bool{}
	for _, in := range s.within() {
		for _, step := range in {
			within[step.at] = true
		}
	}
	var cut func(v *value) *value
	cut = func(v *value) *value {
		out := &value{kind: v.kind, text: v.text}
		for _, item := range v.items {
			if !within[item] {
				out.items = append(out.items, cut(item))
			}
		}
		for _, e := range v.entries {
			if v != s.at || e.key != "id" {
				out.entries = append(out.entries, entry{key: e.key, value: cut(e.value)})
			}
		}
		return out
	}
	return cut(s.at)
}

// String tells the changes one by one, each on a line of its own.
func (c Changes) String() string {
	var b strings.Builder
	for _, change := range c {
		b.WriteString(change.String() + "\n")
	}
	return b.String()
}

// String tells the change on one line. Long values are cut around the place where they differ.
func (c Change) String() string {
	what := c.Path
	for kind, prefix := range map[string]string{"step ": "steps.", "agent ": "agents."} {
		if rest, ok := strings.CutPrefix(c.Path, prefix); ok {
			name, key, has := strings.Cut(rest, ".")
			if what = kind + name; has {
				what += ": " + key
			}
		}
	}
	before, after := excerpts(c.Before, c.After)
	switch c.Kind {
	case Added:
		return what + " added: " + after
	case Removed:
		return what + " removed: " + before
	case Moved:
		return what + " moved, was " + c.Before + ", is " + c.After
	case Changed:
	}
	return what + " changed from " + before + " to " + after
}

// excerpts are the parts of two texts around the first place where they differ.
func excerpts(a, b string) (of, and string) {
	const lead, most = 12, 60
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	if from = max(0, from-lead); len(a) <= most && len(b) <= most || a == "" || b == "" {
		from = 0
	}
	return excerpt(a, from, most), excerpt(b, from, most)
}

func excerpt(s string, from, most int) string {
	for from > 0 && from < len(s) && !utf8.RuneStart(s[from]) {
		from--
	}
	if from > 0 {
		s = "…" + s[min(from, len(s)):]
	}
	if r := []rune(s[:min(len(s), 4*most)]); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
