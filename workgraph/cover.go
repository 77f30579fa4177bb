package workgraph

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// This file computes what an approval covers as far as the graph alone says: which nodes follow from it, a
// digest of their definitions and of everything that leads to them, and what they read of the run's state. It
// is computed once for a program, since a run may have thousands of approvals.

// lead lists, for each node, the targets of its outgoing edges or the sources of its incoming ones. BACK
// edges count.
type lead [][]int32

// cover is what approvals need to know about a program.
type cover struct {
	out, in lead
	// digests are, by component, of its nodes, of everything that leads to it and of everything that it leads
	// to. They are expensive, so digested makes them when the first interrupt is opened.
	digests [][sha256.Size]byte
	// reads is what each node reads of the state. It is nil if the graph declares no state.
	reads []stateReads
	// workflows are those that the arguments of each node name.
	workflows map[int32][]string
}

// leads lists the targets and the sources of each node's edges.
func (p *Program) leads() (out, in lead) {
	out, in = make(lead, len(p.nodes)), make(lead, len(p.nodes))
	for e := range p.edges {
		pe := &p.edges[e]
		out[pe.from], in[pe.to] = append(out[pe.from], pe.to), append(in[pe.to], pe.from)
	}
	return out, in
}

// covers computes the cover of the program. After an error, which is that of ctx, a later call starts over.
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

// digest computes the digests in one pass over the components from the starts to the ends, and one back.
func (c *cover) digest(ctx context.Context, p *Program, r *reach) error {
	byComp := r.order() // ancestors first
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
		b = []byte(err.Error()) // cannot happen: values of a graph or journal can be written
	}
	return sha256.Sum256(b)
}

// from marks the nodes that one or more edges lead to from these nodes. If ctx ends, the marks must not be
// used.
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

// before marks the nodes where an approval covers some of these: those from which one of these, or something
// that follows from these, follows.
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

// stateReads are the keys of the run's state that something reads, in order. all says that it may read every
// key.
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

// readsOf is what the node reads in its own expressions, on the edges into it, in the transforms of nodes
// that hand it values, and in the expressions among its own arguments.
func (p *Program) readsOf(n int32) stateReads {
	var out stateReads
	pn := &p.nodes[n]
	for _, e := range []*Expr{pn.when, pn.over, pn.until, pn.key, pn.test, pn.transform} {
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

// WithEvaluated is the program with a function that lists the expressions that a call of an actor with these
// named arguments evaluates. The function must return nil for an actor that evaluates none with any
// arguments.
func (p *Program) WithEvaluated(f func(actor string, named map[string]json.RawMessage) []string) *Program {
	q := *p
	q.evaluated, q.reach = f, &reach{}
	return &q
}

var (
	stateWord = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.])(\.?\s*state)\b`)
	stateKey  = regexp.MustCompile(`^\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)\s*(\(?)`)
)

// stateWords finds the keys of the state that an expression reads, from its text alone. all is true if some
// use of the state has no constant key.
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
