package workgraph

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// This file is what an approval covers as far as the graph alone tells: which nodes follow from it, a digest
// of their definitions and of all that leads to them, and what they read of the run's state. It is found out
// once for a program, since a run may have thousands of questions of approval.

// lead is where edges lead from each node, or come from; BACK edges count.
type lead [][]int32

// cover is what questions of approval need to know of a program.
type cover struct {
	out, in lead
	// digests are, by component, of its nodes, of everything that leads to it and of everything that it leads
	// to. They cost most, and are made when the first question is asked: see digested.
	digests [][sha256.Size]byte
	// reads is what each node reads of the state; nil when the graph declares none.
	reads []stateReads
	// workflows are those that the arguments of each node name.
	workflows map[int32][]string
}

// leads is where the edges lead from each node, and where they come from.
func (p *Program) leads() (out, in lead) {
	out, in = make(lead, len(p.nodes)), make(lead, len(p.nodes))
	for e := range p.edges {
		pe := &p.edges[e]
		out[pe.from], in[pe.to] = append(out[pe.from], pe.to), append(in[pe.to], pe.from)
	}
	return out, in
}

// covers works out what questions of approval need to know of the program. The error is ctx's; a later call
// begins anew then.
func (p *Program) covers(ctx context.Context) (*cover, error) {
	r := p.reaches()
	r.coverMu.Lock()
	defer r.coverMu.Unlock()
	if r.cover != nil {
		return r.cover, nil
	}
	c := &cover{}
	c.out, c.in = p.leads()
	if len(p.g.State) > 0 {
		c.reads = make([]stateReads, len(p.nodes))
		for n := range p.nodes {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c.reads[n] = p.readsOf(int32(n))
		}
	}
	for n := range p.nodes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if names := workflowsOf(p.nodes[n].Node); len(names) > 0 {
			if c.workflows == nil {
				c.workflows = map[int32][]string{}
			}
			c.workflows[int32(n)] = names
		}
	}
	r.cover = c
	return c, nil
}

// digested is covers with the digests.
func (p *Program) digested(ctx context.Context) (*cover, error) {
	c, err := p.covers(ctx)
	if err != nil {
		return nil, err
	}
	r := p.reaches()
	r.coverMu.Lock()
	defer r.coverMu.Unlock()
	if c.digests != nil {
		return c, nil
	}
	return c, c.digest(ctx, p, r)
}

// digest names what every component of the graph is part of: one pass from the starts to the ends, and one
// back.
func (c *cover) digest(ctx context.Context, p *Program, r *reach) error {
	byComp := r.order() // those of ancestors first
	n := 0
	for _, k := range r.comp {
		n = max(n, int(k)+1)
	}
	up, digests := make([][sha256.Size]byte, n), make([][sha256.Size]byte, n)
	each := func(reverse bool, do func(comp int32, nodes []int32)) error {
		list := byComp
		for len(list) > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			lo, hi := 0, 1
			if reverse {
				hi = len(list)
				for lo = hi - 1; lo > 0 && r.comp[list[lo-1]] == r.comp[list[hi-1]]; lo-- {
				}
			} else {
				for hi < len(list) && r.comp[list[hi]] == r.comp[list[0]] {
					hi++
				}
			}
			nodes := slices.Clone(list[lo:hi])
			slices.Sort(nodes)
			do(r.comp[nodes[0]], nodes)
			if reverse {
				list = list[:lo]
			} else {
				list = list[hi:]
			}
		}
		return nil
	}
	err := each(false, func(comp int32, nodes []int32) {
		h := sha256.New()
		write := func(v any) {
			sum := jsonDigest(v)
			h.Write(sum[:])
		}
		for _, v := range nodes {
			write(p.nodes[v].Node)
			for _, e := range r.edge[r.first[v]:r.first[v+1]] {
				write(&p.g.Edges[e])
				if from := r.comp[p.edges[e].from]; from != comp {
					h.Write(up[from][:])
				}
			}
		}
		h.Sum(up[comp][:0])
	})
	if err != nil {
		return err
	}
	err = each(true, func(comp int32, nodes []int32) {
		h := sha256.New()
		h.Write(up[comp][:])
		for _, v := range nodes {
			for _, to := range c.out[v] {
				if to := r.comp[to]; to != comp {
					h.Write(digests[to][:])
				}
			}
		}
		h.Sum(digests[comp][:0])
	})
	if err == nil {
		c.digests = digests
	}
	return err
}

// jsonDigest is a digest of the value's canonical JSON.
func jsonDigest(v any) [sha256.Size]byte {
	b, err := canonicalJSON(v)
	if err != nil {
		b = []byte(err.Error()) // what is in a graph or journal can be written
	}
	return sha256.Sum256(b)
}

// from marks what leads on from these nodes: what one edge or more lead to. When ctx ends, the marks are of
// no use.
func (l lead) from(ctx context.Context, nodes ...int32) []bool {
	marked := make([]bool, len(l))
	for len(nodes) > 0 && ctx.Err() == nil {
		last := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		for _, n := range l[last] {
			if !marked[n] {
				marked[n] = true
				nodes = append(nodes, n)
			}
		}
	}
	return marked
}

// before marks the nodes of which some of these, or what follows from these, are what follows: an approval
// given at one of them covers some of these.
func (c *cover) before(ctx context.Context, nodes ...int32) []bool {
	return c.in.from(ctx, append(slices.Clone(nodes), marked(c.out.from(ctx, nodes...))...)...)
}

// marked lists the nodes that are marked.
func marked(marks []bool) []int32 {
	var out []int32
	for n, ok := range marks {
		if ok {
			out = append(out, int32(n))
		}
	}
	return out
}

// stateReads are the keys of the run's state that something reads, in order; all of them if it cannot be told
// which.
type stateReads struct {
	keys []string
	all  bool
}

func (r *stateReads) add(keys []string, all bool) {
	r.all = r.all || all
	for _, k := range keys {
		if at, found := slices.BinarySearch(r.keys, k); !found {
			r.keys = slices.Insert(r.keys, at, k)
		}
	}
}

// in lists the keys among those that the graph declares.
func (r *stateReads) in(declared map[string]*stateVar) []string {
	if r.all {
		return sortedKeys(declared)
	}
	return slices.DeleteFunc(slices.Clone(r.keys), func(k string) bool { return declared[k] == nil })
}

func (r *stateReads) expr(e *Expr) {
	if e != nil {
		r.add(e.stateKeys, e.wholeState)
	}
}

// readsOf is what the node reads: in its own expressions, on the edges into it, in the transforms of what
// hands it values, and in the expressions that are its own arguments.
func (p *Program) readsOf(n int32) stateReads {
	var out stateReads
	pn := &p.nodes[n]
	for _, e := range []*Expr{pn.when, pn.over, pn.key, pn.test, pn.transform} {
		out.expr(e)
	}
	r := p.reaches()
	for _, e := range r.edge[r.first[n]:r.first[n+1]] {
		pe := &p.edges[e]
		out.expr(pe.when)
		out.expr(pe.merge)
		out.expr(p.nodes[pe.from].transform)
	}
	p.callReads(&out, pn.Actor, pn.Named)
	return out
}

// callReads adds what a call with these arguments reads.
func (p *Program) callReads(out *stateReads, actor string, named map[string]json.RawMessage) {
	if p.evaluated == nil || len(named) == 0 {
		return
	}
	for _, text := range p.evaluated(actor, named) {
		out.add(stateWords(text))
	}
}

// WithEvaluated is the program with what tells the expressions that a call of an actor with these named
// arguments evaluates: nil for an actor that evaluates none, whatever it is called with.
func (p *Program) WithEvaluated(f func(actor string, named map[string]json.RawMessage) []string) *Program {
	q := *p
	q.evaluated, q.reach = f, &reach{}
	return &q
}

var (
	stateWord = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.])(\.?\s*state)\b`)
	stateKey  = regexp.MustCompile(`^\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)\s*(\(?)`)
)

// stateWords finds what an expression reads of the state, by its words alone: what cannot be told apart reads
// all of it.
func stateWords(text string) (keys []string, all bool) {
	if !strings.Contains(text, "state") {
		return nil, false
	}
	for _, at := range stateWord.FindAllStringIndex(text, -1) {
		m := stateKey.FindStringSubmatch(text[at[1]:])
		if m == nil || m[2] != "" {
			return nil, true
		}
		keys = append(keys, m[1])
	}
	return keys, false
}
