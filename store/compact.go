package store

import (
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

// limits say when shrinking the file is worth its cost.
type limits struct {
	// min is the file size in bytes below which it is never done.
	min int64
	// live bounds the bytes copied while running, and with them how long the
	// writer is away. At the start nobody waits yet, so there is no bound.
	live int64
	// every is how many bytes must have been freed since the last look.
	every int64
}

var defaultLimits = limits{min: 8 << 20, live: 64 << 20, every: 4 << 20}

// compactTx bounds one transaction of the copy, and so its memory.
const compactTx = 1 << 20

// shouldCompact decides by the share of free pages whether a copy of at most
// liveMax bytes is worth its time.
func (s *Store) shouldCompact(liveMax int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil || s.brokenErr() != nil {
		return false
	}
	size := s.FileSize()
	st := s.db.Stats()
	free := int64(st.FreePageN+st.PendingPageN) * int64(s.db.Info().PageSize)
	if size < s.limits.min || free < size/2 {
		return false
	}
	return size-free <= liveMax
}

// compact copies the live pages into a new file and puts it in the place of
// the old one. Killed at any point, the file under the real name is a whole
// one, old or new with the same content. The store's lock is a file of its own
// and is held throughout. Only the writer (or Open) calls it, so nothing
// changes during the copy; readers wait only for the swap.
func (s *Store) compact() error {
	before := s.FileSize()
	tmp := s.path + tmpSuffix
	if err := s.copyTo(tmp); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.db.Close(); err != nil {
		_ = os.Remove(tmp)
		return s.reopen(fmt.Errorf("closing the old file: %w", err))
	}
	if err := s.replaceFile(tmp); err != nil {
		_ = os.Remove(tmp)
		return s.reopen(fmt.Errorf("replacing the old file: %w", err))
	}
	if err := s.reopen(nil); err != nil {
		return err
	}
	s.log.Info("state file compacted", "before", before, "after", s.FileSize())
	return nil
}

// reopen opens whatever is under the real name now and returns cause, or why
// that was impossible; the store is of no use then.
func (s *Store) reopen(cause error) error {
	db, err := s.openDB()
	if err != nil {
		s.db = nil
		s.setBroken(fmt.Errorf("reopening the state file: %w", err))
		return err
	}
	s.db = db
	return cause
}

func (s *Store) copyTo(tmp string) error {
	_ = os.Remove(tmp)
	o := boltOptions()
	o.NoSync = true // one fsync at the end is enough for a file nobody reads yet
	dst, err := bolt.Open(tmp, 0o600, o)
	if err != nil {
		return fmt.Errorf("creating the compacted file: %w", err)
	}
	s.mu.RLock()
	err = guard(func() error { return bolt.Compact(dst, s.db, compactTx) })
	s.mu.RUnlock()
	if err == nil && !s.hasty {
		err = dst.Sync()
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("copying into the compacted file: %w", err)
	}
	return nil
}
