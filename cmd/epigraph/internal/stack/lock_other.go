//go:build !unix

package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lock keeps every other process out of dir until unlock is called. After a crash the file has to be removed
// by hand.
func lock(dir string) (unlock func() error, err error) {
	name := filepath.Join(dir, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, inUse(dir, " (or one that crashed and left the file lock there)")
	case err != nil:
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	return func() error { return errors.Join(f.Close(), os.Remove(name)) }, nil
}
