package workgraph

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// dynCosts charges for operators that CEL counts as one step when it does not know their types beforehand. Here it never
// does, so that doubling a text, or looking for a value in a long list, would be as good as free.
type dynCosts struct{}

// CallCost gives nil where CEL's own model knows the operation.
func (dynCosts) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if l, ok := result.(traits.Lister); ok && function == operators.Add && length(l.Size()) > maxExprValues {
		over := uint64(exprCostLimit) + 1
		return &over
	}
	if overload != "" || function == overloads.Size || function == operators.Index {
		return nil
	}
	c := uint64(1)
	for _, a := range args {
		// Joining lists shares them, but a search goes through one.
		if _, isList := a.(traits.Lister); !isList || function == operators.In {
			c += extent(a)
		}
	}
	if _, isList := result.(traits.Lister); !isList || function != operators.Add {
		c += extent(result)
	}
	return &c
}

// extent is how many steps it takes to go through a value: the elements of a list or map, a tenth of a text's bytes.
func extent(v ref.Val) uint64 {
	switch x := v.(type) {
	case types.String:
		return uint64(len(x)) / 10
	case types.Bytes:
		return uint64(len(x)) / 10
	case traits.Lister:
		return length(x.Size())
	}
	return 0
}

func length(v ref.Val) uint64 {
	n, ok := v.(types.Int)
	if !ok || n < 0 {
		return 0
	}
	return uint64(n)
}
