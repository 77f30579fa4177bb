package executor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLease(t *testing.T) {
	for _, tc := range []struct {
		name, store string
		set, want   time.Duration
	}{
		{"Postgres/LetsOthersTakeOverSoon", "postgres", 0, 3 * time.Second},
		{"SQLite/HasNobodyElse", "sqlite", 0, 15 * time.Second},
		{"SQLite/KeepsWhatIsSet", "sqlite", 3 * time.Second, 3 * time.Second},
		{"Postgres/KeepsWhatIsSet", "postgres", time.Minute, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Store, cfg.Lease = tc.store, tc.set
			require.Equal(t, tc.want, cfg.lease())
			require.Equal(t, tc.want, cfg.engine().Lease, "who owns runs and who judges owners must go by one lease")
		})
	}
}
