//go:build unix

package stack

import (
	"io/fs"
	"os"
	"syscall"
)

// exposed reports whether others than the owner of this process can read a file or folder. A file of another
// owner may be readable by its group: this process reads it by the group, too, as Kubernetes mounts its
// secrets.
func exposed(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(st.Uid) != os.Geteuid() {
		return mode&0o007 != 0
	}
	return mode&0o077 != 0
}
