package store

import (
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
)

// Seen returns the remembered identity hashes of a session, in the order in
// which they were added.
func (c *Scope) Seen(key string) ([]uint64, error) {
	var out []uint64
	_, err := c.viewSession(key, func(b *bolt.Bucket) error {
		seen := b.Bucket(bucketSeen)
		if seen == nil {
			return nil
		}
		return seen.ForEach(func(_, v []byte) error {
			for ; len(v) >= 8; v = v[8:] {
				out = append(out, binary.BigEndian.Uint64(v))
			}
			return nil
		})
	})
	return out, err
}

// applySeen appends the hashes of one batch as one value: a third of the size
// of a key each, and no random page is touched.
func applySeen(b *bolt.Bucket, clear bool, hashes []uint64) error {
	if clear && b.Bucket(bucketSeen) != nil {
		if err := b.DeleteBucket(bucketSeen); err != nil {
			return err
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	seen, err := b.CreateBucketIfNotExists(bucketSeen)
	if err != nil {
		return err
	}
	seen.FillPercent = 0.9 // keys only grow
	seq, err := seen.NextSequence()
	if err != nil {
		return err
	}
	v := make([]byte, 0, 8*len(hashes))
	for _, h := range hashes {
		v = binary.BigEndian.AppendUint64(v, h)
	}
	return seen.Put(seqKey(seq), v)
}

// Cursor returns the encoded cursor of a path; ok is false when there is none.
func (c *Scope) Cursor(path string) (cur []byte, ok bool, err error) {
	err = c.s.view(func(tx *bolt.Tx) error {
		if b := c.bucket(tx, bucketCursors); b != nil {
			if v := b.Get([]byte(path)); v != nil {
				cur, ok = append([]byte{}, v...), true
			}
		}
		return nil
	})
	return cur, ok, err
}

// Cursors returns all cursors by path.
func (c *Scope) Cursors() (map[string][]byte, error) {
	out := make(map[string][]byte)
	err := c.s.view(func(tx *bolt.Tx) error {
		b := c.bucket(tx, bucketCursors)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			out[string(k)] = append([]byte{}, v...)
			return nil
		})
	})
	return out, err
}

func applyCursors(root *bolt.Bucket, cursors map[string][]byte) error {
	if len(cursors) == 0 {
		return nil
	}
	b, err := root.CreateBucketIfNotExists(bucketCursors)
	if err != nil {
		return err
	}
	for path, cur := range cursors {
		if cur == nil {
			err = b.Delete([]byte(path))
		} else {
			err = b.Put([]byte(path), cur)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
