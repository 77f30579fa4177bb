package inflight

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Budget is a number of bytes that namespaces share. A namespace may have half of it. The last quarter of
// that half, and the last quarter of the whole, are for small requests. What a namespace holds beyond its
// half, because it was counted after the fact, takes nothing from others.
//
// A request without room can queue. The queue of a namespace is in the order of arrival. Among namespaces,
// room goes first to the one that would hold least with it, so that a namespace that holds much never keeps
// out one that holds little. A Budget is safe for concurrent use.
type Budget struct {
	small, large bounds

	mu     sync.Mutex
	used   int64
	spaces map[string]*space
	line   []*claim // claims of requests that hold something first, each group in the order of arrival
	round  uint64
	// glanced is when somebody in the queue last checked it because time had passed.
	glanced time.Time
	held
}

// bounds are the limits of small requests, or of others.
type bounds struct {
	// total bounds all, share one namespace.
	total, share int64
	// seen is what all namespaces hold, of each no more than share.
	seen int64
}

// sees records that a namespace's bytes changed from one number to another.
func (o *bounds) sees(before, now int64) { o.seen += min(now, o.share) - min(before, o.share) }

// space is what one namespace holds and waits for.
type space struct {
	used int64
	held
	// queued are the requests that wait for seconds, answers the bytes of answers that do; inLine is how many
	// claims stand in line.
	queued, inLine int
	answers        int64
	// The rounds in which a claim was found that goes before the others of this namespace.
	small, large uint64
}

// held is what requests hold.
type held struct {
	shared int64
	// shares are those that hold something, and stuck are those of them that stand in line for more.
	shares, stuck int
}

// allWait reports whether all of used bytes are held by requests that wait for more.
func (h *held) allWait(used int64) bool {
	return h.stuck > 0 && h.stuck == h.shares && h.shared == used
}

// claim is what asks for room.
type claim struct {
	namespace string
	// add is the number of bytes to count, and held what the request has together with it.
	add, held int64
	// needs is the room that there must be: add, or less for what may be larger than any room.
	needs int64
	large bool
	// begins says that these are the first bytes of a request.
	begins bool
	// grows says that the request holds something already, and frees it the sooner the sooner it goes on.
	grows bool

	space *space
	since time.Time
	in    chan struct{}
	// refused says that it was let go without room.
	refused bool
}

const (
	// turn is for how long a claim keeps those behind it out, and rest for how long it lets them pass after
	// that. So a claim that finds no room for hours does not block its namespace.
	turn, rest = 10 * time.Second, 5 * time.Second
	// glance is the pause between two looks at a line in which only time has passed, however many stand in
	// it.
	glance = time.Second
)

// New returns a budget of total bytes. Zero or less means DefaultTotal.
func New(total int64) *Budget {
	if total <= 0 {
		total = DefaultTotal()
	}
	return &Budget{small: bounds{total: total, share: total / 2}, large: bounds{total: total / 4 * 3, share: total / 2 / 4 * 3}, spaces: map[string]*space{}}
}

// Most is what one request may hold at most.
func (b *Budget) Most() int64 { return b.large.share }

// Used is the number of bytes that are held and counted now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Full reports whether there is no room for anybody. One namespace alone never takes all.
func (b *Budget) Full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.small.seen >= b.small.total
}

// Crowded are the namespaces that hold all that they may.
func (b *Budget) Crowded() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, s := range b.spaces {
		if s.used >= b.small.share {
			names = append(names, name)
		}
	}
	return names
}

// Excess returns by how much namespaces hold more than they may: more than their half each, or, if all
// together hold too much, that much of those which hold most.
func (b *Budget) Excess() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var over map[string]int64
	put := func(name string, n int64) {
		if over == nil {
			over = map[string]int64{}
		}
		over[name] += n
	}
	for name, s := range b.spaces {
		if n := s.used - b.small.share; n > 0 {
			put(name, n)
		}
	}
	rest := b.small.seen - b.small.total
	if rest <= 0 {
		return over
	}
	names := slices.SortedFunc(maps.Keys(b.spaces), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.spaces[y].used, b.spaces[x].used), cmp.Compare(x, y))
	})
	for _, name := range names {
		n := min(rest, b.spaces[name].used, b.small.share)
		put(name, n)
		if rest -= n; rest == 0 {
			break
		}
	}
	return over
}

// Half is what a namespace may hold.
func (b *Budget) Half() int64 { return b.small.share }

// Share returns the empty share of a request of a namespace.
func (b *Budget) Share(namespace string) Share { return Share{budget: b, namespace: namespace} }

// Add counts n bytes that a namespace holds already, or, if n is negative, holds no more. It reports whether
// the namespace, or all, hold more than they may then.
func (b *Budget) Add(namespace string, n int64) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(namespace)
	b.count(s, n)
	over = s.used > b.small.share || b.small.seen > b.small.total
	b.forget(namespace, s)
	if n < 0 {
		b.admit()
		b.unstick()
	}
	return over
}

// free gives back n bytes that a request holds; ended says that it holds nothing then.
func (b *Budget) free(namespace string, n int64, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(namespace)
	b.count(s, -n)
	s.shared -= n
	b.shared -= n
	if ended {
		s.shares--
		b.shares--
	}
	b.forget(namespace, s)
	b.admit()
	b.unstick()
}

// unstick breaks a deadlock: if every holder waits for more, in one namespace for its share or in all for
// room at all, it refuses the last of them. The lock is held.
func (b *Budget) unstick() {
	last := -1
	for i, c := range b.line {
		if c.grows && (c.space.allWait(c.space.used) || b.allWait(b.used)) {
			last = i
		}
	}
	if last < 0 {
		return
	}
	c := b.line[last]
	c.refused = true
	b.remove(last)
	close(c.in) // the bytes it frees admit others
}

// errStuck is why a claim was refused that would have waited for others that wait for it.
var errStuck = errors.New("all that hold memory wait for more")

// Try counts n bytes if there is room for them, and nobody stands in line for it. However many they are,
// there is room for them at some time: as soon as the namespace holds little else.
func (b *Budget) Try(namespace string, n int64) bool { return b.try(b.any(namespace, n)) }

// Room reports whether Try would succeed now.
func (b *Budget) Room(namespace string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.any(namespace, n)
	c.space = b.space(namespace)
	defer b.forget(namespace, c.space)
	return b.passes(c)
}

// Await is Try that stands in line until ctx ends.
func (b *Budget) Await(ctx context.Context, namespace string, n int64) error {
	return b.await(ctx, b.any(namespace, n))
}

// any is the claim of what may be of any size. It needs three quarters at most of what its namespace may
// have.
func (b *Budget) any(namespace string, n int64) *claim {
	c := &claim{namespace: namespace, add: n, held: n, large: n > Small}
	c.needs = min(n, b.of(c).share/4*3)
	return c
}

func (b *Budget) of(c *claim) *bounds {
	if c.large {
		return &b.large
	}
	return &b.small
}

func (b *Budget) try(c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.space = b.space(c.namespace)
	defer b.forget(c.namespace, c.space)
	if !b.passes(c) {
		return false
	}
	b.let(c)
	return true
}

func (b *Budget) await(ctx context.Context, c *claim) error {
	if b.try(c) {
		return nil
	}
	b.mu.Lock()
	c.space, c.since, c.in = b.space(c.namespace), time.Now(), make(chan struct{})
	c.space.inLine++
	at := len(b.line)
	if c.grows {
		if at = slices.IndexFunc(b.line, func(o *claim) bool { return !o.grows }); at < 0 {
			at = len(b.line)
		}
	}
	b.line = slices.Insert(b.line, at, c)
	if c.grows {
		c.space.stuck++
		b.stuck++
	}
	b.admit() // room may have come since
	b.unstick()
	b.mu.Unlock()
	look := time.NewTicker(glance)
	defer look.Stop()
	for {
		select {
		case <-c.in:
			if c.refused {
				return errStuck
			}
			return nil
		case <-look.C:
			b.look()
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			at := slices.Index(b.line, c)
			if at < 0 { // let in, or refused, at this moment
				if c.refused {
					return errStuck
				}
				return nil
			}
			b.remove(at)
			b.admit() // it may have stood before others
			return context.Cause(ctx)
		}
	}
}

// look looks at the line since time has passed. Everybody in it does so, and one look is enough for all.
func (b *Budget) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.glanced) >= glance/2 {
		b.glanced = now
		b.admit()
	}
}

// admit lets in who has room, in turn. The lock is held.
func (b *Budget) admit() {
	for len(b.line) > 0 {
		at := b.next()
		if at < 0 {
			return
		}
		c := b.line[at]
		b.let(c)
		b.remove(at)
		close(c.in)
	}
}

// next is the position in the queue of the claim whose turn it is, -1 if there is no room for it. The lock is
// held.
func (b *Budget) next() int {
	b.round++
	now := time.Now()
	small, large := -1, -1
	for i, c := range b.line {
		passed, best := &c.space.small, &small
		if c.large {
			passed, best = &c.space.large, &large
		}
		if *passed == b.round {
			continue
		}
		inShare := b.inShare(c)
		if c.keepsOut(now) || inShare && b.inTotal(c) {
			*passed = b.round
		} else {
			continue
		}
		if inShare && (*best < 0 || c.after() < b.line[*best].after()) {
			*best = i
		}
	}
	switch {
	case small >= 0 && b.inTotal(b.line[small]):
		return small
	case large >= 0 && b.inTotal(b.line[large]):
		return large
	}
	return -1
}

// passes reports whether there is room for a claim that does not stand in line, and nobody who does goes
// before it. The lock is held.
func (b *Budget) passes(c *claim) bool {
	if !b.inShare(c) || !b.inTotal(c) {
		return false
	}
	if c.grows {
		return true
	}
	now := time.Now()
	return !slices.ContainsFunc(b.line, func(o *claim) bool {
		return o.large == c.large && o.keepsOut(now) && (o.space == c.space || b.inShare(o) && o.after() <= c.after())
	})
}

// inShare reports whether the claim's namespace may have so much, inTotal whether all together may. The lock
// is held.
func (b *Budget) inShare(c *claim) bool { return c.after() <= b.of(c).share }

func (b *Budget) inTotal(c *claim) bool {
	o := b.of(c)
	return o.seen-min(c.space.used, o.share)+c.after() <= o.total
}

// after is what the claim's namespace needs when it is let in. The lock is held.
func (c *claim) after() int64 { return c.space.used + c.needs }

// keepsOut reports whether the claim, which stands in line, goes before those behind it.
func (c *claim) keepsOut(now time.Time) bool { return now.Sub(c.since)%(turn+rest) < turn }

// short is what a claim lacks room in, for people, and how large that is.
func (b *Budget) short(c *claim) (of string, bound int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.space = b.space(c.namespace)
	defer b.forget(c.namespace, c.space)
	if b.inShare(c) && !b.inTotal(c) {
		return "the requests of all namespaces", b.of(c).total
	}
	return "the requests of this namespace", b.of(c).share
}

// space is the entry of a namespace. It is dropped when it holds nothing and waits for nothing. The lock is
// held, as below.
func (b *Budget) space(namespace string) *space {
	s := b.spaces[namespace]
	if s == nil {
		s = &space{}
		b.spaces[namespace] = s
	}
	return s
}

func (b *Budget) forget(namespace string, s *space) {
	if s.used == 0 && s.shares == 0 && s.queued == 0 && s.inLine == 0 && s.answers == 0 {
		delete(b.spaces, namespace)
	}
}

// let lets a claim in.
func (b *Budget) let(c *claim) {
	b.count(c.space, c.add)
	if c.begins || c.grows {
		c.space.shared += c.add
		b.shared += c.add
	}
	if c.begins {
		c.space.shares++
		b.shares++
	}
}

func (b *Budget) count(s *space, n int64) {
	b.small.sees(s.used, s.used+n)
	b.large.sees(s.used, s.used+n)
	b.used += n
	s.used += n
}

func (b *Budget) remove(at int) {
	c := b.line[at]
	b.line = slices.Delete(b.line, at, at+1)
	c.space.inLine--
	if c.grows {
		c.space.stuck--
		b.stuck--
	}
	b.forget(c.namespace, c.space)
}

// enter counts a request that waits for seconds, unless there are too many of its namespace.
func (b *Budget) enter(namespace string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(namespace)
	if s.queued >= maxLine {
		return false
	}
	s.queued++
	return true
}

func (b *Budget) leave(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(namespace)
	s.queued--
	b.forget(namespace, s)
}

// wait adds to the bytes of answers of a namespace that wait for room, unless they become too many.
func (b *Budget) wait(namespace string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(namespace)
	defer b.forget(namespace, s)
	if s.answers > 0 && n > 0 && s.answers+n > b.small.share/4 { // one may always wait
		return false
	}
	s.answers += n
	return true
}
