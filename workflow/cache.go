package workflow

import (
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// caching is what a step, or a member of a team, says of its cache: a time, or {ttl, scope, key}.
type caching struct {
	ttl   time.Duration
	scope workgraph.CacheScope
	// key is an expression, nil for none.
	key *value
	at  *value
}

// cacheScopes are the words of scopes.
var cacheScopes = []string{"chat", "user", "namespace"}

// cache reads `cache`. Nil if it is not there. keyed says that it may have a key.
func (t *teller) cache(o *object, keyed bool) *caching {
	v := o.value("cache")
	if v == nil {
		return nil
	}
	c := &caching{at: v}
	ttl := v
	if v.kind == mapping {
		in := t.object(v, "`cache`")
		if ttl = in.value("ttl"); ttl == nil {
			in.missing("ttl", "how long a result is kept, such as 1h")
		}
		c.scope = workgraph.CacheScope(strings.ToUpper(in.word("scope", "chat", cacheScopes...)))
		if key := in.value("key"); key != nil && t.is(key, text) {
			if c.key = key; !keyed {
				t.at(key, "FIELD_NOT_USED", "leave it out", "a member of a team is told apart by what it hears")
			}
		}
		in.done()
	}
	switch {
	case ttl == nil:
	case ttl.kind == text || ttl.kind == number:
		d, ok := readDuration(ttl.text)
		if c.ttl = d; !ok || d == 0 {
			t.at(ttl, "BAD_DURATION", "write for example 90s, 1h or 2d", "%q is no time for which a result could be kept", clip(ttl.text))
		}
	default:
		t.is(ttl, text)
	}
	return c
}

// node is the cache of a node. Nil if there is none.
func (c *caching) node() *workgraph.Cache {
	if c == nil {
		return nil
	}
	out := &workgraph.Cache{TTL: workgraph.Duration(c.ttl)}
	if c.scope != workgraph.CacheForChat {
		out.Scope = c.scope
	}
	return out
}

// uncached says why results of a type of steps are not kept. Empty for those whose are.
func uncached(kind string) string {
	switch kind {
	case "actor", "agent", "categorizer", "code", "deep_agent", "extractor", "http", "workflow":
		return ""
	case "human":
		return "asks a person each time"
	case "wait":
		return "only waits"
	case "team":
		return "goes on with its thread: cache its agents that are workflows"
	case "loop", "map", "best_of":
		return "has no `cache`: the steps of its body may have"
	}
	return "has no `cache`: nothing is called for its result"
}

// caches gives the node of a step its cache, and tells where it has no meaning.
func (c *compiler) caches(s *Step, n *workgraph.Node) {
	if s.cache == nil {
		return
	}
	n.Cache = s.cache.node()
	if n.Actor == "agent" && n.Named["thread"] != nil {
		c.at(s.cache.at, "FIELD_NOT_USED", "leave out the cache or the memory", "the agent of the step %q goes on with a conversation, so no answer stands for a later one", clip(s.ID))
	}
	if c.of != nil {
		if _, best := c.of.body.(*bestBody); best {
			c.at(s.cache.at, "FIELD_NOT_USED", "leave it out", "the attempts of `best_of` would all be the same one")
		}
	}
	if s.cache.key == nil {
		return
	}
	if src, _, ok := c.filled(s.cache.key, func(r *ref) bool { return c.known(s, r, s.cache.key, true) }); ok {
		c.compiles(s.cache.key, src)
		n.Cache.Key = src
	}
}
