package meaning

// Kind says how steps are related.
type Kind uint8

// The kinds of relations.
const (
	// Needs and Uses: the items come before the subjects.
	Needs Kind = iota
	Uses
	// Before: the subjects come before the items.
	Before
	// Beside: the subjects need what the items need.
	Beside
	// Apart: the subjects do not need the items.
	Apart
	// None: the subjects need nothing.
	None
)

// Named is an item as the outline shows it.
type Named struct {
	// ID is the label, Noun the word before it ("Step"), Titles are the texts that name the item.
	ID, Noun string
	Titles   []string
	// Parent is the place of the group that it stands in, or -1. Group is set on items that only group others.
	Parent int
	Group  bool
}

// Relation is one thing that a text says about steps. Subjects and Items are places in the list of items; Unknown are ids
// that no item has.
type Relation struct {
	Kind            Kind
	Subjects, Items []int
	Unknown         []string
	Off, End        int
}

// Doubt is something in a text that names a step and was not understood.
type Doubt struct {
	Item      int
	Text, Why string
	Off       int
}

// Names says what references in a text can mean.
type Names struct {
	items []Named
}

// NewNames prepares the names of items.
func NewNames(items []Named) *Names { return &Names{items: items} }

// Relations returns what a text says about the item self, or about others when self is -1. Off is added to all places.
func (n *Names) Relations(self int, text string, off int) (rels []Relation, doubts []Doubt) {
	return nil, nil
}
