// Package buildinfo identifies the build of a binary: by the linker's flags, else by the record of the Go
// tool. It must not know its readers.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Unversioned is the version of a build that says none.
const Unversioned = "dev"

// Info is what a binary says of itself. Version, Go and Platform are never empty.
type Info struct {
	// Version is the version of the release, like v0.1.0, or git's description of the commit.
	Version string `json:"version"`
	// Commit is the whole hash; empty if it is not known.
	Commit string `json:"commit,omitempty"`
	// Date is the commit's, in UTC, so that equal sources give equal binaries; empty if it is not known.
	Date string `json:"date,omitempty"`
	// Go is the version of Go that built the binary.
	Go string `json:"go"`
	// Platform is GOOS/GOARCH.
	Platform string `json:"platform"`
}

// Of completes the linker's values with the record of the Go tool in the running binary.
func Of(version, commit, date string) Info {
	recorded, _ := debug.ReadBuildInfo()
	return complete(Info{Version: version, Commit: commit, Date: date}, recorded)
}

// complete fills the empty fields. recorded may be nil.
func complete(i Info, recorded *debug.BuildInfo) Info {
	i.Go, i.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	if recorded != nil {
		settings := map[string]string{}
		for _, s := range recorded.Settings {
			settings[s.Key] = s.Value
		}
		if i.Version == "" && recorded.Main.Version != "(devel)" {
			i.Version = recorded.Main.Version
		}
		// A commit from the linker has only the date that came with it.
		if i.Commit == "" {
			i.Commit, i.Date = settings["vcs.revision"], settings["vcs.time"]
		}
	}
	if at, err := time.Parse(time.RFC3339, i.Date); err == nil {
		i.Date = at.UTC().Format(time.RFC3339)
	}
	if i.Version == "" {
		i.Version = Unversioned
	}
	return i
}

// String is the output of `epigraph version`, without a line end. Unknown values have no line.
func (i Info) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "epigraph %s", i.Version)
	for _, line := range [][2]string{{"commit", i.Commit}, {"date", i.Date}, {"go", strings.TrimPrefix(i.Go, "go")}, {"platform", i.Platform}} {
		if line[1] != "" {
			fmt.Fprintf(&b, "\n%-9s%s", line[0], line[1])
		}
	}
	return b.String()
}
