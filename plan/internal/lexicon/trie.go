package lexicon

// Trie finds which of many keys occur at a place of a text, in time that does not depend on the number of
// keys. Each key belongs to sets, such as those of its languages. Keys in none of the requested sets are
// skipped.
type Trie struct {
	nodes []trieNode
	bytes []byte // the byte that leads to each node
	first [256]int32
	keys  int
}

type trieNode struct {
	kids, key int32 // indexes of the first child and of the key that ends here, or -1
	n         int32 // number of children, which are adjacent
	sets      uint32
}

// AllSets stands for any set of keys.
const AllSets = ^uint32(0)

// NewTrie makes a trie of sorted keys, each with its sets. Of equal keys the last one counts.
func NewTrie(keys []string, sets []uint32) Trie {
	type span struct{ lo, hi, depth int }
	t := Trie{nodes: []trieNode{{key: -1}}, bytes: []byte{0}, keys: len(keys)}
	spans := []span{{0, len(keys), 0}}
	for i := 0; i < len(spans); i++ {
		s := spans[i]
		t.nodes[i].kids = int32(len(t.nodes))
		for ; s.lo < s.hi && len(keys[s.lo]) == s.depth; s.lo++ {
			t.nodes[i].key = int32(s.lo)
		}
		for s.lo < s.hi {
			c, end, in := keys[s.lo][s.depth], s.lo, uint32(0)
			for ; end < s.hi && keys[end][s.depth] == c; end++ {
				in |= sets[end]
			}
			t.nodes, t.bytes = append(t.nodes, trieNode{key: -1, sets: in}), append(t.bytes, c)
			spans = append(spans, span{s.lo, end, s.depth + 1})
			t.nodes[i].n++
			s.lo = end
		}
	}
	for c := range t.first {
		t.first[c] = -1
	}
	for k := range t.nodes[0].n {
		t.first[t.bytes[1+k]] = 1 + k
	}
	return t
}

// Next returns the node that the byte c leads to from a node, or -1. Node 0 is the root.
func (t *Trie) Next(node int32, c byte, sets uint32) int32 {
	next := int32(-1)
	if node == 0 {
		next = t.first[c]
	} else {
		n := &t.nodes[node]
		for i := n.kids; i < n.kids+n.n; i++ {
			if t.bytes[i] == c {
				next = i
				break
			}
		}
	}
	if next >= 0 && t.nodes[next].sets&sets == 0 {
		return -1
	}
	return next
}

// Len returns the number of keys.
func (t *Trie) Len() int { return t.keys }

// Key returns the index of the key that ends at a node, or -1.
func (t *Trie) Key(node int32) int32 { return t.nodes[node].key }
