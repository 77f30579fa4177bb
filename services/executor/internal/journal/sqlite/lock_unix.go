//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"os"
	"syscall"
)

// lock locks a file until it is closed or the process ends. It reports false if somebody else has it locked.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
