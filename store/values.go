package store

import (
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Value returns a small fact about the scope as a whole, such as the machine's
// id; ok is false when it was never set.
func (c *Scope) Value(name string) (v []byte, ok bool, err error) {
	err = c.s.view(func(tx *bolt.Tx) error {
		if b := c.bucket(tx, bucketValues); b != nil {
			if stored := b.Get([]byte(name)); stored != nil {
				v, ok = append([]byte{}, stored...), true
			}
		}
		return nil
	})
	return v, ok, err
}

// SetValue sets such a fact durably.
func (c *Scope) SetValue(ctx context.Context, name string, v []byte) error {
	if name == "" || len(name) > maxKey {
		return fmt.Errorf("value name of %d bytes", len(name))
	}
	return c.change(ctx, "", len(v), func(root, _ *bolt.Bucket, _ *op) error {
		b, err := root.CreateBucketIfNotExists(bucketValues)
		if err != nil {
			return err
		}
		return b.Put([]byte(name), v)
	})
}
