package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Canonical returns the canonical form: JSON with a fixed order of fields, and with problems and edges in the
// order of the plan. Places are left out, so two texts that state the same plan have the same form.
func (g Graph) Canonical() []byte {
	type arg struct {
		Name  string `json:"name,omitempty"`
		Kind  string `json:"kind"`
		Value string `json:"value"`
	}
	type problem struct {
		ID      string `json:"id"`
		Request string `json:"request,omitempty"`
		Details string `json:"details,omitempty"`
		Parent  string `json:"parent,omitempty"`
		Args    []arg  `json:"args,omitempty"`
	}
	type edge struct {
		From   string `json:"from"`
		To     string `json:"to"`
		Source string `json:"source"`
	}
	out := struct {
		Version  int       `json:"version"`
		Problems []problem `json:"problems"`
		Edges    []edge    `json:"edges"`
	}{Version: 1, Problems: []problem{}, Edges: []edge{}}
	for _, p := range g.Problems {
		q := problem{ID: p.ID, Request: p.Request, Details: p.Details, Parent: p.ParentID}
		for _, a := range p.Args {
			q.Args = append(q.Args, arg{a.Name, string(a.Kind), a.Value})
		}
		out.Problems = append(out.Problems, q)
	}
	for _, e := range g.Edges {
		out.Edges = append(out.Edges, edge{e.From, e.To, string(e.Source)})
	}
	b, err := json.Marshal(out)
	if err != nil { // strings and ints always marshal
		return nil
	}
	return b
}

// Hash returns the sha256 of the canonical form in hex.
func (g Graph) Hash() string {
	sum := sha256.Sum256(g.Canonical())
	return hex.EncodeToString(sum[:])
}
