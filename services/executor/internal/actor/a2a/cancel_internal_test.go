package a2a

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestUnfinished(t *testing.T) {
	t.Run("CancelsTakeTurns", func(t *testing.T) {
		const parallel, runs = 4, 20
		var mu sync.Mutex
		now, most, all := 0, 0, 0
		came, free := make(chan struct{}, runs), make(chan struct{})
		release := sync.OnceFunc(func() { close(free) })
		s, ag := rpc(t, Agent{Parallel: parallel}, map[string]http.HandlerFunc{"CancelTask": func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			now, all = now+1, all+1
			most = max(most, now)
			mu.Unlock()
			came <- struct{}{}
			select {
			case <-free:
			case <-r.Context().Done():
			}
			mu.Lock()
			now--
			mu.Unlock()
			answer(w, taskOf("CANCELED", ""))
		}})
		t.Cleanup(release) // before the agent ends
		parts, err := actor.NewRegistry(s.Parts()...)
		require.NoError(t, err)
		p, err := workgraph.Compile(t.Context(), graph(workgraph.Unsafe), parts)
		require.NoError(t, err)
		for i := range runs {
			s.Unfinished(p, map[string]json.RawMessage{statePosition: fmt.Appendf(nil, `{"agent": "x", "task": "t%d", "namespace": "one"}`, i)})
		}
		for range parallel / 2 {
			<-came
		}
		_, ok := ag.cancels.Try("one")
		require.False(t, ok)
		leave, ok := ag.cancels.Try("other")
		require.True(t, ok)
		leave()
		release()
		require.NoError(t, s.Close())
		require.Equal(t, runs, all)
		require.Equal(t, parallel/2, most)
	})
}
