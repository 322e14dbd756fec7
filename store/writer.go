package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// op is one all-or-nothing change, executed by the writer.
type op struct {
	// apply makes the change. It may run more than once (a group is repeated
	// without the member that failed), so it starts from scratch each time.
	apply func(*bolt.Tx) error
	// committed runs after the change is durable; may be nil.
	committed func()
	size      int   // about how many bytes it writes
	freed     int64 // about how many bytes it deleted; set by apply
	done      chan error
}

// submit hands o to the writer and waits until it is durable. When ctx ends
// first the outcome is unknown: the change may still be made.
func (s *Store) submit(ctx context.Context, o *op) error {
	if err := s.brokenErr(); err != nil {
		return err
	}
	o.done = make(chan error, 1)
	select {
	case s.ops <- o:
	case <-s.stop:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is the only goroutine that changes the file. It ends with Close.
func (s *Store) write() {
	defer close(s.done)
	var last time.Time // end of the previous group
	var freed int64    // bytes given free since the last look at compaction
	for {
		var group []*op
		select {
		case o := <-s.ops:
			group = s.collect(o, last.Add(s.window))
		case <-s.stop:
			return
		}
		s.commitGroup(group)
		last = time.Now()
		for _, o := range group {
			freed += o.freed
		}
		// A look costs little; one when the outbox has just become empty finds what a drained backlog left.
		if freed < s.limits.every && (freed == 0 || s.OutboxBytes() > 0) {
			continue
		}
		freed = 0
		if s.shouldCompact(s.limits.live) {
			if err := s.compact(); err != nil {
				s.log.Warn("the state file could not be compacted", "err", err)
			}
		}
	}
}

// collect gathers what else is waiting, until the time or a group is full.
func (s *Store) collect(first *op, until time.Time) []*op {
	group, size := []*op{first}, first.size
	timer := time.NewTimer(max(0, time.Until(until)))
	defer timer.Stop()
	for size < groupBytes {
		select {
		case o := <-s.ops:
			group, size = append(group, o), size+o.size
			continue
		default:
		}
		select {
		case o := <-s.ops:
			group, size = append(group, o), size+o.size
		case <-timer.C:
			return group
		case <-s.stop:
			return group
		}
	}
	return group
}

// commitGroup executes a group in one transaction. A member whose own change
// is impossible gets its error and the others are repeated without it.
func (s *Store) commitGroup(group []*op) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for len(group) > 0 {
		failed, err := s.tryGroup(group)
		if failed >= 0 {
			group[failed].done <- err
			group = append(append([]*op(nil), group[:failed]...), group[failed+1:]...)
			continue
		}
		s.noteWrite(err)
		for _, o := range group {
			if err == nil && o.committed != nil {
				o.committed()
			}
			o.done <- err
		}
		return
	}
}

// tryGroup returns the index of the member that cannot be applied, or -1 and
// the outcome of the transaction.
func (s *Store) tryGroup(group []*op) (int, error) {
	if err := s.brokenErr(); err != nil {
		return -1, err
	}
	if s.db == nil {
		return -1, ErrClosed
	}
	failed := -1
	err := guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			for i, o := range group {
				if err := o.apply(tx); err != nil {
					failed = i
					return err
				}
			}
			return nil
		})
	})
	switch {
	case err == nil:
		return -1, nil
	case isDamage(err):
		// bbolt may have died with its writer lock held: never enter it again.
		s.setBroken(err)
		return -1, err
	case failed >= 0:
		return failed, err
	default:
		return -1, fmt.Errorf("%w: %w", ErrWrite, err)
	}
}

// noteWrite keeps Health and logs the changes between working and failing, not
// each failure.
func (s *Store) noteWrite(err error) {
	s.stateMu.Lock()
	before := s.writeErr
	s.writeErr = err
	s.stateMu.Unlock()
	switch {
	case err != nil && before == nil && !errors.Is(err, ErrClosed):
		s.log.Error("the state file cannot be written; nothing is lost, trying again", "err", err)
	case err == nil && before != nil:
		s.log.Info("the state file can be written again")
	}
}
