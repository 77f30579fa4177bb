package engine

import (
	"encoding/json"
)

// variable is what a call of the run may ask for: see workgraph.Call.Var.
func (r *run) variable(name string) (json.RawMessage, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Var(name)
}

// keepDetails tells watchers what a heartbeat says.
func (t *term) keepDetails(a *attempt, details json.RawMessage) {
	if len(details) == 0 {
		return
	}
	reporter{t.e.hub, a}.Progress(details)
}

func (t *term) detailsOf(*attempt) json.RawMessage { return nil }
