// Command epigraph is the whole suite in one binary: the four services, and the commands that use them.
package main

import (
	"context"
	"os"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
)

// version is set by the build.
var version = "dev"

func main() {
	os.Exit(cli.Main(context.Background(), version, os.Args[1:], cli.StdIO()))
}
