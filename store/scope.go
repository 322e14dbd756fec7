package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// maxKey is the longest session key, path or scope name.
const maxKey = 16 << 10

var (
	bucketSessions = []byte("sessions") // in a scope: session key -> bucket
	bucketCursors  = []byte("cursors")  // in a scope: path -> cursor
	bucketValues   = []byte("values")   // in a scope: name -> value
	bucketOut      = []byte("out")      // in a session: seq -> entry
	bucketSeen     = []byte("seen")     // in a session: seq -> 8-byte hashes
	keyState       = []byte("state")
	keyInfo        = []byte("info")
	keyLink        = []byte("link")
	keyQueue       = []byte("queue") // counters of bucketOut: count, bytes
)

// Commit is one batch of one session. Zero fields change nothing.
type Commit struct {
	// Session is the source session's key, as "claude:<id>".
	Session string
	// State is the sealed state of the adapter; nil = unchanged.
	State []byte
	// Info replaces the session's info; nil = unchanged.
	Info *SessionInfo
	// Seen are identity hashes of records to remember.
	Seen []uint64
	// ClearSeen forgets the hashes remembered so far, before Seen is added.
	ClearSeen bool
	// Cursors maps a path to its encoded cursor; a nil value deletes it.
	Cursors map[string][]byte
	// Messages are appended to the outbox in this order.
	Messages []Message
	// DropOutbox empties the outbox, before Messages are appended.
	DropOutbox bool
}

// Scope is the part of a store that belongs to one (server, account).
type Scope struct {
	s    *Store
	name string

	mu      sync.Mutex
	pending map[string]Queue // by session key; only sessions with entries
	bytes   int64            // of them all
}

func newScope(s *Store, name string) *Scope {
	return &Scope{s: s, name: name, pending: make(map[string]Queue)}
}

// load reads the outbox counters.
func (c *Scope) load(b *bolt.Bucket) error {
	sessions := b.Bucket(bucketSessions)
	if sessions == nil {
		return nil
	}
	return sessions.ForEachBucket(func(key []byte) error {
		if q := getQueue(sessions.Bucket(key)); q.Count > 0 {
			c.pending[string(key)] = q
			c.bytes += q.Bytes
		}
		return nil
	})
}

// Name returns the scope's name.
func (c *Scope) Name() string { return c.name }

// Commit makes the batch durable, all or nothing, and returns then. On
// [ErrWrite] nothing was changed and the same batch can be handed over again.
// When ctx ends first the outcome is unknown.
func (c *Scope) Commit(ctx context.Context, in Commit) error {
	if in.Session == "" && (in.State != nil || in.Info != nil || in.Seen != nil || in.ClearSeen || in.Messages != nil || in.DropOutbox) {
		return errors.New("commit without a session")
	}
	if len(in.Session) > maxKey {
		return fmt.Errorf("session key of %d bytes", len(in.Session))
	}
	size := len(in.State) + 8*len(in.Seen)
	for path, cur := range in.Cursors {
		if path == "" || len(path) > maxKey {
			return fmt.Errorf("cursor path of %d bytes", len(path))
		}
		size += len(path) + len(cur)
	}
	for i := range in.Messages {
		if in.Messages[i].LocalID == "" {
			return fmt.Errorf("message %d without a local id", i)
		}
		size += len(in.Messages[i].Sealed)
	}
	var info []byte
	if in.Info != nil {
		if in.Info.Tag == "" {
			return errors.New("session info without a tag")
		}
		var err error
		if info, err = json.Marshal(in.Info); err != nil {
			return fmt.Errorf("encoding session info: %w", err)
		}
		size += len(info)
	}
	return c.change(ctx, in.Session, size, func(root, b *bolt.Bucket, o *op) error {
		if err := applyCursors(root, in.Cursors); err != nil {
			return err
		}
		if b == nil {
			return nil
		}
		if info != nil {
			if err := putInfo(b, in.Info.Tag, info); err != nil {
				return err
			}
		}
		if in.State != nil {
			if err := b.Put(keyState, in.State); err != nil {
				return err
			}
		}
		if err := applySeen(b, in.ClearSeen, in.Seen); err != nil {
			return err
		}
		if in.DropOutbox {
			freed, err := dropOut(b)
			if err != nil {
				return err
			}
			o.freed += freed
		}
		return appendOut(b, in.Messages)
	})
}

// change runs fn on the scope's bucket and, when key is given, the session's,
// and keeps the counters in memory in step with those on disk.
func (c *Scope) change(ctx context.Context, key string, size int, fn func(root, session *bolt.Bucket, o *op) error) error {
	var q Queue
	o := &op{size: size}
	o.apply = func(tx *bolt.Tx) error {
		o.freed = 0
		root := tx.Bucket(bucketScopes).Bucket([]byte(c.name))
		if root == nil {
			return fmt.Errorf("%w: scope vanished", ErrCorrupt)
		}
		if key == "" {
			return fn(root, nil, o)
		}
		sessions, err := root.CreateBucketIfNotExists(bucketSessions)
		if err != nil {
			return err
		}
		b, err := sessions.CreateBucketIfNotExists([]byte(key))
		if err != nil {
			return err
		}
		if err := fn(root, b, o); err != nil {
			return err
		}
		q = getQueue(b)
		return nil
	}
	o.committed = func() {
		if key != "" {
			c.setPending(key, q)
		}
	}
	return c.s.submit(ctx, o)
}

func (c *Scope) setPending(key string, q Queue) {
	c.mu.Lock()
	delta := q.Bytes - c.pending[key].Bytes
	c.bytes += delta
	if q.Count == 0 {
		delete(c.pending, key)
	} else {
		c.pending[key] = q
	}
	c.mu.Unlock()
	c.s.stateMu.Lock()
	c.s.outboxBytes += delta
	c.s.stateMu.Unlock()
}
