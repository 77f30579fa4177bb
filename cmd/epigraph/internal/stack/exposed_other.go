//go:build !unix

package stack

import "io/fs"

// exposed knows nothing where files have no modes.
func exposed(fs.FileInfo) bool { return false }
