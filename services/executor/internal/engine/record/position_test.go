package record_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
)

func TestUnheard(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, head string) record.Unheard {
		t.Helper()
		b := append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head...)
		_, h, _, err := record.DecodePosition(b, 0)
		require.NoError(t, err)
		return h.Unheard
	}
	t.Run("Several/AreAllRemembered", func(t *testing.T) {
		t.Parallel()
		var u record.Unheard
		for _, key := range []string{"a", "b", "a", "c"} {
			u = u.With(key)
		}
		require.Equal(t, record.Unheard{"a", "b", "c"}, u)
	})
	t.Run("With/LeavesTheOthersAlone", func(t *testing.T) {
		t.Parallel()
		u := make(record.Unheard, 1, 8)
		first, second := u.With("a"), u.With("b")
		require.Equal(t, "a", first[1])
		require.Equal(t, "b", second[1])
	})
	t.Run("Number/IsBoundedAndTheNewestStay", func(t *testing.T) {
		t.Parallel()
		var u record.Unheard
		for i := range 1000 {
			u = u.With(fmt.Sprint(i))
		}
		require.Len(t, u, 256)
		require.Equal(t, "999", u[255])
	})
	for name, u := range map[string]record.Unheard{"None": nil, "One": {"a"}, "Two": {"a", "b"}} {
		t.Run("Stored/"+name, func(t *testing.T) {
			t.Parallel()
			b, err := json.Marshal(record.PositionHead{Unheard: u})
			require.NoError(t, err)
			require.Equal(t, u, read(t, string(b)))
		})
	}
	t.Run("Stored/AsOneTextIsRead", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, record.Unheard{"a"}, read(t, `{"nodes": {}, "unheard": "a"}`))
	})
}
