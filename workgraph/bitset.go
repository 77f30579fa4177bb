package workgraph

// bitset is a set of numbers below a bound: of nodes, of names.
type bitset []uint64

// newBitset returns an empty set for numbers below n.
func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (s bitset) has(i int) bool { return s[uint(i)/64]&(1<<(uint(i)%64)) != 0 }

func (s bitset) add(i int) { s[uint(i)/64] |= 1 << (uint(i) % 64) }

// join adds another set and reports whether s changed.
func (s bitset) join(o bitset) bool {
	changed := false
	for k := range s {
		if o[k]&^s[k] != 0 {
			s[k] |= o[k]
			changed = true
		}
	}
	return changed
}

// reachBatch is how many nodes are handled in one pass over the edges.
const reachBatch = 256

// reachSet is a set of numbers below reachBatch, as a value.
type reachSet [reachBatch / 64]uint64

func (s *reachSet) has(i int) bool { return bitset(s[:]).has(i) }

func (s *reachSet) add(i int) { bitset(s[:]).add(i) }

func (s *reachSet) join(o reachSet) {
	for k := range s {
		s[k] |= o[k]
	}
}

// without is the set less the numbers of the other one.
func (s reachSet) without(o reachSet) reachSet {
	for k := range s {
		s[k] &^= o[k]
	}
	return s
}
