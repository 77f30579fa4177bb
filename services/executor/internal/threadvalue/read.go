package threadvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Value is a document that was read, and that breaks no rule.
type Value struct {
	// field is what the request calls the document.
	field   string
	threads []entry
}

// maxID bounds an id within a document.
const maxID = 256

// Read reads a document, which the request has in a field. It counts threads and items before it reads
// them.
func Read(field string, raw []byte) (*Value, error) {
	switch {
	case len(raw) == 0:
		return nil, invalid(field, "is missing")
	case len(raw) > thread.MaxValueBytes:
		return nil, tooLarge("a thread as a value has %d bytes, the limit is %d", len(raw), thread.MaxValueBytes)
	case !utf8.Valid(raw):
		return nil, invalid(field, "is not UTF-8")
	}
	if fault := workgraph.ValueFault(raw); fault != "" {
		return nil, invalid(field, "%s", fault)
	}
	var d document
	if err := strict(raw, &d); err != nil {
		return nil, at(field, err)
	}
	if d.Format != Format {
		return nil, invalid(field+".format", "is %.40q, and this server reads %q", d.Format, Format)
	}
	v := &Value{field: field, threads: d.Threads}
	if err := v.families(); err != nil {
		return nil, err
	}
	left := thread.MaxValueItems
	for i := range v.threads {
		if err := v.threads[i].read(v.place(i), &left); err != nil {
			return nil, err
		}
	}
	return v, v.references()
}

func (v *Value) place(i int) string { return fmt.Sprintf("%s.threads[%d]", v.field, i) }

// tooLarge is ValueTooLarge of a request.
func tooLarge(format string, args ...any) error {
	return errs.New(errs.InvalidArgument, thread.ReasonValueTooLarge, "%s", fmt.Sprintf(format, args...)).
		Hint("export a fork of an earlier item, or go on with the thread by its id where it is")
}

// at is the error of a document, or what it was made of.
func at(where string, err error) error {
	if errs.ReasonOf(err) == thread.ReasonValueTooLarge {
		return err
	}
	return invalid(where, "cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// strict decodes JSON, and refuses fields that are not known.
func strict(raw []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(to)
}

// each reads the elements of a list one by one. more is asked before each.
func each[T any](raw []byte, more func() error, keep func(T)) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if tok, err := dec.Token(); err != nil || tok != json.Delim('[') {
		return errors.New("it is no list")
	}
	for n := 0; dec.More(); n++ {
		if err := more(); err != nil {
			return err
		}
		var one T
		if err := dec.Decode(&one); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
		keep(one)
	}
	return nil
}

// entries are the threads of a document.
type entries []entry

// UnmarshalJSON reads the threads, and no more than there may be.
func (es *entries) UnmarshalJSON(raw []byte) error {
	more := func() error {
		if len(*es) >= thread.MaxValueThreads {
			return tooLarge("a thread as a value has more than %d threads", thread.MaxValueThreads)
		}
		return nil
	}
	return each(raw, more, func(e entry) { *es = append(*es, e) })
}

// families checks how the threads belong together: each part follows that of which it is one, so that
// there is no circle.
func (v *Value) families() error {
	if len(v.threads) == 0 {
		return invalid(v.field+".threads", "is empty")
	}
	depth, named := map[string]int{}, map[[2]string]bool{}
	for i := range v.threads {
		e := &v.threads[i]
		above, known := depth[e.PartOf]
		_, twice := depth[e.ID]
		switch {
		case e.ID == "" || len(e.ID) > maxID:
			return invalid(v.place(i)+".id", "has %d bytes, and must have 1 to %d", len(e.ID), maxID)
		case twice:
			return invalid(v.place(i)+".id", "is %.80q, as that of a thread before it", e.ID)
		case i == 0 && (e.PartOf != "" || e.Name != ""):
			return invalid(v.place(i), "is the whole, and has neither part_of nor name")
		case i > 0 && !known:
			return invalid(v.place(i)+".part_of", "is %.80q, which is no thread before it", e.PartOf)
		case above >= thread.MaxValueDepth:
			return invalid(v.place(i)+".part_of", "has %d threads above it, the limit is %d", above, thread.MaxValueDepth)
		case e.Name != "" && named[[2]string{e.PartOf, e.Name}]:
			return invalid(v.place(i)+".name", "is %.80q, as that of another part", e.Name)
		}
		depth[e.ID] = above + 1
		named[[2]string{e.PartOf, e.Name}] = true
		c := workgraph.ThreadCreate{Agent: e.Agent, Title: e.Title}
		if e.Name != "" {
			c.Key = thread.NamedPart(ids.New(thread.IDPrefix), e.Name) // as long as that which it gets
		}
		if err := thread.CheckCreate(&c); err != nil {
			return invalid(v.place(i), "cannot be made: %s", errs.From(err).Message)
		}
	}
	return nil
}

// read reads the items of a thread, of which so many are left.
func (e *entry) read(where string, left *int) error {
	more := func() error {
		if *left--; *left < 0 {
			return tooLarge("a thread as a value has more than %d items", thread.MaxValueItems)
		}
		return nil
	}
	if err := each(e.Items, more, func(it item) { e.items = append(e.items, it) }); err != nil {
		return at(where+".items", err)
	}
	e.Items = nil
	for i := range e.items {
		if err := e.items[i].check(fmt.Sprintf("%s.items[%d]", where, i), int64(i)+1); err != nil {
			return err
		}
	}
	return nil
}

// roles are those of messages.
func roles() []string { return []string{"", "system", "developer", "user", "assistant", "tool"} }

// check checks an item at a sequence.
func (it *item) check(where string, seq int64) error {
	if it.kind = kinds()[it.Kind]; it.kind == 0 {
		return invalid(where+".kind", "is %.40q, and must be message, state, learning or summary", it.Kind)
	}
	if string(it.Brief) == "null" {
		it.Brief = nil
	}
	if err := thread.CheckItem(&workgraph.ThreadItem{Kind: it.kind, Brief: it.Brief, Body: it.Body}); err != nil {
		return invalid(where, "is refused: %s", errs.From(err).Message)
	}
	switch it.kind {
	case workgraph.ThreadMessage:
		var m struct {
			Role string `json:"role"`
		}
		if json.Unmarshal(it.Body, &m) == nil && !slices.Contains(roles(), m.Role) {
			return invalid(where+".body.role", "is %.40q, and must be one of%s", m.Role, strings.Join(roles(), " "))
		}
	case workgraph.ThreadSummary:
		var s struct{ First, Last int64 }
		if err := json.Unmarshal(it.Body, &s); err != nil || s.First < 1 || s.Last < s.First || s.Last >= seq {
			return invalid(where+".body", "stands for the items %d to %d, which do not come before it", s.First, s.Last)
		}
	case workgraph.ThreadState:
		var brief map[string]json.RawMessage
		if json.Unmarshal(it.Brief, &brief) != nil {
			return invalid(where+".brief", "is no object, which that of a state is")
		}
		if !team.Keeps(it.Body) {
			return nil
		}
		k, err := team.ReadKept(it.Body, seq)
		if err != nil {
			return invalid(where+".body", "is no state of a team: %s", err)
		}
		it.team = k
	}
	return nil
}

// references checks the threads that states of teams name: they are parts that the document holds.
func (v *Value) references() error {
	lengths := map[string]int64{}
	for i := range v.threads {
		lengths[v.threads[i].ID] = int64(len(v.threads[i].items))
	}
	for i := range v.threads {
		e := &v.threads[i]
		for j := range e.items {
			k := e.items[j].team
			if k == nil {
				continue
			}
			where := fmt.Sprintf("%s.items[%d].body", v.place(i), j)
			for name, id := range k.Threads {
				n, ok := lengths[id]
				switch {
				case !ok || id == v.threads[0].ID || id == e.ID:
					return invalid(where+".threads", "names the thread %.80q of %.80q, which is no part in the document", id, name)
				case k.Ends[name] > n:
					return invalid(where+".ends", "says that the thread of %.80q ends with item %d, and it has %d", name, k.Ends[name], n)
				}
			}
		}
	}
	return nil
}
