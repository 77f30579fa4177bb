// Command epigraph is the whole suite in one binary: the four services, and the commands that use them.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
)

// version is set by the build.
var version = ""

// ownVersion is what the binary calls itself, in --version and in its logs: what its build set, else the
// version of the module that it was built from.
func ownVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func main() {
	os.Exit(cli.Main(context.Background(), ownVersion(), os.Args[1:], cli.StdIO()))
}
