// Command epigraph is the whole suite in one binary: the four services, and the commands that use them.
package main

import (
	"context"
	"os"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/buildinfo"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
)

// The linker sets these: scripts/stamp says how.
var version, commit, date string //nolint:gochecknoglobals // the linker sets nothing else

func main() {
	os.Exit(cli.Main(context.Background(), buildinfo.Of(version, commit, date), os.Args[1:], cli.StdIO()))
}
