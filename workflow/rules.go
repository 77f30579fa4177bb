package workflow

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// rule is a comparison of a value with another one.
type rule struct {
	field    *value // a reference, with or without braces
	ref      ref
	operator string
	value    *value
	// ofItem says that the field is one of an item, not of a step.
	ofItem bool
}

// operators are the comparisons by name. Each makes an expression of the value, which is there, and of
// the one that it is compared with.
var operators = map[string]func(x, y string) string{
	"equals":       func(x, y string) string { return x + " == " + y },
	"not_equals":   func(x, y string) string { return x + " != " + y },
	"gt":           func(x, y string) string { return ordered(x, y) + x + " > " + y },
	"gte":          func(x, y string) string { return ordered(x, y) + x + " >= " + y },
	"lt":           func(x, y string) string { return ordered(x, y) + x + " < " + y },
	"lte":          func(x, y string) string { return ordered(x, y) + x + " <= " + y },
	"contains":     contains,
	"not_contains": func(x, y string) string { return "!(" + contains(x, y) + ")" },
	"starts_with":  func(x, y string) string { return isPlain(x) + " && string(" + x + ").startsWith(" + y + ")" },
	"ends_with":    func(x, y string) string { return isPlain(x) + " && string(" + x + ").endsWith(" + y + ")" },
	"matches":      func(x, y string) string { return isPlain(x) + " && string(" + x + ").matches(" + y + ")" },
	"in":           func(x, y string) string { return x + " in " + y },
	"not_in":       func(x, y string) string { return "!(" + x + " in " + y + ")" },
	"is_true":      func(x, _ string) string { return x + " == true" },
	"is_false":     func(x, _ string) string { return x + " == false" },
	"is_empty":     func(x, _ string) string { return x + " in [null, '', [], {}]" },
	"is_not_empty": func(x, _ string) string { return "!(" + x + " in [null, '', [], {}])" },
	"exists":       func(string, string) string { return "true" },
	"not_exists":   func(string, string) string { return "false" },

	"not_starts_with": func(x, y string) string { return "!(" + isPlain(x) + " && string(" + x + ").startsWith(" + y + "))" },
	"not_ends_with":   func(x, y string) string { return "!(" + isPlain(x) + " && string(" + x + ").endsWith(" + y + "))" },
	"not_matches":     func(x, y string) string { return "!(" + isPlain(x) + " && string(" + x + ").matches(" + y + "))" },
	"before":          func(x, y string) string { return byTime(x, "<", y) },
	"before_or_equal": func(x, y string) string { return byTime(x, "<=", y) },
	"after":           func(x, y string) string { return byTime(x, ">", y) },
	"after_or_equal":  func(x, y string) string { return byTime(x, ">=", y) },
	"length_eq":       func(x, y string) string { return byLength(x, "==", y) },
	"length_neq":      func(x, y string) string { return byLength(x, "!=", y) },
	"length_gt":       func(x, y string) string { return byLength(x, ">", y) },
	"length_gte":      func(x, y string) string { return byLength(x, ">=", y) },
	"length_lt":       func(x, y string) string { return byLength(x, "<", y) },
	"length_lte":      func(x, y string) string { return byLength(x, "<=", y) },
}

// operatorsInstead are what other platforms call some operators, with the name here.
var operatorsInstead = map[string]string{
	"does_not_exist": "not_exists", "matches_regex": "matches", "not_matches_regex": "not_matches", "regex": "matches",
	"eq": "equals", "equal": "equals", "==": "equals", "neq": "not_equals", "ne": "not_equals", "not_equal": "not_equals", "!=": "not_equals",
	"greater_than": "gt", ">": "gt", "greater_than_or_equal": "gte", "greater_or_equal": "gte", ">=": "gte",
	"less_than": "lt", "<": "lt", "less_than_or_equal": "lte", "less_or_equal": "lte", "<=": "lte",
	"is_null": "is_empty", "is_not_null": "is_not_empty", "empty": "is_empty", "not_empty": "is_not_empty", "is_in": "in",
	"length_equals": "length_eq", "length_not_equals": "length_neq", "length_greater_than": "length_gt", "length_less_than": "length_lt",
}

// timePattern is what times look like: 2026-01-31T18:00:00Z, or a day alone. Longer texts are none.
const timePattern = `^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])(T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d))?$`

// byTime is the condition that a text is a time which stands so to another one.
func byTime(x, sign, y string) string {
	at := func(v string) string {
		return "timestamp(size(" + v + ") == 10 ? " + v + " + 'T00:00:00Z' : " + v + ")"
	}
	text := "string(" + x + ")"
	return "type(" + x + ") == string && size(" + text + ") <= 40 && " + text + ".matches('" + timePattern + "') && " + at(text) + " " + sign + " " + at(y)
}

// byLength is the condition that a text, a list or a map has so many characters, items or keys.
func byLength(x, sign, y string) string {
	return "type(" + x + ") in [string, list, map] && size(" + x + ") " + sign + " " + y
}

func contains(x, y string) string {
	return "(type(" + x + ") in [list, map] ? " + y + " in " + x + " : " + isPlain(x) + " && string(" + x + ").contains(string(" + y + ")))"
}

// isPlain is the condition that a value has a form as text.
func isPlain(x string) string { return "type(" + x + ") in [string, int, uint, double, bool]" }

// ordered is the condition that two values can be compared by size: two numbers or two texts.
func ordered(x, y string) string {
	if strings.HasPrefix(y, `"`) {
		return "type(" + x + ") == string && "
	}
	return "type(" + x + ") in [int, uint, double] && "
}

// alone are the operators that compare with nothing, and absent those that hold where there is no
// value.
var (
	alone  = []string{"is_true", "is_false", "is_empty", "is_not_empty", "exists", "not_exists"}
	absent = []string{"not_equals", "not_contains", "not_in", "is_empty", "not_exists", "not_starts_with", "not_ends_with", "not_matches", "length_neq"}
	// ofText are those whose other side is a text, and ofList those whose is a list.
	ofText = []string{"starts_with", "ends_with", "matches", "not_starts_with", "not_ends_with", "not_matches"}
	// ofTime are those that compare times, and ofLength those that compare lengths.
	ofTime   = []string{"before", "before_or_equal", "after", "after_or_equal"}
	ofLength = []string{"length_eq", "length_neq", "length_gt", "length_gte", "length_lt", "length_lte"}
	ofList   = []string{"in", "not_in"}
	// bySize are those that compare numbers or texts.
	bySize = []string{"gt", "gte", "lt", "lte"}
)

func operatorNames() []string { return slices.Sorted(maps.Keys(operators)) }

// maxRules bounds the rules of one step.
const maxRules = 100

// rules are the items of `rules`, each keys and values.
func (o *object) rules() []*object { return o.rulesOf("rules") }

// rulesOf are the rules of a key.
func (o *object) rulesOf(key string) []*object { return o.t.rulesIn(o.list(key)) }

// rulesIn are the rules of a list.
func (t *teller) rulesIn(list []*value) []*object {
	if len(list) > maxRules {
		t.at(list[maxRules], "TOO_LARGE", "use several steps", "a step may have %d rules", maxRules)
		list = list[:maxRules]
	}
	var out []*object
	for _, v := range list {
		if in := t.object(v, "a rule"); !in.bad {
			out = append(out, in)
		}
	}
	return out
}

// reference is the reference of the first of some keys that is there, with or without braces. It is nil
// if there is none, which is told.
func (o *object) reference(keys ...string) (*value, ref) {
	v := o.mustText(keys...)
	if v == nil {
		return nil, ref{}
	}
	inner := strings.TrimSpace(v.text)
	if m := marks.FindStringSubmatch(inner); m != nil && m[0] == inner {
		inner = m[1]
	}
	r, ok := readRef(inner)
	if !ok {
		o.t.at(v, "BAD_REFERENCE", "write STEP or STEP.FIELD", "%q is no reference", clip(v.text))
		return nil, ref{}
	}
	r.at = v.at
	return v, r
}

// rule reads a rule: `{field, operator, value}`. Its field is one of a step, or of the item of a
// filter.
func (t *teller) rule(o *object) rule {
	r := rule{operator: "equals"}
	r.field, r.ref = o.reference("field")
	r.operator = t.operator(o)
	r.value = o.value("value")
	switch given := o.v.get("value"); {
	case slices.Contains(alone, r.operator):
		if given != nil {
			t.at(given, "FIELD_NOT_USED", "remove it", "%s compares with nothing", r.operator)
		}
	case given == nil:
		o.missing("value", "what the field is compared with")
	case given.kind == null:
		r.value = given
	case slices.Contains(ofText, r.operator):
		t.is(given, text)
	case slices.Contains(ofTime, r.operator):
		t.time(given)
	case slices.Contains(ofLength, r.operator):
		o.whole("value", 0, 1<<31-1, 0)
	case slices.Contains(ofList, r.operator):
		t.is(given, list)
	case slices.Contains(bySize, r.operator) && given.kind != text:
		t.is(given, number)
	case r.operator == "contains" || r.operator == "not_contains":
		if given.kind != number && given.kind != boolean {
			t.is(given, text)
		}
	}
	if given := o.v.get("value"); given != nil {
		t.unfilled(given)
	}
	return r
}

// operator is that of a rule. One that has another name here is refused with that.
func (t *teller) operator(o *object) string {
	v := o.value("operator")
	if v != nil && v.kind == text {
		if name, there := operatorsInstead[v.text]; there {
			t.at(v, "UNKNOWN_WORD", "write `"+name+"`", "`operator` cannot be `%s`", clip(v.text))
			return "equals"
		}
	}
	return o.word("operator", "equals", operatorNames()...)
}

// time tells of a value that is no time.
func (t *teller) time(v *value) {
	if !t.is(v, text) {
		return
	}
	_, err := time.Parse(time.RFC3339, v.text)
	if _, day := time.Parse(time.DateOnly, v.text); err != nil && day != nil {
		t.at(v, "BAD_TIME", "write 2026-01-31T18:00:00Z, or a day alone", "%q is no time", clip(v.text))
	}
}

// expr is the rule as a condition. A value that is not there satisfies negations only.
func (r rule) expr() string {
	y := "null"
	if r.value != nil {
		y = string(r.value.json())
	}
	holds := operators[r.operator]("dyn("+r.ref.expr()+")", y)
	return "(" + r.ref.present() + ") ? (" + holds + ") : " + strconv.FormatBool(slices.Contains(absent, r.operator))
}

// switchBody chooses where to go on.
type switchBody struct {
	rules []routeRule
	// rest is where to go if no rule holds: the id of a step, or steps of its own. route is empty for
	// neither.
	route     *value
	otherwise *value
	rest      []*Step
}

// routeRule is a rule with where it leads: to a step by its id, or to steps of its own.
type routeRule struct {
	rule
	route  *value
	inline *value
	steps  []*Step
}

// name is the route's name in the result of the step.
func (r routeRule) name(i int) string {
	if r.route != nil {
		return r.route.text
	}
	return "rule_" + strconv.Itoa(i+1)
}

// onward is the route that leads to the next step.
const onward = "continue"

func readSwitch(t *teller, o *object) body {
	b := &switchBody{}
	for _, in := range o.rules() {
		r := routeRule{rule: t.rule(in)}
		switch where, key := in.one("route", "steps"); {
		case where == nil:
			in.missing("route", "the id of the step that follows, or `steps`")
		case key == "route" && t.is(where, text):
			r.route = where
		case key == "steps":
			r.inline = where
		}
		in.done()
		b.rules = append(b.rules, r)
	}
	if len(b.rules) == 0 {
		o.missing("rules", "a list of {field, operator, value, route}")
	}
	switch v := o.value("default"); {
	case v == nil:
	case v.kind == list:
		b.otherwise = v
	case t.is(v, text):
		b.route = v
	}
	return b
}

// readRouter reads a switch over the value of one field, which names the step that follows.
func readRouter(t *teller, o *object) body {
	b := &switchBody{}
	field, r := o.reference("field")
	route := func(given, to *value) {
		if field != nil && t.is(to, text) {
			b.rules = append(b.rules, routeRule{rule: rule{field: field, ref: r, operator: "equals", value: given}, route: to})
		}
	}
	switch v := o.must("routes"); {
	case v == nil:
	case v.kind == list:
		for _, to := range o.few("routes", v.items) {
			route(to, to)
		}
	case t.is(v, mapping):
		for i := range v.entries[:min(len(v.entries), maxRules)] {
			e := &v.entries[i]
			route(&value{kind: text, text: e.key, at: e.at, under: v, key: e.key}, e.value)
		}
		if len(v.entries) > maxRules {
			t.at(v, "TOO_LARGE", "use several steps", "a step may have %d routes", maxRules)
		}
	}
	if v := o.value("default"); v != nil && t.is(v, text) {
		b.route = v
	}
	return b
}

// assertionBody checks results. It fails if fewer of its rules hold than it asks for.
type assertionBody struct {
	rules     []rule
	threshold float64
}

func readAssertion(t *teller, o *object) body {
	b := &assertionBody{threshold: 1}
	for _, in := range o.rules() {
		b.rules = append(b.rules, t.rule(in))
		in.done()
	}
	if len(b.rules) == 0 {
		o.missing("rules", "a list of {field, operator, value}")
	}
	if n, ok := o.amount("pass_threshold"); ok {
		if b.threshold = n; n > 1 {
			t.at(o.v.get("pass_threshold"), "OUT_OF_RANGE", "1 means all of the rules", "`pass_threshold` is a share from 0 to 1")
		}
	}
	return b
}

// filterBody keeps the items of a list for which all rules hold.
type filterBody struct {
	over  *value
	ref   ref
	rules []rule
}

// itemID is how rules of a filter name the item.
const itemID = "item"

func readFilter(t *teller, o *object) body {
	b := &filterBody{}
	b.over, b.ref = o.reference("over", "list")
	for _, in := range o.rules() {
		r := t.rule(in)
		if r.ofItem = true; r.field != nil && r.ref.step != itemID {
			// A field of the item may be named without it.
			r.ref.path, r.ref.step = append([]part{{r.ref.step, fieldOnly}}, r.ref.path...), itemID
		}
		r.ref.base, r.ref.there = itemID, "true"
		b.rules = append(b.rules, r)
		in.done()
	}
	if len(b.rules) == 0 {
		o.missing("rules", "a list of {field, operator, value}")
	}
	return b
}

// conditions checks the references of rules, and returns their conditions, in brackets. item is the type
// of what rules of an item are about.
func (c *compiler) conditions(s *Step, rules []rule, item typing.Type) []string {
	var out []string
	for _, r := range rules {
		switch {
		case r.field == nil:
			continue
		case r.ofItem:
			r.ref.is, r.ref.whence = c.itemPart(r, item), "the items of the list have it"
		case !c.known(s, &r.ref, r.field, false):
			continue
		}
		c.ruleFits(r)
		out = append(out, "("+r.expr()+")")
	}
	return out
}

func (b *switchBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	rules := make([]rule, len(b.rules))
	for i := range b.rules {
		rules[i] = b.rules[i].rule
	}
	var src strings.Builder
	c.stepsAre[s.ID] = typing.Record(map[string]typing.Type{"route": typing.Of(typing.String)})
	for i, cond := range c.conditions(s, rules, typing.Type{}) {
		if i < len(b.rules) {
			src.WriteString(cond + " ? {'route': " + literal(b.rules[i].name(i)) + "} : ")
		}
	}
	rest := "default"
	if b.route != nil {
		rest = b.route.text
	}
	src.WriteString("{'route': " + literal(rest) + "}")
	c.evaluatesOwn(n, s.at, src.String(), rules...)
	if b.route == nil && b.otherwise == nil {
		n.Check = &workgraph.Check{CEL: "result.route != 'default'"}
		n.Retry = workgraph.Retry{MaxAttempts: 1}
	}
}

// routes are the names of all routes of a switch.
func (b *switchBody) routes() map[string]bool {
	out := map[string]bool{}
	for i, r := range b.rules {
		out[r.name(i)] = true
	}
	switch {
	case b.route != nil:
		out[b.route.text] = true
	case b.otherwise != nil:
		out["default"] = true
	}
	return out
}

// branches are the ways on from a switch: those to steps that it names are taken when these come.
func (c *compiler) branches(s *Step, b *switchBody) []end {
	way := func(route string) end { return end{s.ID, "result.route == " + literal(route), route} }
	var out []end
	lead := func(route *value, e end) {
		if route.text == onward {
			out = append(out, e)
			return
		}
		if !slices.Contains(c.claims[route.text], e) {
			c.claims[route.text] = append(c.claims[route.text], e)
		}
	}
	for i, r := range b.rules {
		e := way(r.name(i))
		if r.route != nil {
			lead(r.route, e)
			continue
		}
		out = append(out, c.sequence(r.steps, []end{e}, true)...)
	}
	switch {
	case b.route != nil:
		lead(b.route, way(b.route.text))
	case b.otherwise != nil:
		out = append(out, c.sequence(b.rest, []end{way("default")}, true)...)
	}
	return out
}

func (b *assertionBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	conds := c.conditions(s, b.rules, typing.Type{})
	c.stepsAre[s.ID] = typing.Record(map[string]typing.Type{"passed": typing.Of(typing.Boolean), "score": typing.Of(typing.Number), "results": typing.List(typing.Of(typing.Boolean))})
	// The rules are evaluated once, as the only item of a list.
	score := "double(l.filter(x, x).size()) / " + strconv.Itoa(max(1, len(conds))) + ".0"
	c.evaluatesOwn(n, s.at, "[["+strings.Join(conds, ", ")+"]].map(l, {'passed': "+score+" >= "+strconv.FormatFloat(b.threshold, 'f', 9, 64)+", 'score': "+score+", 'results': l})[0]", b.rules...)
	n.Check, n.Retry = &workgraph.Check{CEL: "result.passed"}, workgraph.Retry{MaxAttempts: 1}
}

func (b *filterBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	over := b.ref
	if b.over == nil || !c.known(s, &over, b.over, true) {
		return
	}
	over.mark = strings.TrimSpace(b.over.text)
	c.fits(over, b.over, want{typing.Array | typing.Object, "a list", "`over`"}) // of an object it gives keys
	var item typing.Type
	if over.is.Kinds == typing.Array {
		if c.stepsAre[s.ID] = over.is; over.is.Items != nil {
			item = *over.is.Items
		}
	}
	conds := c.conditions(s, b.rules, item)
	c.evaluatesOwn(n, s.at, over.expr()+".filter("+itemID+", "+strings.Join(conds, " && ")+")", b.rules...)
}
