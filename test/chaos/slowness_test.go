//go:build chaos

package chaos_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// TestNetwork cuts one executor off its database, lets bytes get stuck on the way, and slows them down.
func TestNetwork(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	network, address, _ := strings.Cut(socket(t, url), " ")
	p := newProxy(t, network, address)
	x := newTrial(t, clusterOptions{store: "postgres", url: url, replicas: 2})
	cut := x.replicas[0]
	cut.end()
	cut.settings = []string{"executor.postgres_url=" + p.postgres(url)}
	cut.launch(nil)
	x.goesOn()
	for _, fault := range []struct {
		name     string
		on, off  func()
		takeOver bool
	}{
		{"Cut", func() { p.sever(true) }, func() { p.sever(false) }, true},
		{"Stuck", func() { p.hold(true) }, func() { p.hold(false) }, true},
		{"Reset", func() { p.sever(true); p.sever(false) }, func() {}, false},
		{"Slow", func() { p.slow(40 * time.Millisecond) }, func() { p.slow(0) }, false},
	} {
		t.Run(fault.name, func(t *testing.T) {
			fault.on()
			if fault.takeOver {
				testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
					return len(x.rows(x.ctx, fmt.Sprintf(`SELECT id FROM executors WHERE id = '%s'`, cut.id))) == 0
				},
					"nobody takes over from one that is cut off")
			} else {
				still(2 * time.Second)
			}
			x.goesOn()
			fault.off()
			testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
				return len(x.rows(x.ctx, fmt.Sprintf(`SELECT id FROM executors WHERE id = '%s'`, cut.id))) == 1
			},
				"it does not come back")
			x.goesOn()
		})
	}
	x.awaitEnds()
}

// TestClock moves the database's clock, as executors see it: by the age of the rows that it writes.
func TestClock(t *testing.T) {
	t.Parallel()
	x := newTrial(t, clusterOptions{store: "postgres", replicas: 2})
	set := func(sql string) {
		conn, err := pgx.Connect(x.ctx, x.url)
		require.NoError(t, err)
		defer conn.Close(x.ctx)
		_, err = conn.Exec(x.ctx, sql)
		require.NoError(t, err)
	}
	t.Run("Forward", func(t *testing.T) {
		for range 3 {
			x.goesOn()
			set(`UPDATE executor.executors SET heartbeat = heartbeat - interval '1 hour'`)
		}
		x.goesOn()
	})
	t.Run("Backward", func(t *testing.T) {
		dead := x.replicas[0]
		dead.kill()
		set(fmt.Sprintf(`UPDATE executor.executors SET heartbeat = heartbeat + interval '1 hour' WHERE id = '%s'`, dead.id))
		testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
			return len(x.rows(x.ctx, fmt.Sprintf(`SELECT id FROM executors WHERE id = '%s'`, dead.id))) == 0
		},
			"a heartbeat of the future keeps a dead executor alive")
		dead.launch(nil)
		x.goesOn()
	})
	x.awaitEnds()
}

// socket is where the server of a URL listens.
func socket(t *testing.T, url string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	network, address := "tcp", net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port))
	if strings.HasPrefix(cfg.Host, "/") {
		network, address = "unix", filepath.Join(cfg.Host, fmt.Sprintf(".s.PGSQL.%d", cfg.Port))
	}
	return network + " " + address
}

// TestSlowDisk makes every flush of the database's log take a tenth of a second.
func TestSlowDisk(t *testing.T) {
	server := ownServer(t, "", map[string]string{"commit_delay": "100000", "commit_siblings": "0"})
	// The disk is to be slow, not the machine: with the default lease a crowded one proves nothing.
	x := newTrial(t, clusterOptions{store: "postgres", server: server, replicas: 2, settings: []string{"executor.lease=15s"}})
	sessions := func() []string { return x.rows(x.ctx, `SELECT id || ' ' || incarnation FROM executors ORDER BY id`) }
	before := sessions()
	x.goesOn()
	still(4 * time.Second)
	require.Equal(t, before, sessions(), "a slow disk is no reason to lose an executor")
	x.awaitEnds()
}
