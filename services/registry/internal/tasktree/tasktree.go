// Package tasktree owns documents of task trees: an epic with tasks that depend on each other, as JSON. It
// tells every fault of one at once, with its place. It must not know any database, protocol or clock.
package tasktree

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// MaxTasks is how many tasks a document may have.
	MaxTasks = 2000
	// IDLabel is the label in which an epic and its tasks keep their ids of the document.
	IDLabel = "imported_id"

	maxDependencies = 1000
	maxTitle        = 512
	maxLabel        = 256
	maxText         = 65536
	maxTags, maxTag = 64, 128
)

// Tree is what a document says.
type Tree struct {
	Epic epic.Epic
	// Tasks come in an order in which each stands behind those that it depends on. Their states are those of
	// the document: pending, completed, failed or canceled.
	Tasks []Task
	// LeftOut names what is not carried over, or as something else.
	LeftOut workflow.Faults
}

// Task is one of a tree.
type Task struct {
	epic.Task
	// ID is the one of the document.
	ID string
	// After are the places in Tree.Tasks of those that it depends on.
	After []int
}

// reader reads one document.
type reader struct {
	faults, left faults
	tree         Tree
	// at are the places of tasks by their ids, in the order of the document.
	at map[string]int
	// where are the places of ids in the document, and from are what tasks depend on.
	where []value
	from  []dependency
	// zero says that priorities are counted from 0.
	zero bool
}

// dependency is one that the document states: the task at a place comes after that with an id.
type dependency struct {
	task int
	id   string
	of   *value
}

// Read reads a document. With faults there is no tree.
func Read(src []byte) (Tree, workflow.Faults) {
	r := &reader{faults: faults{src: src}, left: faults{src: src}, at: map[string]int{}}
	if len(src) > MaxBytes || !utf8.Valid(src) {
		r.faults.add("DOCUMENT_INVALID", 0, nil, "make several documents of it", "a document is text in UTF-8 of at most %d bytes", MaxBytes)
		return Tree{}, r.faults.told
	}
	root, ok := parse(src, &r.faults)
	if !ok || !r.is(root, object) {
		return Tree{}, r.faults.told
	}
	r.root(root)
	r.order()
	if len(r.faults.told) > 0 {
		return Tree{}, r.faults.told
	}
	r.tree.LeftOut = r.left.told
	return r.tree, nil
}

func (r *reader) is(v value, want kind) bool {
	if v.kind != want {
		r.faults.add("TYPE_WRONG", int(v.at), v.path, "", "must be %s, not %s", want, v.kind)
	}
	return v.kind == want
}

// str reads a text; null is an empty one.
func (r *reader) str(v value, most int, into *string) {
	if v.kind == null || !r.is(v, text) {
		return
	}
	if strings.ContainsRune(v.text, 0) {
		r.faults.add("VALUE_INVALID", int(v.at), v.path, "leave the character out", "has the character U+0000, which no text may have")
		return
	}
	if n := utf8.RuneCountInString(v.text); n > most {
		r.faults.add("VALUE_TOO_LONG", int(v.at), v.path, "shorten it", "has %d characters and may have %d", n, most)
		return
	}
	*into = v.text
}

func (r *reader) integer(v value, least, most int64, into *int64) {
	if v.kind == null || !r.is(v, number) {
		return
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n < least || n > most {
		r.faults.add("VALUE_INVALID", int(v.at), v.path, "", "must be a whole number from %d to %d", least, most)
		return
	}
	*into = n
}

func (r *reader) texts(v value, into *[]string) {
	if v.kind == null || !r.is(v, list) {
		return
	}
	if len(v.children) > maxTags {
		r.faults.add("TOO_MANY", int(v.at), v.path, "", "has %d elements and may have %d", len(v.children), maxTags)
		return
	}
	for _, item := range v.items() {
		var s string
		if r.str(item, maxTag, &s); s != "" {
			*into = append(*into, s)
		}
	}
}

func (r *reader) choice(v value, into *epic.DependencyPolicy) {
	var word string
	if r.str(v, maxTag, &word); word == "" {
		return
	}
	i := slices.Index([]string{"block", "skip", "fail"}, strings.ToLower(word))
	if i < 0 {
		r.faults.add("VALUE_INVALID", int(v.at), v.path, "write block, skip or fail", "there is no policy %q", word)
		return
	}
	*into = epic.DependencyPolicy(i + 1)
}

// scalar is an id: a text, or a whole number, which is the same as its text.
func (r *reader) scalar(v value) (id string, ok bool) {
	if v.kind == number && !strings.ContainsAny(v.text, ".eE") {
		return v.text, true
	}
	if !r.is(v, text) {
		return "", false
	}
	if r.str(v, maxLabel, &id); id == "" && v.text == "" {
		r.faults.add("VALUE_INVALID", int(v.at), v.path, "give each task an id of its own", "an id cannot be empty")
	}
	return id, id != ""
}

func (r *reader) leftOut(m value) {
	r.left.add("NOT_CARRIED_OVER", int(m.at), m.path, "", "an import has no use for it")
}

func (r *reader) root(v value) {
	e := &r.tree.Epic
	var edges, tasks *value
	for i := range v.members() {
		m := v.children[i]
		switch m.name() {
		case "title":
			r.str(m, maxTitle, &e.Title)
		case "description":
			r.str(m, maxText, &e.Description)
		case "result_summary":
			r.str(m, maxText, &e.ResultSummary)
		case "workflow_slug":
			r.str(m, maxLabel, &e.WorkflowSlug)
		case "user_id":
			r.str(m, maxLabel, &e.UserID)
		case "tags":
			r.texts(m, &e.Tags)
		case "priority":
			r.priority(m, &e.Priority)
		case "dependency_policy":
			r.choice(m, &e.DependencyPolicy)
		case "budget_tokens":
			r.cap(m, &e.BudgetTokens)
		case "budget_nano_usd":
			r.cap(m, &e.BudgetNanoUSD)
		case "id":
			if id, ok := r.scalar(m); ok {
				e.Labels = map[string]string{IDLabel: id}
			}
		case "tasks":
			tasks = &v.children[i]
		case "edges":
			edges = &v.children[i]
		default:
			r.leftOut(m)
		}
	}
	if strings.TrimSpace(e.Title) == "" && !slices.ContainsFunc(v.members(), func(m value) bool { return m.name() == "title" && m.text != "" }) {
		r.faults.add("FIELD_MISSING", int(v.at), v.path.under("title"), "say what the goal is", "an epic needs a title")
	}
	if tasks == nil {
		r.faults.add("FIELD_MISSING", int(v.at), v.path.under("tasks"), "list the tasks of the epic", "the document has no tasks")
		return
	}
	r.tasks(*tasks)
	if edges != nil {
		r.edges(*edges)
	}
}

func (r *reader) cap(v value, into **int64) {
	var n int64
	if v.kind == null {
		return
	}
	r.integer(v, 0, 1<<62, &n)
	*into = &n
}

func (r *reader) tasks(v value) {
	if !r.is(v, list) {
		return
	}
	if len(v.children) > MaxTasks {
		r.faults.add("TOO_MANY", int(v.at), v.path, "make several epics of it", "has %d tasks and may have %d", len(v.children), MaxTasks)
		return
	}
	r.zero = slices.ContainsFunc(v.items(), func(t value) bool {
		return slices.ContainsFunc(t.members(), func(m value) bool { return m.name() == "priority" && m.kind == number && m.text == "0" })
	})
	if r.zero {
		r.left.add("READ_AS", int(v.at), v.path, "", "a priority is 0, so all are counted from 0, which is critical, to 3")
	}
	for _, item := range v.items() {
		if r.is(item, object) {
			r.task(item)
		}
	}
}

func (r *reader) task(v value) {
	n := len(r.tree.Tasks)
	t := Task{Task: epic.Task{State: epic.TaskPending}}
	where := v
	for _, m := range v.members() {
		switch m.name() {
		case "id":
			if id, ok := r.scalar(m); ok {
				t.ID, where = id, m
			}
		case "depends_on", "dependencies":
			r.after(m, n)
		default:
			r.taskField(&t.Task, m)
		}
	}
	if strings.TrimSpace(t.Title) == "" && !slices.ContainsFunc(v.members(), func(m value) bool { return m.name() == "title" && m.text != "" }) {
		r.faults.add("FIELD_MISSING", int(v.at), v.path.under("title"), "say what is to be done", "a task needs a title")
	}
	if !slices.ContainsFunc(v.members(), func(m value) bool { return m.name() == "id" }) {
		r.faults.add("FIELD_MISSING", int(v.at), v.path.under("id"), "give each task an id of its own", "a task needs an id")
	}
	if first, twice := r.at[t.ID]; twice {
		r.faults.add("ID_DUPLICATE", int(where.at), where.path, "give each task an id of its own", "%q is the id of %s, too", t.ID, r.where[first].path)
	} else if t.ID != "" {
		r.at[t.ID] = n
		t.Labels = map[string]string{IDLabel: t.ID}
	}
	r.tree.Tasks, r.where = append(r.tree.Tasks, t), append(r.where, where)
}

func (r *reader) taskField(t *epic.Task, m value) {
	var n int64
	switch m.name() {
	case "title":
		r.str(m, maxTitle, &t.Title)
	case "description":
		r.str(m, maxText, &t.Description)
	case "result_summary":
		r.str(m, maxText, &t.ResultSummary)
	case "error_message":
		r.str(m, maxText, &t.ErrorMessage)
	case "workflow_slug":
		r.str(m, maxLabel, &t.WorkflowSlug)
	case "tags":
		r.texts(m, &t.Tags)
	case "priority":
		r.priority(m, &t.Priority)
	case "dependency_policy":
		r.choice(m, &t.DependencyPolicy)
	case "status":
		r.status(m, t)
	case "requirements":
		if m.kind != null {
			t.Requirements = slices.Clone(r.faults.src[m.at:m.end])
		}
	case "input":
		if m.kind != null && r.is(m, object) {
			t.Input = slices.Clone(r.faults.src[m.at:m.end])
		}
	case "estimated_tokens":
		r.integer(m, 0, epic.MaxEstimate, &t.EstimatedTokens)
	case "max_retries":
		r.integer(m, -1, 100, &n)
		t.MaxRetries = int32(n)
	default:
		r.leftOut(m)
	}
}

func (r *reader) status(v value, t *epic.Task) {
	var word string
	if r.str(v, maxTag, &word); word == "" {
		return
	}
	switch strings.ReplaceAll(strings.ToLower(word), "-", "_") {
	case "pending", "open", "todo":
	case "completed", "done", "closed":
		t.State = epic.TaskCompleted
	case "failed":
		t.State = epic.TaskFailed
	case "canceled", "cancelled": //nolint:misspell // task trees say both
		t.State = epic.TaskCanceled
	case "running", "in_progress", "review", "deferred", "blocked":
		r.left.add("READ_AS", int(v.at), v.path, "", "%q is read as pending: nobody works on it here yet", word)
	default:
		r.faults.add("VALUE_INVALID", int(v.at), v.path, "write pending, completed, failed or canceled", "there is no status %q", word)
	}
}

func (r *reader) priority(v value, into *epic.Priority) {
	hint := "write critical, high, medium or low, or a number from 1 to 4"
	switch v.kind {
	case null:
	case number:
		n, err := strconv.Atoi(v.text)
		if r.zero {
			n = min(n+1, int(epic.Low))
		}
		if err != nil || n < 1 || n > int(epic.Low) {
			r.faults.add("VALUE_INVALID", int(v.at), v.path, hint, "there is no priority %s", v.text)
			return
		}
		*into = epic.Priority(n)
	default:
		if !r.is(v, text) {
			return
		}
		i := slices.Index([]string{"critical", "high", "medium", "low"}, strings.ToLower(v.text))
		if i < 0 {
			r.faults.add("VALUE_INVALID", int(v.at), v.path, hint, "there is no priority %q", cut(v.text))
			return
		}
		*into = epic.Priority(i + 1)
	}
}

// cut is the beginning of a text.
func cut(s string) string {
	if len(s) > 32 {
		return strings.ToValidUTF8(s[:32], "") + "…"
	}
	return s
}
