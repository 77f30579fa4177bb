package workflow

import (
	"slices"
	"strings"
)

// Shares reports where a text of a workflow, or of a fork, gives somebody the actor memory_share, which
// writes for others than the user of a run. It is for texts of models. It tells nothing of a text that
// cannot be read.
func Shares(src []byte) (Place, bool) {
	v := readSource(&teller{}, src)
	if v == nil {
		return Place{}, false
	}
	return v.shares(IsFork(src))
}

// shares looks through a value. A patch need not say which tool it gives a scope, so that of a fork
// counts whatever it belongs to, unless that is a reader.
func (v *value) shares(fork bool) (Place, bool) {
	if v.kind == text && strings.Contains(v.text, memoryShare) {
		return v.at, true
	}
	kindOf, scope := "", (*value)(nil)
	for _, e := range v.entries {
		if at, does := e.value.shares(fork); does {
			return at, true
		}
		switch e.key {
		case "type":
			kindOf = strings.TrimSpace(e.value.text)
		case "scope":
			scope = e.value
		}
	}
	writes := kindOf == memoryWrite || fork && kindOf != memoryRead
	if writes && scope != nil && slices.Contains([]string{"workflow", "namespace"}, strings.TrimSpace(scope.text)) {
		return scope.at, true
	}
	for _, item := range v.items {
		if at, does := item.shares(fork); does {
			return at, true
		}
	}
	return Place{}, false
}
