//go:build linux || darwin

package conns

import "syscall"

// openFiles is how many files this process may have open. Go raises that at its start to what it may be.
func openFiles() uint64 {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fewFiles
	}
	return files.Cur
}
