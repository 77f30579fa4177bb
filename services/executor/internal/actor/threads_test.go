package actor_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

func TestNamesThread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named map[string]json.RawMessage
		args  []json.RawMessage
		want  bool
	}{
		"Named":      {named: map[string]json.RawMessage{"thread_id": json.RawMessage(`"thr_1"`)}, want: true},
		"Mapping":    {args: []json.RawMessage{json.RawMessage(`{"user_input": "hi", "thread_id": "thr_1"}`)}, want: true},
		"Null":       {named: map[string]json.RawMessage{"thread_id": json.RawMessage(`null`)}},
		"OtherNames": {named: map[string]json.RawMessage{"goal": json.RawMessage(`"x"`)}, args: []json.RawMessage{json.RawMessage(`"thread_id"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, actor.NamesThread(c.named, c.args))
		})
	}
}
