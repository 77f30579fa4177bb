package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/buildinfo"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
)

// The version of a server in its logs and its telemetry is that of --version.
func TestServerVersion(t *testing.T) {
	for name, defaults := range map[string]func() stack.Config{"Dev": stack.DevConfig, "Serve": stack.DefaultConfig} {
		t.Run(name, func(t *testing.T) {
			cfg, err := settings{}.own(&env{build: buildinfo.Info{Version: "v9.9", Commit: "abc"}}, defaults)
			require.NoError(t, err)
			require.Equal(t, []string{"v9.9", "abc"}, []string{cfg.Version, cfg.Commit})
		})
	}
}
