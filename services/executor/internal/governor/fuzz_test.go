package governor_test

import (
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
)

// FuzzNoStretchHasMoreThanTheLimit lets executors ask at any times for calls of any cost, and give back any
// part of it. What was granted and not given back never exceeds the limit in any interval.
func FuzzNoStretchHasMoreThanTheLimit(f *testing.F) {
	f.Add([]byte{0, 10, 200, 0, 0, 10, 255, 0, 9, 1, 30, 3, 200, 90, 1, 0, 250, 255, 255, 1})
	f.Add([]byte{1, 1, 255, 0, 255, 1, 255, 0, 255, 1, 255, 9, 255, 1, 255, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const limit = 100
		l := minute(governor.Cost{0, limit})
		type grant struct{ at, tokens, slot int64 }
		var s governor.State
		var grants []grant
		now := start
		for ; len(steps) >= 4; steps = steps[4:] {
			now = now.Add(time.Duration(binary.LittleEndian.Uint16(steps)) * time.Millisecond)
			a := wants(l, "n", governor.Cost{1, max(int64(steps[2])*limit/255, 1)}, 1+int(steps[3]%8))
			if n := len(grants); n > 0 && steps[3]&8 != 0 {
				g := &grants[int(steps[2])%n]
				back := g.tokens * int64(steps[3]>>4) / 15
				a.Corrections = []governor.Correction{{At: g.slot, Delta: governor.Cost{0, -back}}}
				g.tokens -= back
			}
			text, err := json.Marshal(s)
			require.NoError(t, err)
			s = governor.State{}
			require.NoError(t, json.Unmarshal(text, &s))
			answer := s.Decide(now, a, true, 0, nil).Answer
			for i := range answer.Granted[0] {
				grants = append(grants, grant{now.UnixMicro(), a.Lines[0].Costs[i][1], answer.At})
			}
			var sum int64
			for _, g := range grants {
				if now.UnixMicro()-g.at < time.Minute.Microseconds() {
					sum += g.tokens
				}
			}
			require.LessOrEqual(t, sum, int64(limit))
			require.Positive(t, answer.Again)
		}
	})
}
