package query

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// ReasonBaseNeeded is the reason when a run that is no fork is compared with nothing.
	ReasonBaseNeeded = "BASE_RUN_NEEDED"
	// ReasonSameRun is the reason when a run is compared with itself.
	ReasonSameRun = "SAME_RUN"

	// maxCompared is how many visits of each run are compared. They are in memory together.
	maxCompared = 20_000
	// maxComparedPage is how many visits one page has: the values of each are read one by one.
	maxComparedPage = 200
	// maxShownValues is how many bytes of values of a visit are shown.
	maxShownValues = 4 << 10
	// maxShownText is how many bytes of a message of a visit are kept.
	maxShownText = 1 << 10
	// maxNormalized is up to which size values are compared as JSON and not byte by byte.
	maxNormalized = 64 << 10
	// maxInputFields is how many parts of the input are named.
	maxInputFields = 1000
)

// The differences between two visits.
const (
	DiffersInPresence  = "presence"
	DiffersInState     = "state"
	DiffersInValues    = "values"
	DiffersInError     = "error"
	DiffersInActor     = "actor"
	DiffersInArguments = "arguments"
)

// CompareRequest names two runs, and the page of their visits that is wanted.
type CompareRequest struct {
	Namespace, RunID string
	// Base is empty for the run of which RunID is a fork.
	Base string
	// All lists visits that do not differ, too.
	All   bool
	Size  int32
	Token string
}

// Comparison is how a run differs from its base. Input, results and graphs are those of the first page only.
type Comparison struct {
	Base, Run journal.Run
	Graph     workgraph.GraphDiff
	// Arguments names, for each node that changes, the arguments that differ.
	Arguments map[string][]string
	// Input names the parts of the input that differ.
	Input         []string
	ResultDiffers bool
	// Same and Different count visits.
	Same, Different int
	// First is the first visit that differs, or nil.
	First *VisitPair
	Pairs []VisitPair
	// Next is the token of the next page.
	Next string
	// Truncated reports that a run has more visits than are compared.
	Truncated bool
}

// VisitPair is a visit in both runs; nil where it is not.
type VisitPair struct {
	Ref         workgraph.Ref
	Base, Run   *Visit
	Differences []string
	// BaseBytes and RunBytes are the sizes of the values, which Visit may lack.
	BaseBytes, RunBytes int64

	at pairOrder
}

// Size implements page.Row.
func (p VisitPair) Size() int {
	n := 0
	for _, v := range []*Visit{p.Base, p.Run} {
		if v != nil {
			n += v.Size() + maxShownText
		}
	}
	return n
}

// pairOrder orders pairs: visits that ended in the run, those under way there, those of the base alone.
type pairOrder struct {
	class int
	visitOrder
}

func (o pairOrder) compare(p pairOrder) int {
	return cmp.Or(cmp.Compare(o.class, p.class), o.visitOrder.compare(p.visitOrder))
}

// traced is a visit without what may be large.
type traced struct {
	Visit
	sum   [sha256.Size]byte
	bytes int64
}

// tracedRun are the visits of a run up to an event.
type tracedRun struct {
	run    string
	seq    int64
	visits map[workgraph.Ref]*traced
	// whole is false if there are more visits.
	whole bool
}

// Compare tells how a run differs from another one. The first page reads the histories of both, and those
// after it use what it found, as long as that is kept and neither run goes on.
func (q *Query) Compare(ctx context.Context, req CompareRequest) (Comparison, error) {
	run, err := q.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return Comparison{}, err
	}
	base, err := q.baseOf(ctx, run, req.Base)
	if err != nil {
		return Comparison{}, err
	}
	pg, err := page.Parse(req.Size, req.Token, page.Query{Method: "CompareRuns", Parent: req.Namespace + "/" + req.RunID + "/" + base.ID, Filter: strconv.FormatBool(req.All)})
	if err != nil {
		return Comparison{}, err
	}
	pg.Limit = min(pg.Limit, maxComparedPage)
	from, err := parsePairOrder(pg.After.ID)
	if err != nil {
		return Comparison{}, err
	}
	out := Comparison{Base: base, Run: run}
	if err := q.compareGraphs(ctx, &out); err != nil {
		return out, err
	}
	old, err := q.trace(ctx, base)
	if err != nil {
		return out, err
	}
	now, err := q.trace(ctx, run)
	if err != nil {
		return out, err
	}
	out.Truncated = !old.whole || !now.whole
	pairs := out.pair(old, now)
	listed := pairs[:0:0]
	for i := range pairs {
		p := &pairs[i]
		if len(p.Differences) > 0 {
			out.Different++
			if out.First == nil {
				out.First = p
			}
		} else {
			out.Same++
		}
		if (req.All || len(p.Differences) > 0) && (from == nil || p.at.compare(*from) > 0) && len(listed) <= pg.Limit {
			listed = append(listed, *p)
		}
	}
	out.Pairs, out.Next = page.Cut(pg, listed, func(p VisitPair) page.Cursor { return page.Cursor{ID: p.at.String()} })
	for i := range out.Pairs {
		if err := q.showValues(ctx, &out, &out.Pairs[i]); err != nil {
			return out, err
		}
	}
	if from != nil {
		return out, nil
	}
	if out.First != nil {
		if err := q.showValues(ctx, &out, out.First); err != nil {
			return out, err
		}
	}
	return out, q.compareValues(ctx, &out)
}

// baseOf is the row of the run with which run is compared.
func (q *Query) baseOf(ctx context.Context, run journal.Run, id string) (journal.Run, error) {
	switch {
	case id == run.ID:
		return journal.Run{}, errs.New(errs.InvalidArgument, ReasonSameRun, "run %s cannot be compared with itself", id).
			Violate("base_run_id", ReasonSameRun, "the same as run_id").Hint("name another run as base_run_id")
	case id != "":
		return q.journal.Head(ctx, run.Namespace, id)
	case run.ForkedFrom == "":
		return journal.Run{}, errs.New(errs.InvalidArgument, ReasonBaseNeeded, "run %s is no fork, so there is nothing to compare it with", run.ID).
			Violate("base_run_id", ReasonBaseNeeded, "is empty").Hint("name the run to compare with as base_run_id")
	}
	base, err := q.journal.Head(ctx, run.Namespace, run.ForkedFrom)
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return base, errs.New(errs.NotFound, journal.ReasonRunNotFound, "run %s, of which %s is a fork, is not there any more", run.ForkedFrom, run.ID).
			Hint("name another run as base_run_id")
	}
	return base, err
}

// compareGraphs compares the graphs to which the runs are pinned.
func (q *Query) compareGraphs(ctx context.Context, c *Comparison) error {
	if c.Base.GraphHash == c.Run.GraphHash {
		return nil
	}
	graph := func(row journal.Run) (*workgraph.Graph, error) {
		_, body, err := q.journal.Graph(ctx, row.Namespace, row.ID)
		if err != nil {
			return nil, err
		}
		return workgraph.Decode(body)
	}
	old, err := graph(c.Base)
	if err != nil {
		return err
	}
	now, err := graph(c.Run)
	if err != nil {
		return err
	}
	if c.Graph, err = workgraph.Diff(ctx, old, now); err != nil {
		return err
	}
	was, is := nodesOf(old), nodesOf(now)
	c.Arguments = make(map[string][]string, len(c.Graph.ChangedNodes))
	for _, n := range c.Graph.ChangedNodes {
		if a := changedArguments(was[n.ID], is[n.ID]); len(a) > 0 {
			c.Arguments[n.ID] = a
		}
	}
	return nil
}

func nodesOf(g *workgraph.Graph) map[string]*workgraph.Node {
	out := make(map[string]*workgraph.Node, len(g.Nodes))
	for i := range g.Nodes {
		out[g.Nodes[i].ID] = &g.Nodes[i]
	}
	return out
}

// changedArguments names the arguments of a node that differ.
func changedArguments(a, b *workgraph.Node) []string {
	return append(changedArgs(a.Args, b.Args), changedNamed(a.Named, b.Named)...)
}

func changedArgs(a, b []json.RawMessage) (out []string) {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || sum(a[i]) != sum(b[i]) {
			out = append(out, fmt.Sprintf("args[%d]", i))
		}
	}
	return out
}

func changedNamed(a, b map[string]json.RawMessage) (out []string) {
	for k, v := range a {
		if w, ok := b[k]; !ok || sum(v) != sum(w) {
			out = append(out, "named."+k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, "named."+k)
		}
	}
	slices.Sort(out)
	return out
}

// sum is the hash of values, by which they are compared. Below maxNormalized the order of keys and spaces do
// not count.
func sum(values ...json.RawMessage) [sha256.Size]byte {
	h := sha256.New()
	for _, v := range values {
		if len(v) <= maxNormalized {
			var value any
			d := json.NewDecoder(bytes.NewReader(v))
			d.UseNumber()
			if d.Decode(&value) == nil {
				if b, err := json.Marshal(value); err == nil {
					v = b
				}
			}
		}
		fmt.Fprintf(h, "%d:", len(v))
		h.Write(v)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// trace returns the visits of a run: those that ended first, up to maxCompared. They must not be changed.
func (q *Query) trace(ctx context.Context, row journal.Run) (*tracedRun, error) {
	if kept := q.traces.get(row); kept != nil {
		return kept, nil
	}
	out, err := q.readTrace(ctx, row)
	if err == nil {
		q.traces.put(out)
	}
	return out, err
}

// readTrace reads the visits of a run up to the last event of its row.
func (q *Query) readTrace(ctx context.Context, row journal.Run) (*tracedRun, error) {
	out := &tracedRun{run: row.ID, seq: row.LastSeq, visits: map[workgraph.Ref]*traced{}, whole: true}
	nodes, err := q.engine.Positions().Nodes(ctx, row)
	if err != nil {
		return nil, err
	}
	back, err := q.lastResets(ctx, row)
	if err != nil {
		return nil, err
	}
	f := newFolder(nodes, "")
	add := func(v *Visit) {
		if out.whole = len(out.visits) < maxCompared; out.whole {
			out.visits[workgraph.Ref{Node: v.Node, Visit: v.Visit}] = traceOf(v)
		}
	}
	const chunk = 500
	for after := int64(0); out.whole && after < row.LastSeq; {
		evs, err := q.engine.Feed().Events(ctx, row, after, chunk)
		if err != nil {
			return nil, err
		}
		for _, ev := range evs {
			if ev.Durable.Seq > row.LastSeq {
				break
			}
			for _, v := range f.apply(ev.Durable) {
				if out.whole && v.end.compare(back[workgraph.Ref{Node: v.Node, Visit: v.Visit}]) >= 0 {
					add(v)
				}
			}
		}
		if len(evs) == 0 {
			break
		}
		after = evs[len(evs)-1].Durable.Seq
	}
	for _, v := range f.open {
		if out.whole {
			add(v)
		}
	}
	return out, nil
}

// traceOf keeps of a visit what is compared and shown, without its values.
func traceOf(v *Visit) *traced {
	t := &traced{Visit: *v, sum: sum(v.Values...)}
	for _, x := range v.Values {
		t.bytes += int64(len(x))
	}
	t.Values, t.Progress, t.Wait, t.items, t.counts = nil, nil, nil, nil, nil
	if v.Error != nil {
		e := workgraph.Error{Type: v.Error.Type, Reason: v.Error.Reason, Message: strings.Clone(short(v.Error.Message))}
		t.Error = &e
	}
	t.SkipMessage = strings.Clone(short(v.SkipMessage))
	return t
}

// short is the beginning of a text.
func short(s string) string {
	if len(s) <= maxShownText {
		return s
	}
	return strings.ToValidUTF8(s[:maxShownText], "") + "…"
}

// pair lists the visits of both runs in order.
func (c *Comparison) pair(old, now *tracedRun) []VisitPair {
	changed := make(map[string]bool, len(c.Arguments))
	for id := range c.Arguments {
		changed[id] = true
	}
	out := make([]VisitPair, 0, len(now.visits))
	for ref, v := range now.visits {
		p := VisitPair{Ref: ref, Run: &v.Visit, RunBytes: v.bytes, at: pairOrder{0, v.end}}
		if v.EndSeq == 0 {
			p.at = pairOrder{1, v.begin}
		}
		w := old.visits[ref]
		if w == nil {
			if !old.whole {
				continue
			}
			p.Differences = []string{DiffersInPresence}
		} else {
			p.Base, p.BaseBytes = &w.Visit, w.bytes
			p.Differences = differences(w, v)
			if changed[ref.Node] {
				p.Differences = append(p.Differences, DiffersInArguments)
			}
		}
		out = append(out, p)
	}
	for ref, w := range old.visits {
		if now.visits[ref] == nil && now.whole {
			at := w.end
			if w.EndSeq == 0 {
				at = w.begin
			}
			out = append(out, VisitPair{Ref: ref, Base: &w.Visit, BaseBytes: w.bytes, Differences: []string{DiffersInPresence}, at: pairOrder{2, at}})
		}
	}
	slices.SortFunc(out, func(a, b VisitPair) int {
		return cmp.Or(a.at.compare(b.at), strings.Compare(a.Ref.Node, b.Ref.Node), cmp.Compare(a.Ref.Visit, b.Ref.Visit))
	})
	return out
}

// differences names what differs between two visits.
func differences(a, b *traced) (out []string) {
	if a.Status != b.Status {
		out = append(out, DiffersInState)
	}
	if a.sum != b.sum {
		out = append(out, DiffersInValues)
	}
	if failed := func(v *traced) bool { return v.Status != workgraph.VisitCompleted && v.Error != nil }; failed(a) || failed(b) {
		if failure(a) != failure(b) {
			out = append(out, DiffersInError)
		}
	}
	if a.Actor != b.Actor {
		out = append(out, DiffersInActor)
	}
	return out
}

func failure(v *traced) string {
	if v.Error == nil {
		return ""
	}
	return v.Error.Reason + "\n" + v.Error.Message
}

// showValues reads the values of a pair, as far as they are shown.
func (q *Query) showValues(ctx context.Context, c *Comparison, p *VisitPair) error {
	read := func(row journal.Run, shown **Visit, n int64) error {
		v := *shown
		if v == nil || v.EndSeq == 0 || n == 0 || n > maxShownValues || v.Values != nil {
			return nil
		}
		// Others may read the visit meanwhile.
		own := *v
		*shown = &own
		v = &own
		evs, err := q.engine.Feed().Events(ctx, row, v.EndSeq-1, 1)
		if err != nil {
			return err
		}
		for _, ev := range evs {
			for _, w := range newFolder(nil, v.Node).apply(ev.Durable) {
				if w.Node == v.Node && w.Visit == v.Visit && w.EndSeq == v.EndSeq {
					v.Values = w.Values
				}
			}
		}
		return nil
	}
	if err := read(c.Base, &p.Base, p.BaseBytes); err != nil {
		return err
	}
	return read(c.Run, &p.Run, p.RunBytes)
}

// compareValues compares what the runs began and ended with. It reads their whole rows.
func (q *Query) compareValues(ctx context.Context, c *Comparison) error {
	base, err := q.journal.Get(ctx, c.Base.Namespace, c.Base.ID)
	if err != nil {
		return err
	}
	run, err := q.journal.Get(ctx, c.Run.Namespace, c.Run.ID)
	if err != nil {
		return err
	}
	was, err := inputOf(base)
	if err != nil {
		return err
	}
	is, err := inputOf(run)
	if err != nil {
		return err
	}
	c.Input = append(changedArgs(was.Args, is.Args), changedNamed(was.Named, is.Named)...)
	if len(c.Input) > maxInputFields {
		c.Input = c.Input[:maxInputFields]
	}
	for _, part := range []struct {
		name string
		a, b []byte
	}{{"context", base.Context, run.Context}, {"attachments", base.Attachments, run.Attachments}} {
		if sum(part.a) != sum(part.b) && len(c.Input) < maxInputFields {
			c.Input = append(c.Input, part.name)
		}
	}
	c.ResultDiffers = (base.Result == nil) != (run.Result == nil) || sum(base.Result) != sum(run.Result)
	c.Base.Result, c.Run.Result = base.Result, run.Result
	return nil
}

// inputOf is what a run was started with.
func inputOf(row journal.Run) (in workgraph.Input, err error) {
	for _, col := range []struct {
		b   []byte
		dst any
	}{{row.Args, &in.Args}, {row.Named, &in.Named}} {
		if len(col.b) == 0 {
			continue
		}
		if err := json.Unmarshal(col.b, col.dst); err != nil {
			return in, fmt.Errorf("decode arguments of run %s: %w", row.ID, err)
		}
	}
	return in, nil
}

// String is the form of the order in a page token.
func (o pairOrder) String() string { return fmt.Sprintf("%d.%d.%d", o.class, o.seq, o.step) }

func parsePairOrder(s string) (*pairOrder, error) {
	if s == "" {
		return nil, nil
	}
	var o pairOrder
	if n, err := fmt.Sscanf(s, "%d.%d.%d", &o.class, &o.seq, &o.step); err != nil || n != 3 {
		return nil, errs.New(errs.InvalidArgument, page.ReasonInvalid, "page_token is not valid")
	}
	return &o, nil
}
