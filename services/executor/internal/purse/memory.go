package purse

import (
	"sync"
	"time"
)

const (
	// remembered is how long it is remembered that a namespace has caps, while the registry is away.
	remembered = 24 * time.Hour
	// maxNamespaces bounds the namespaces that are remembered.
	maxNamespaces = 4096
	// maxPayers bounds the payers that all of them remember together. Each namespace has a share of it, and
	// at least leastPayers.
	maxPayers, leastPayers = 100_000, 64
	// told is how often it is told that a budget is over its soft cap, and maxTold bounds the budgets of a
	// namespace of which that is known.
	told, maxTold = time.Minute, 1000
	// looked is how many namespaces are looked at for one that can be forgotten.
	looked = 16
)

// memory is what is known of namespaces. What it forgets counts as capped.
type memory struct {
	mu         sync.Mutex
	namespaces map[string]*namespace
	// forgot is until when a namespace of which nothing is known counts as one with caps: one that had
	// some was forgotten.
	forgot time.Time
}

// namespace is what waits for one namespace, and what is known of its caps. No other one waits for its
// lock.
type namespace struct {
	name string

	mu sync.Mutex
	// gone says that it was forgotten, so that it must be looked up again.
	gone              bool
	reserving, asking line
	// capped is until when it is known that the namespace has caps.
	capped time.Time
	// fresh and old tell when it was answered last that no cap bounds the calls of a payer, a task or an
	// epic. Once fresh has as many as payers says, it takes the place of old, whose payers are forgotten.
	fresh, old map[string]time.Time
	payers     int
	// soft is when it was told last that a budget is over its soft cap.
	soft map[string]time.Time
}

// locked returns a namespace, which it locks.
func (m *memory) locked(name string) *namespace {
	for {
		n := m.of(name)
		n.mu.Lock()
		if !n.gone {
			return n
		}
		n.mu.Unlock()
	}
}

func (m *memory) of(name string) *namespace {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.namespaces[name]
	if n != nil {
		return n
	}
	if len(m.namespaces) >= maxNamespaces {
		m.forget()
	}
	n = &namespace{name: name, asking: line{askOnly: true}, capped: m.forgot, payers: max(maxPayers/(2*(len(m.namespaces)+1)), leastPayers)}
	m.namespaces[name] = n
	return n
}

// forget makes room for a namespace. One without caps is forgotten first. If all that it looks at are
// busy, it forgets none. The caller holds m.mu.
func (m *memory) forget() {
	now, seen := time.Now(), 0
	var with *namespace
	for _, n := range m.namespaces {
		if seen++; seen > looked {
			break
		}
		if !n.mu.TryLock() {
			continue
		}
		idle, capped := !n.reserving.busy && !n.asking.busy, now.Before(n.capped)
		if idle && !capped {
			n.gone = true
			delete(m.namespaces, n.name)
			n.mu.Unlock()
			return
		}
		if n.mu.Unlock(); idle {
			with = n
		}
	}
	if with == nil || !with.mu.TryLock() {
		return
	}
	defer with.mu.Unlock()
	if with.reserving.busy || with.asking.busy {
		return
	}
	if with.gone = true; with.capped.After(m.forgot) {
		m.forgot = with.capped
	}
	delete(m.namespaces, with.name)
}

// uncapped reports whether the registry said within a time that no cap bounds the calls of a payer. The
// caller holds n.mu.
func (n *namespace) uncapped(payer string, within time.Duration) bool {
	at, ok := n.fresh[payer]
	if !ok {
		at, ok = n.old[payer]
	}
	return ok && time.Since(at) < within
}

// learn remembers whether a cap bounds the calls of a payer. The caller holds n.mu.
func (n *namespace) learn(payer string, capped bool) {
	now := time.Now()
	if capped {
		n.capped = now.Add(remembered)
		delete(n.fresh, payer)
		delete(n.old, payer)
		return
	}
	if _, ok := n.fresh[payer]; !ok && len(n.fresh) >= n.payers {
		n.fresh, n.old = nil, n.fresh
	}
	if n.fresh == nil {
		n.fresh = map[string]time.Time{}
	}
	n.fresh[payer] = now
}

// unanswered is the answer in place of that of a registry that is away. The caller holds n.mu.
func (n *namespace) unanswered(l *line, call *Call) Answer {
	if !l.askOnly && len(call.Runs) == 0 && (n.uncapped(call.payer(), remembered) || time.Now().After(n.capped)) {
		return Answer{}
	}
	return Answer{Capped: true, Refusal: &Refusal{Reason: ReasonAway, Message: "a budget bounds the call, or may, and the registry, which keeps it, does not answer"}}
}

// tells reports whether it is time to tell that a budget is over its soft cap. The caller holds n.mu.
func (n *namespace) tells(budget string) bool {
	now := time.Now()
	if now.Sub(n.soft[budget]) < told {
		return false
	}
	if n.soft == nil || len(n.soft) >= maxTold {
		n.soft = map[string]time.Time{}
	}
	n.soft[budget] = now
	return true
}
