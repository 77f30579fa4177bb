//go:build unix

package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lock keeps every other process out of dir until unlock is called or this process ends, however it ends.
func lock(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(f) // only for the message
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory: %w", err)
		}
		by := ""
		if pid := strings.TrimSpace(string(holder)); pid != "" {
			by = " (pid " + pid + ")"
		}
		return nil, inUse(dir, by)
	}
	// The file stays when the lock goes: removing it would let two processes lock two files of one name.
	if err := f.Truncate(0); err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write lock file: %w", err), f.Close())
		}
	}
	return f.Close, nil
}
