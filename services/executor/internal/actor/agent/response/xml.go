package response

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/lenient"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

// The tags of the XML form, in small letters.
const (
	tagResponse     = "structuredresponse"
	tagNextActions  = "immediatenextactions"
	tagGroup        = "alternativeactions"
	tagAction       = "action"
	tagType         = "type"
	tagTarget       = "target"
	tagReasoning    = "reasoning"
	tagFollowUp     = "isfollowup"
	tagMemory       = "memorytarget"
	tagArgs         = "args"
	tagInstant      = "instantresponse"
	tagNewTask      = "newtask"
	tagStatus       = "taskstatus"
	tagDescription  = "taskstatusdescription"
	tagExtended     = "taskstatusdescriptionextended"
	tagLearnings    = "instantlearnings"
	tagLearning     = "instantlearning"
	tagLearningID   = "learningid"
	tagLearningText = "learningcontent"
)

// within which tag each tag counts. Elsewhere its name is text, like any other markup.
var inside = map[string][]string{
	tagNextActions: {"", tagResponse}, tagInstant: {"", tagResponse}, tagNewTask: {"", tagResponse}, tagStatus: {"", tagResponse},
	tagDescription: {"", tagResponse}, tagExtended: {"", tagResponse}, tagLearnings: {"", tagResponse}, tagResponse: {""},
	tagGroup: {tagNextActions}, tagAction: {tagNextActions, tagGroup},
	tagType: {tagAction}, tagTarget: {tagAction}, tagReasoning: {tagAction}, tagFollowUp: {tagAction}, tagMemory: {tagAction}, tagArgs: {tagAction},
	tagLearning: {tagLearnings}, tagLearningID: {tagLearnings, tagLearning}, tagLearningText: {tagLearnings, tagLearning},
}

// leaf reports whether a tag holds text, in which only its own end is looked for.
func leaf(tag string) bool {
	switch tag {
	case tagResponse, tagNextActions, tagGroup, tagAction, tagLearnings, tagLearning:
		return false
	}
	return true
}

// element is a part of the XML form.
type element struct {
	tag      string
	text     string
	children []*element
	attrs    []lenient.Attr // of Args
}

// readXML reads the XML form out of a text. ok is false if the text is not in that form. Only the tags of the
// form count, and each only where it belongs, so that markup and loose angle brackets within a text are part
// of the text. An end that is missing is where the element around it ends, or the next element of the form
// begins.
func readXML(s string) (r *Response, ok bool, err error) {
	top, ok, err := elements(s)
	if !ok || err != nil {
		return nil, ok, err
	}
	r = &Response{}
	if err := r.takeAll(top); err != nil {
		return nil, true, err
	}
	if r.InstantResponse == "" && r.Groups == nil && r.Status == "" && r.Description == "" {
		return nil, true, fmt.Errorf("the response says nothing: write ImmediateNextActions, or an InstantResponse with the TaskStatus Completed or Pending")
	}
	return r, true, nil
}

// elements are the elements at the top of a text in the XML form. ok is false if the text has no tag of the
// form, or if JSON stands around the first one: a decision in JSON may quote tags.
func elements(s string) (top []*element, ok bool, err error) {
	all, whole := tokens(mask(s))
	first := slices.IndexFunc(all, func(t token) bool { return !t.closes && slices.Contains(inside[t.tag], "") })
	switch {
	case first < 0 || withinJSON(s, all[first].from):
		return nil, false, nil
	case !whole:
		return nil, true, fmt.Errorf("there are more than %d tags, far too many", maxTags)
	}
	for _, e := range scan(s, all).children {
		if e.tag == tagResponse {
			top = append(top, e.children...)
		} else {
			top = append(top, e)
		}
	}
	return top, true, nil
}

// takeAll adds the elements of the top to the response. It returns the first fault, and takes the other
// elements all the same.
func (r *Response) takeAll(top []*element) (first error) {
	var said []string
	for _, e := range top {
		if e.tag == tagInstant {
			said = append(said, e.value())
		} else if err := r.take(e); first == nil {
			first = err
		}
	}
	r.InstantResponse = lines(said...)
	return first
}

// take adds one element of the top to the response.
func (r *Response) take(e *element) error {
	value := e.value()
	switch e.tag {
	case tagDescription:
		r.Description = value
	case tagExtended:
		r.DescriptionExtended = value
	case tagNewTask:
		r.NewTask = yes(value)
	case tagStatus:
		if value == "" {
			return nil
		}
		for _, s := range []Status{Ongoing, Pending, Completed} {
			if strings.EqualFold(value, string(s)) {
				r.Status = s
				return nil
			}
		}
		return fmt.Errorf("TaskStatus %.80q is none of Ongoing, Pending and Completed", value)
	case tagLearnings:
		r.learn(e)
	case tagNextActions:
		for _, c := range e.children {
			group, err := c.group()
			if err != nil {
				return fmt.Errorf("ImmediateNextActions, group %d: %w", len(r.Groups)+1, err)
			}
			if len(group) > 0 {
				r.Groups = append(r.Groups, group)
			}
		}
		if len(r.Groups) > maxGroups {
			return fmt.Errorf("there are %d groups, far too many", len(r.Groups))
		}
		r.empty = len(e.children) > 0 && len(r.Groups) == 0
	}
	return nil
}

// lines are texts that are not empty, below each other.
func lines(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}

func yes(s string) bool {
	return strings.EqualFold(s, "true") || strings.EqualFold(s, "yes") || s == "1"
}

// learn reads learnings: pairs of an id and a content, within an element for each or not.
func (r *Response) learn(e *element) {
	var l Learning
	flush := func() {
		if l.Content != "" && len(r.Learnings) < maxLearnings {
			r.Learnings = append(r.Learnings, l.bounded())
		}
		l = Learning{}
	}
	for _, c := range e.children {
		switch c.tag {
		case tagLearning:
			flush()
			r.learn(c)
		case tagLearningID:
			flush()
			l.ID = c.value()
		case tagLearningText:
			l.Content = c.value()
			flush()
		}
	}
	flush()
}

// group is a group of actions, or an action alone as the group of it.
func (e *element) group() ([]Action, error) {
	if e.tag == tagAction {
		a, err := e.action()
		return []Action{a}, err
	}
	var out []Action
	for i, c := range e.children {
		a, err := c.action()
		if err != nil {
			return nil, fmt.Errorf("action %d: %w", i+1, err)
		}
		out = append(out, a)
	}
	return out, nil
}

func (e *element) action() (Action, error) {
	a := Action{texts: true}
	target := ""
	for _, c := range e.children {
		switch v := c.value(); c.tag {
		case tagType:
			a.Type = v
		case tagTarget:
			target = v
		case tagReasoning:
			a.Reasoning = v
		case tagFollowUp:
			a.FollowUp = yes(v)
		case tagMemory:
			a.Memory = v
		case tagArgs:
			args, texts, err := xmlArguments(c.text)
			if err != nil {
				return a, fmt.Errorf("the Args of %.80q are neither elements nor a JSON object: %w", a.Type, err)
			}
			for _, at := range c.attrs {
				if args[at.Name], err = actor.Encode(at.Value); err != nil {
					return a, err
				}
			}
			a.Arguments, a.texts = args, texts
		}
	}
	if a.Type == "" {
		a.Type = strings.TrimSpace(plain(e.text)) // <Action>name</Action>
	}
	if a.Type == "" {
		return a, fmt.Errorf("an Action has no Type")
	}
	if a.Arguments == nil {
		a.Arguments = map[string]json.RawMessage{}
	}
	if _, given := a.Arguments["target"]; target != "" && !given {
		raw, err := actor.Encode(target)
		if err != nil {
			return a, err
		}
		a.Arguments["target"] = raw
	}
	return a, nil
}

// xmlArguments reads the content of Args: a JSON object, or an element for each argument. Elements of one
// name are a list.
func xmlArguments(s string) (args map[string]json.RawMessage, texts bool, err error) {
	if inner := lenient.Unfence(plain(s)); strings.HasPrefix(inner, "{") {
		args, err = argumentsIn(inner)
		return args, false, err
	}
	args = map[string]json.RawMessage{}
	many := map[string][]json.RawMessage{}
	masked := mask(s)
	original := func(rest string, n int) string { return s[len(s)-len(rest):][:n] }
	for rest := masked; ; {
		at := strings.IndexByte(rest, '<')
		if at < 0 {
			break
		}
		name, _, n := lenient.Tag(rest, at)
		if n == 0 || len(name) > maxTagName || name[0] == '/' {
			rest = rest[at+1:]
			continue
		}
		tag, after := rest[at:at+n], rest[at+n:]
		if len(args) > maxActions {
			return nil, false, fmt.Errorf("there are more than %d arguments", maxActions)
		}
		body := ""
		if !strings.HasSuffix(tag, "/>") {
			n, next := until(after, name)
			body, after = original(after, n), next
		}
		raw, err := actor.Encode(strings.TrimSpace(plain(body)))
		if err != nil {
			return nil, false, err
		}
		many[name] = append(many[name], raw)
		if v := many[name]; len(v) == 1 {
			args[name] = raw
		}
		rest = after
	}
	for name, v := range many {
		if len(v) > 1 {
			args[name] = append(append(json.RawMessage("["), bytes.Join(asBytes(v), []byte(","))...), ']')
		}
	}
	if len(args) == 0 && strings.TrimSpace(s) != "" {
		return nil, false, fmt.Errorf("%.80q", strings.TrimSpace(s))
	}
	return args, true, nil
}

func asBytes(v []json.RawMessage) [][]byte {
	out := make([][]byte, len(v))
	for i := range v {
		out[i] = v[i]
	}
	return out
}

// maxTagName bounds the name of an argument that is written as an element, in bytes.
const maxTagName = 64

// until is the length of the text up to the end tag of that name, and what follows. Without one it is all of
// the text.
func until(s, name string) (length int, after string) {
	if at, n := endTag(s, name); at >= 0 {
		return at, s[at+n:]
	}
	return len(s), ""
}

const cdata, cdataEnd = "<![CDATA[", "]]>"

// mask is the text with the angle brackets within CDATA sections blanked out, so that no tag is found there.
func mask(s string) string {
	if !strings.Contains(s, cdata) {
		return s
	}
	b := []byte(s)
	for i := 0; ; {
		at := strings.Index(s[i:], cdata)
		if at < 0 {
			break
		}
		at += i + len(cdata)
		end := strings.Index(s[at:], cdataEnd)
		if end < 0 {
			break
		}
		for k := at; k < at+end; k++ {
			if b[k] == '<' {
				b[k] = ' '
			}
		}
		i = at + end
	}
	return string(b)
}

// endTag finds "</name>", in letters of any case.
func endTag(s, name string) (at, length int) {
	for from := 0; ; {
		i := strings.Index(s[from:], "</")
		if i < 0 {
			return -1, 0
		}
		i += from
		rest := s[i+2:]
		if len(rest) >= len(name) && strings.EqualFold(rest[:len(name)], name) {
			tail := strings.TrimLeft(rest[len(name):], " \t\r\n")
			if strings.HasPrefix(tail, ">") {
				return i, len(s[i:]) - len(tail) + 1
			}
		}
		from = i + 2
	}
}

// token is a tag of the form in a text.
type token struct {
	from, to int // the place of the tag
	tag      string
	attrs    []lenient.Attr
	closes   bool
	empty    bool // <Tag/>
	next     int  // the next token of the same tag, or 0
}

// maxTags bounds the tags of the form in one text.
const maxTags = 20_000

// tokens finds the tags of the form. whole is false if there are more than maxTags: then these are the first.
func tokens(s string) (out []token, whole bool) {
	last := map[string]int{}
	for i := 0; ; i++ {
		at := strings.IndexByte(s[i:], '<')
		if at < 0 {
			return out, true
		}
		i += at
		name, attrs, n := lenient.Tag(s, i)
		if n == 0 {
			continue
		}
		name, closing := strings.CutPrefix(name, "/")
		t := token{from: i, to: i + n, tag: strings.ToLower(name), attrs: attrs, closes: closing}
		if _, known := inside[t.tag]; !known {
			continue
		}
		if len(out) == maxTags {
			return out, false
		}
		t.empty = !closing && s[t.to-2] == '/'
		if k, ok := last[t.tag]; ok {
			out[k].next = len(out)
		}
		last[t.tag] = len(out)
		out = append(out, t)
		i = t.to - 1
	}
}

// scan builds the elements of the form out of its tags.
func scan(s string, all []token) *element {
	root := &element{}
	stack := []*element{root}
	for k := 0; k < len(all); k++ {
		t := &all[k]
		if t.closes {
			if depth := closes(stack, t.tag); depth > 0 {
				stack = stack[:depth]
			}
			continue
		}
		depth := place(stack, t.tag)
		if depth == 0 {
			continue
		}
		e := &element{tag: t.tag}
		e.attributes(t.attrs)
		stack = stack[:depth]
		stack[depth-1].children = append(stack[depth-1].children, e)
		end := len(s)
		if k+1 < len(all) {
			end = all[k+1].from
		}
		switch {
		case t.empty:
		case leaf(t.tag):
			if t.next > 0 && all[t.next].closes {
				end = all[t.next].from
				k = t.next
			}
			e.text = s[t.to:end]
		default:
			e.text = s[t.to:end]
			stack = append(stack, e)
		}
	}
	return root
}

// attributes takes parts of an element that are written as attributes: <Action Type="mail"/>. Those of Args
// are arguments; others are left out.
func (e *element) attributes(attrs []lenient.Attr) {
	if e.tag == tagArgs {
		e.attrs = attrs
		return
	}
	for _, a := range attrs {
		if tag := strings.ToLower(a.Name); leaf(tag) && slices.Contains(inside[tag], e.tag) {
			e.children = append(e.children, &element{tag: tag, text: html.EscapeString(a.Value)})
		}
	}
}

// place is how many elements of the stack stay open around an element of this tag; 0 if it does not belong
// here.
func place(stack []*element, tag string) int {
	for depth := len(stack); depth > 0; depth-- {
		if slices.Contains(inside[tag], stack[depth-1].tag) {
			return depth
		}
	}
	return 0
}

// closes is how many elements stay open after an end tag; 0 if it ends none of them.
func closes(stack []*element, tag string) int {
	for depth := len(stack) - 1; depth > 0; depth-- {
		if stack[depth].tag == tag {
			return depth
		}
	}
	return 0
}

// value is the text of an element without the space around it.
func (e *element) value() string { return strings.TrimSpace(plain(e.text)) }

// plain resolves CDATA sections and character references.
func plain(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, cdata)
		b.WriteString(html.UnescapeString(before))
		if !ok {
			return b.String()
		}
		inner, after, _ := strings.Cut(rest, cdataEnd)
		b.WriteString(inner)
		s = after
	}
}
