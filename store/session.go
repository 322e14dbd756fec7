package store

import (
	"context"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// SessionInfo is what the bridge knows about a session and the uplink needs.
// Only [Scope.Commit] writes it.
type SessionInfo struct {
	// Tag finds the session on the server. A commit with another tag than the
	// stored one starts a new server session: its [Link] begins empty.
	Tag string `json:"tag"`
	// Generation counts the tags that were tried for this source session.
	Generation int `json:"generation,omitempty"`
	// Wrapped is the session key wrapped for the account, base64 as on the
	// wire; empty for legacy credentials.
	Wrapped string `json:"wrapped,omitempty"`
	// Metadata is the wanted metadata, sealed.
	Metadata []byte `json:"metadata,omitempty"`
	// MetadataHash names the content of Metadata: sealing twice gives two
	// ciphertexts, so the content is compared by this.
	MetadataHash string `json:"metadataHash,omitempty"`
	// Open says that the session waits for something that no record may ever
	// bring (the end of its turn): it is loaded at the next start.
	Open bool `json:"open,omitempty"`
	// LastActive is when the session last changed, in Unix milliseconds.
	LastActive int64 `json:"lastActive,omitempty"`
}

// Link is what the uplink knows about a session's counterpart on the server.
// Only [Scope.UpdateLink], [Scope.Ack] and [Scope.Replace] write it.
type Link struct {
	// ServerID is the server's id of the session; empty until it was created.
	ServerID string `json:"serverId,omitempty"`
	// Account is the server's id of the account that made the session: when
	// the server was reset, the same login is another account.
	Account string `json:"account,omitempty"`
	// MetadataVersion is the server's version of the metadata.
	MetadataVersion int `json:"metadataVersion,omitempty"`
	// MetadataAcked is the MetadataHash that the server has.
	MetadataAcked string `json:"metadataAcked,omitempty"`
	// Acked is the highest server seq that was acknowledged.
	Acked int64 `json:"acked,omitempty"`
	// Active says that the server may show the session as running.
	Active bool `json:"active,omitempty"`
	// Gone says that the user deleted the session; nothing is sent any more.
	Gone bool `json:"gone,omitempty"`
	// Parked counts messages that were replaced because the server would not
	// take them; ParkedWhy is the reason of the latest.
	Parked    int    `json:"parked,omitempty"`
	ParkedWhy string `json:"parkedWhy,omitempty"`
}

// Session is one session as stored, without the adapter's state.
type Session struct {
	Key  string
	Info SessionInfo
	Link Link
}

// viewSession runs fn on a session's bucket; ok is false when it is unknown.
func (c *Scope) viewSession(key string, fn func(*bolt.Bucket) error) (ok bool, err error) {
	err = c.s.view(func(tx *bolt.Tx) error {
		sessions := c.bucket(tx, bucketSessions)
		if sessions == nil {
			return nil
		}
		b := sessions.Bucket([]byte(key))
		if b == nil {
			return nil
		}
		ok = true
		return fn(b)
	})
	return ok && err == nil, err
}

func (c *Scope) bucket(tx *bolt.Tx, name []byte) *bolt.Bucket {
	root := tx.Bucket(bucketScopes).Bucket([]byte(c.name))
	if root == nil {
		return nil
	}
	return root.Bucket(name)
}

// Session returns a session and its adapter state; ok is false when it is
// unknown.
func (c *Scope) Session(key string) (state []byte, ses Session, ok bool, err error) {
	ok, err = c.viewSession(key, func(b *bolt.Bucket) error {
		state = append([]byte(nil), b.Get(keyState)...)
		ses, err = readSession(key, b)
		return err
	})
	return state, ses, ok, err
}

// Lookup returns a session without the adapter's state.
func (c *Scope) Lookup(key string) (ses Session, ok bool, err error) {
	ok, err = c.viewSession(key, func(b *bolt.Bucket) error {
		ses, err = readSession(key, b)
		return err
	})
	return ses, ok, err
}

// Sessions returns all sessions without their states, ordered by key.
func (c *Scope) Sessions() ([]Session, error) {
	var out []Session
	err := c.s.view(func(tx *bolt.Tx) error {
		sessions := c.bucket(tx, bucketSessions)
		if sessions == nil {
			return nil
		}
		return sessions.ForEachBucket(func(key []byte) error {
			ses, err := readSession(string(key), sessions.Bucket(key))
			out = append(out, ses)
			return err
		})
	})
	return out, err
}

func readSession(key string, b *bolt.Bucket) (Session, error) {
	ses := Session{Key: key}
	if v := b.Get(keyInfo); v != nil {
		if err := json.Unmarshal(v, &ses.Info); err != nil {
			return ses, fmt.Errorf("%w: session info: %w", ErrCorrupt, err)
		}
	}
	var err error
	ses.Link, err = getLink(b)
	return ses, err
}

func putInfo(b *bolt.Bucket, tag string, encoded []byte) error {
	var old SessionInfo
	if v := b.Get(keyInfo); v != nil {
		if err := json.Unmarshal(v, &old); err != nil {
			return fmt.Errorf("%w: session info: %w", ErrCorrupt, err)
		}
		if old.Tag != tag {
			if err := b.Delete(keyLink); err != nil {
				return err
			}
		}
	}
	return b.Put(keyInfo, encoded)
}

func getLink(b *bolt.Bucket) (Link, error) {
	var l Link
	if v := b.Get(keyLink); v != nil {
		if err := json.Unmarshal(v, &l); err != nil {
			return l, fmt.Errorf("%w: session link: %w", ErrCorrupt, err)
		}
	}
	return l, nil
}

// updateLink changes the link unless the session has moved to another tag.
func updateLink(b *bolt.Bucket, tag string, fn func(*Link)) (bool, error) {
	ses, err := readSession("", b)
	if err != nil || ses.Info.Tag != tag {
		return false, err
	}
	fn(&ses.Link)
	v, err := json.Marshal(ses.Link)
	if err != nil {
		return false, err
	}
	return true, b.Put(keyLink, v)
}

// UpdateLink changes a session's link durably. Nothing happens when the session
// has another tag by now: what fn knows is about the former server session. fn
// runs inside the transaction, perhaps twice, and must not call the store.
func (c *Scope) UpdateLink(ctx context.Context, key, tag string, fn func(*Link)) error {
	return c.change(ctx, key, 256, func(_, b *bolt.Bucket, _ *op) error {
		_, err := updateLink(b, tag, fn)
		return err
	})
}
