package workgraph

// Program is a validated graph with its indexes and compiled expressions. It is immutable and may be shared by any number of
// runs and goroutines.
type Program struct{ g *Graph }

// Compile validates g against actors and makes it runnable. Actors may be nil: then actor names are not checked, and a node
// that states no effect counts as UNSAFE. The error is a Faults when g is at fault.
func Compile(g *Graph, actors ActorSet) (*Program, error) { return nil, nil }

// Graph is a copy of the compiled graph with every effect filled in. Compiling it again without actors gives an equal program,
// so it is what a durable engine should store.
func (p *Program) Graph() *Graph { return p.g.Clone() }
