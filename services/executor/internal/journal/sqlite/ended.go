package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// An owner holds a lock on a file of its own beside the database for as long as its process lives. The
// operating system takes the lock back when the process ends, however it ends. A process that gets the lock
// knows that the owner is gone and does not wait for its lease: silence proves nothing, since an owner
// whose writes are held up is silent too. As with the locks of the database itself, all processes are on
// one machine.

// ownerFile is named after the incarnation, which no other owner of this database ever has.
func (s *Store) ownerFile(o journal.Owner) string {
	return fmt.Sprintf("%s-owner-%d", s.path, o.Incarnation)
}

// holdOwner locks the file of an owner that is being registered. It returns nil where files cannot be
// locked; the lease alone decides there.
func (s *Store) holdOwner(o journal.Owner) *os.File {
	f, err := os.OpenFile(s.ownerFile(o), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	if !lock(f) {
		_ = f.Close() // nothing was written
		return nil
	}
	return f
}

// keepOwner keeps the file of an owner that is registered now, in place of the file of its earlier session.
func (s *Store) keepOwner(o journal.Owner, f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropOwner(s.owners[o.ID])
	delete(s.owners, o.ID)
	if f != nil {
		s.owners[o.ID] = f
	}
}

// dropOwner removes the file of an owner that is not registered any more, while it is locked.
func dropOwner(f *os.File) {
	if f == nil {
		return
	}
	_ = os.Remove(f.Name()) // one that stays is found free and means nothing
	_ = f.Close()           // nothing was written
}

// hasEnded reports whether the process of an owner is gone, and returns its file, locked. An owner without a
// file may live: it was registered where files cannot be locked.
func (s *Store) hasEnded(o journal.Owner) (*os.File, bool) {
	f, err := os.OpenFile(s.ownerFile(o), os.O_RDWR, 0)
	if err != nil {
		return nil, false
	}
	if !lock(f) {
		_ = f.Close() // nothing was written
		return nil, false
	}
	return f, true
}

// removeEnded removes the executors whose processes are gone, but for self. It returns their files, locked.
func (t txn) removeEnded(ctx context.Context, s *Store, self journal.Owner) (files []*os.File, err error) {
	rows, err := t.tx.QueryContext(ctx, `SELECT id, incarnation FROM executors WHERE id <> ?`, self.ID)
	others, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (o journal.Owner, err error) {
		return o, rows.Scan(&o.ID, &o.Incarnation)
	})
	for _, o := range others {
		f, ended := s.hasEnded(o)
		if !ended {
			continue
		}
		files = append(files, f)
		if _, err := t.exec(ctx, `DELETE FROM executors WHERE id = ? AND incarnation = ?`, o.ID, o.Incarnation); err != nil {
			return files, err
		}
	}
	return files, err
}

// closeAll lets go of files and leaves them where they are.
func closeAll(files []*os.File) error {
	var faults []error
	for _, f := range files {
		faults = append(faults, f.Close())
	}
	return errors.Join(faults...)
}

// resolved is the path of the database without symbolic links, so that all processes name the files alike.
func resolved(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		path = p
	}
	return path
}
