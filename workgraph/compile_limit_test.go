package workgraph

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lookedUp is a set of actors that counts lookups and calls at on one of them.
type lookedUp struct {
	n, when int
	at      func()
}

func (l *lookedUp) ActorInfo(string) (ActorInfo, bool) {
	if l.n++; l.n == l.when {
		l.at()
	}
	return ActorInfo{Effect: Pure}, true
}

// TestCompileLimit checks that the compilation of a large graph is given up when its context ends, as that of
// a call does after its time limit.
func TestCompileLimit(t *testing.T) {
	const nodes = 5000
	g := &Graph{}
	for i := range nodes {
		g.Nodes = append(g.Nodes, Node{ID: fmt.Sprintf("n%d", i), Actor: "a",
			When: fmt.Sprintf(`args == [%d] || result == "a"`, i) + strings.Repeat(` || named.x.matches("(a|b)*c{1,50}")`, 20)})
	}
	for i := range nodes - 1 {
		g.Edges = append(g.Edges, Edge{From: fmt.Sprintf("n%d", i), To: fmt.Sprintf("n%d", i+1), When: fmt.Sprintf(`result == %d`, i)})
	}
	t.Run("Canceled/NoOtherNodeIsLookedAt", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the caller has gone")
		actors := &lookedUp{when: 10, at: func() { cancel(gone) }}
		_, err := Compile(ctx, g, actors)
		require.ErrorIs(t, err, gone)
		require.Equal(t, 10, actors.n)
		_, err = Validate(ctx, g, actors)
		require.ErrorIs(t, err, gone)
		require.Equal(t, 10, actors.n)
	})
	t.Run("Late/EndsAtItsLimit", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		actors := &lookedUp{}
		_, err := Compile(ctx, g, actors)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, actors.n, nodes)
	})
}
