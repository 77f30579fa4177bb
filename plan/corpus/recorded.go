package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/plan"
)

// record is one plan of the data folder with its expected graph.
type record struct {
	ID       string    `json:"id"`
	Family   string    `json:"family"`
	Format   string    `json:"format"`
	Raw      string    `json:"raw"`
	Expected *expected `json:"expected"`
	Flags    []string  `json:"flags"`
}

type expected struct {
	Nodes     [][]any      `json:"nodes"`
	Edges     *[][]string  `json:"edges"`
	Hierarchy *[][2]string `json:"hierarchy"`
}

// heldOut is the percentage of each family that was held out while the dialects were written.
const heldOut = 30

func (r *record) heldOut() bool { return crc32.ChecksumIEEE([]byte(r.ID))%100%10 < heldOut/10 }

func (r *record) flag(names ...string) bool {
	for _, f := range r.Flags {
		for _, n := range names {
			if f == n {
				return true
			}
		}
	}
	return false
}

// isNoPlan reports whether the reader must find no plan.
func (r *record) isNoPlan() bool {
	return r.Expected == nil && r.flag("no_plan", "refusal", "not_a_graph")
}

// readCorpus reads the records of a gzipped JSON Lines file.
func readCorpus(path string) (records []record, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(z)
	for {
		var r record
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return records, nil
		} else if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(records)+1, err)
		}
		records = append(records, r)
	}
}

// verdict is the outcome of reading one record.
type verdict string

const (
	exact         verdict = "exact"
	silentlyWrong verdict = "silently wrong"
	saidWrong     verdict = "wrong, said so"
	refused       verdict = "wrongly refused"
	noPlanSeen    verdict = "no plan recognized"
	undecided     verdict = "not scored"
	crashed       verdict = "crashed"
)

type outcome struct {
	verdict    verdict
	falseAlarm bool
	detail     string
	result     plan.Result
	took       time.Duration
}

// faultCodes are the diagnostics that a record with the flag requires. They must name an element.
var faultCodes = []struct {
	flag string
	code plan.Code
}{
	{"cycle", plan.Cycle}, {"self_loop", plan.SelfLoop}, {"dangling_ref", plan.UnknownReference}, {"dup_node_id", plan.DuplicateID},
}

// score reads a record and compares the result with the expected graph.
func score(r *record) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{verdict: crashed, detail: fmt.Sprint(p)}
		}
	}()
	start := time.Now()
	res := plan.Parse(r.Raw)
	o.took = time.Since(start)
	o.result = res
	if r.Expected == nil {
		switch {
		case !r.isNoPlan():
			o.verdict = undecided
		case res.NoPlan != nil:
			o.verdict = noPlanSeen
		default:
			o.verdict = silentlyWrong
			o.detail = "no plan expected, read as " + res.Dialect
		}
		return o
	}
	if res.NoPlan != nil {
		o.verdict, o.detail = refused, string(res.NoPlan.Reason)+": "+res.NoPlan.Message
		return o
	}
	if !r.flag("cycle", "self_loop", "dangling_ref", "dup_node_id", "json_invalid", "xml_invalid", "truncated", "empty_plan", "bad_link_shape", "unbalanced_brackets") && res.HasErrors() {
		o.falseAlarm = true
	}
	diffs := compare(r.Expected, res.Graph)
	if len(diffs) == 0 {
		for _, f := range faultCodes {
			if r.flag(f.flag) && !hasCode(res.Diagnostics, f.code) {
				diffs = append(diffs, difference{element: f.flag, text: "fault not reported: " + f.flag})
			}
		}
	}
	if len(diffs) == 0 {
		o.verdict = exact
		return o
	}
	o.verdict = saidWrong
	var lines []string
	for _, d := range diffs {
		mark := "said"
		if !named(res.Diagnostics, d) {
			o.verdict = silentlyWrong
			mark = "SILENT"
		}
		lines = append(lines, mark+" "+d.text)
	}
	o.detail = strings.Join(lines, "\n")
	if o.verdict == saidWrong && res.HasErrors() {
		o.verdict = refused
	}
	return o
}

func hasCode(ds []plan.Diagnostic, c plan.Code) bool {
	for _, d := range ds {
		if d.Code == c && d.Element != "" {
			return true
		}
	}
	return false
}

// difference is one element in which a graph differs from the expected one.
type difference struct {
	element string
	ends    []string
	lost    bool
	text    string
}

// named reports whether a diagnostic names the element. A lost element has no diagnostic of its own, so the
// place at which the text breaks off is enough.
func named(ds []plan.Diagnostic, d difference) bool {
	for _, x := range ds {
		broken := x.Severity == plan.Error && (x.Code == plan.Truncated || x.Code == plan.Unclosed || x.Code == plan.Unbalanced || x.Code == plan.Malformed)
		if d.lost && broken {
			return true
		}
		if x.Code == plan.AssumedOrder || x.Code == plan.OpenEnd && d.lost {
			continue // reported for many correct texts as well
		}
		for _, e := range append([]string{d.element}, d.ends...) {
			if e != "" && x.Element == e {
				return true
			}
		}
	}
	return false
}

// compare returns the differences: ids as an ordered multiset, edges as a multiset, the hierarchy as a set.
func compare(want *expected, got plan.Graph) []difference {
	var out []difference
	ids := make([]string, len(want.Nodes))
	for i, n := range want.Nodes {
		ids[i] = fmt.Sprint(n[0])
	}
	same := len(ids) == len(got.Problems)
	for i := 0; same && i < len(ids); i++ {
		same = ids[i] == got.Problems[i].ID
	}
	if !same {
		count := map[string]int{}
		for _, id := range ids {
			count[id]++
		}
		for _, p := range got.Problems {
			count[p.ID]--
		}
		n := len(out)
		for id, c := range count {
			if c > 0 {
				out = append(out, difference{element: id, lost: true, text: "lost problem " + id})
			} else if c < 0 {
				out = append(out, difference{element: id, text: "invented problem " + id})
			}
		}
		if len(out) == n {
			out = append(out, difference{element: "order", text: "problems in another order"})
		}
	}
	if want.Edges != nil {
		count := map[[2]string]int{}
		for _, e := range *want.Edges {
			count[[2]string{e[0], e[1]}]++
		}
		for _, e := range got.Edges {
			count[[2]string{e.From, e.To}]--
		}
		for e, c := range count {
			d := difference{element: e[0] + " -> " + e[1], ends: []string{e[0], e[1]}}
			if c > 0 {
				d.lost, d.text = true, "lost edge "+d.element
				out = append(out, d)
			} else if c < 0 {
				d.text = "invented edge " + d.element
				out = append(out, d)
			}
		}
	}
	if want.Hierarchy != nil {
		set := map[[2]string]int{}
		for _, h := range *want.Hierarchy {
			set[h] |= 1
		}
		for _, p := range got.Problems {
			if p.ParentID != "" {
				set[[2]string{p.ParentID, p.ID}] |= 2
			}
		}
		for h, m := range set {
			if m != 3 {
				out = append(out, difference{element: h[1], ends: []string{h[0]}, lost: m == 1, text: "hierarchy differs at " + h[0] + " / " + h[1]})
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].text < out[j].text })
	return out
}
