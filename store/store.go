// Package store is the daemon's memory on disk: one bbolt file that holds, per
// (server, account) scope, the cursors of the log files, the adapters' states,
// the identities of the records already seen and the outbox of sealed messages.
//
// What flows in: [Commit]s of the bridge (one batch of one session: everything
// it learned and everything it wants sent), acknowledgements and link facts of
// the uplink. What flows out: the same facts after a restart, and the oldest
// unacknowledged messages of a session. A commit is durable as a whole or not
// at all, so a record is either before its cursor and its messages are in the
// outbox, or it will be read again.
//
// The rules of the file:
//   - One process at a time. An OS lock on a file beside it, held for life,
//     decides; the pid written there is information for the human only.
//   - One goroutine writes. It groups the operations of all sessions: one
//     transaction and one fsync for some 20 ms or 1 MiB of them.
//   - A failed write changes nothing, is reported as [ErrWrite], and may be
//     tried again: when the disk has room again, the store works again.
//   - Message bodies are never held in memory: reads copy one batch out of the
//     memory map, and only counters live on the heap.
//   - The file shrinks again when a drained backlog left it mostly empty.
//
// It never sees plaintext (states, metadata and messages arrive sealed), never
// opens a network connection, and never decides what an outbox entry means.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Errors a caller decides by. All are wrapped with the path and the cause.
var (
	// ErrLocked says that another process holds the store.
	ErrLocked = errors.New("state is in use by another happyd")
	// ErrNewer says that the file was written by a newer version.
	ErrNewer = errors.New("state was written by a newer happyd")
	// ErrCorrupt says that the file is torn, damaged or not a happyd store.
	ErrCorrupt = errors.New("state file is damaged or not happyd's")
	// ErrWrite says that a write failed (disk full, read-only, I/O error).
	// Nothing was changed; the same operation may be tried again.
	ErrWrite = errors.New("state cannot be written")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
)

const (
	// groupWindow is the shortest time between two fsyncs while operations
	// keep coming; an operation after a quiet time is written at once.
	groupWindow = 20 * time.Millisecond
	// groupBytes ends the collecting of a group early, so that a backfill
	// neither waits for the window nor builds huge transactions.
	groupBytes = 1 << 20
)

// Options are the knobs of a store; the zero value is right.
type Options struct {
	// Log receives what an operator should know (compaction, failing and
	// recovering writes). Nil discards.
	Log *slog.Logger

	limits limits // of compaction; zero means defaultLimits
	hasty  bool   // for tests of content: no fsync, no waiting for company
}

// Store is one open state file. Its methods are safe for concurrent use.
type Store struct {
	path   string
	log    *slog.Logger
	lock   *fileLock
	limits limits
	window time.Duration // groupWindow
	hasty  bool

	// mu guards db against compaction, which replaces it: every transaction
	// runs under RLock, the swap under Lock.
	mu sync.RWMutex
	db *bolt.DB

	ops  chan *op
	stop chan struct{} // closed by Close
	done chan struct{} // closed by the writer at its end

	closeOnce sync.Once
	closeErr  error

	stateMu     sync.Mutex
	scopes      map[string]*Scope // by name
	writeErr    error             // of the last group, nil when it succeeded
	broken      error             // damage noticed while running: final
	outboxBytes int64             // of all scopes
}

// Open opens or creates the store at path. The directory is created (0700) when
// it is missing. The error is [ErrLocked], [ErrNewer], [ErrCorrupt] or the
// system's own; its text says what to do.
func Open(path string, o Options) (*Store, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w", err)
	}
	lock, err := acquire(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{
		path:   path,
		log:    log,
		lock:   lock,
		limits: o.limits,
		window: groupWindow,
		hasty:  o.hasty,
		ops:    make(chan *op),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		scopes: make(map[string]*Scope),
	}
	if s.hasty {
		s.window = 0
	}
	if s.limits == (limits{}) {
		s.limits = defaultLimits
	}
	if err := s.openFile(); err != nil {
		lock.release()
		return nil, err
	}
	go s.write()
	return s, nil
}

// openFile prepares the file and loads what is kept in memory.
func (s *Store) openFile() error {
	// A leftover of a compaction or creation that was killed: the rename never
	// happened, so it holds nothing that the file itself does not.
	if err := os.Remove(s.path + tmpSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a leftover temporary file: %w", err)
	}
	if err := s.createIfMissing(); err != nil {
		return err
	}
	db, err := s.openDB()
	if err != nil {
		return err
	}
	s.db = db
	if err := s.load(); err != nil {
		_ = db.Close()
		return err
	}
	if s.shouldCompact(math.MaxInt64) {
		if err := s.compact(); err != nil {
			s.log.Warn("the state file could not be compacted", "err", err)
		}
	}
	if s.db == nil { // the swap went through, the reopening did not
		return fmt.Errorf("%w: reopening %s after compaction", ErrCorrupt, s.path)
	}
	return nil
}

// load reads the counters of every scope.
func (s *Store) load() error {
	return s.view(func(tx *bolt.Tx) error {
		root := tx.Bucket(bucketScopes)
		if root == nil {
			return fmt.Errorf("%w: %s has no scopes", ErrCorrupt, s.path)
		}
		return root.ForEachBucket(func(name []byte) error {
			sc := newScope(s, string(name))
			if err := sc.load(root.Bucket(name)); err != nil {
				return err
			}
			s.scopes[sc.name] = sc
			for _, q := range sc.pending {
				s.outboxBytes += q.Bytes
			}
			return nil
		})
	})
}

// Close writes what was handed over, closes the file and lets go of the lock.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.stop)
		<-s.done
		s.mu.Lock()
		defer s.mu.Unlock()
		// A store that noticed damage may hold a lock of its own for ever
		// inside bbolt; the process is about to end and the OS cleans up.
		if s.db != nil && s.brokenErr() == nil {
			s.closeErr = s.db.Close()
		}
		s.db = nil
		s.lock.release()
	})
	return s.closeErr
}

// Path returns the file's path.
func (s *Store) Path() string { return s.path }

// Health returns why the latest write failed, or nil when it succeeded.
func (s *Store) Health() error {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	return s.writeErr
}

// OutboxBytes returns the size of all unacknowledged messages of all scopes.
func (s *Store) OutboxBytes() int64 {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.outboxBytes
}

// FileSize returns the size of the file on disk in bytes.
func (s *Store) FileSize() int64 {
	fi, err := os.Stat(s.path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// Scope returns the part of the store that belongs to one (server, account).
// The name should be derived from both; it is stored in clear. Nothing of one
// scope is ever visible in another.
func (s *Store) Scope(name string) (*Scope, error) {
	if name == "" || len(name) > maxKey {
		return nil, fmt.Errorf("scope name of %d bytes", len(name))
	}
	s.stateMu.Lock()
	sc, ok := s.scopes[name]
	s.stateMu.Unlock()
	if ok {
		return sc, nil
	}
	err := s.submit(context.Background(), &op{apply: func(tx *bolt.Tx) error {
		_, err := tx.Bucket(bucketScopes).CreateBucketIfNotExists([]byte(name))
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("creating scope: %w", err)
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if sc, ok = s.scopes[name]; !ok {
		sc = newScope(s, name)
		s.scopes[name] = sc
	}
	return sc, nil
}

func (s *Store) brokenErr() error {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.broken
}

func (s *Store) setBroken(err error) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.broken == nil {
		s.broken = err
		s.log.Error("the state file is damaged", "err", err)
	}
}

// view runs fn in a read transaction. fn must copy what it keeps and must not
// call the store again.
func (s *Store) view(fn func(*bolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.brokenErr(); err != nil {
		return err
	}
	if s.db == nil {
		return ErrClosed
	}
	err := guard(func() error { return s.db.View(fn) })
	if isDamage(err) {
		s.setBroken(err)
	}
	return err
}
