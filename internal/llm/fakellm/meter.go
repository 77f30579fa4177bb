package fakellm

import (
	"slices"
	"sync"
	"time"
)

// Limits are what a server takes in any stretch of Interval; 0 does not bound. Beyond them it answers 429
// with Retry-After. A request counts from its arrival on, with the tokens of its prompt, and with those of
// the answer once that is sent, as at the providers.
type Limits struct {
	Requests int64         `yaml:"requests"`
	Tokens   int64         `yaml:"tokens"`
	Interval time.Duration `yaml:"interval"`
}

// Use is a request that was let in.
type Use struct {
	At, End time.Time
	Tokens  int64
}

// Meter counts what limits bound. The zero value has none. It is safe for concurrent use.
type Meter struct {
	mu      sync.Mutex
	uses    []*Use
	oldest  int // index of the first use that still counts
	refused int
}

// Enter lets a request in, or says after how long it would be: zero if it is in.
func (m *Meter) Enter(l Limits, tokens int64, now time.Time) (*Use, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.oldest < len(m.uses) && now.Sub(m.uses[m.oldest].At) >= l.Interval {
		m.oldest++
	}
	sum := tokens
	for _, u := range m.uses[m.oldest:] {
		sum += u.Tokens
	}
	n := int64(len(m.uses) - m.oldest)
	if l.Requests > 0 && n >= l.Requests || l.Tokens > 0 && sum > l.Tokens && n > 0 {
		m.refused++
		return nil, max(l.Interval-now.Sub(m.uses[m.oldest].At), time.Millisecond)
	}
	u := &Use{At: now, Tokens: tokens}
	m.uses = append(m.uses, u)
	return u, 0
}

// Leave counts the tokens of the answer.
func (m *Meter) Leave(u *Use, tokens int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u.Tokens, u.End = u.Tokens+tokens, now
}

// Refused is how many requests were refused.
func (m *Meter) Refused() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

// Uses are the requests that were let in, in order.
func (m *Meter) Uses() []Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Use, len(m.uses))
	for i, u := range m.uses {
		out[i] = *u
	}
	return out
}

// Most is the most requests and tokens in any stretch of an interval, by the arrivals of the requests.
func Most(uses []Use, interval time.Duration) (requests, tokens int64) {
	uses = slices.Clone(uses)
	slices.SortFunc(uses, func(a, b Use) int { return a.At.Compare(b.At) })
	first, sum := 0, int64(0)
	for i, u := range uses {
		sum += u.Tokens
		for u.At.Sub(uses[first].At) >= interval {
			sum -= uses[first].Tokens
			first++
		}
		requests, tokens = max(requests, int64(i-first+1)), max(tokens, sum)
	}
	return requests, tokens
}
