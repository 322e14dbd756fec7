package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"

	bolt "go.etcd.io/bbolt"
)

// Message is one sealed message on its way to the server.
type Message struct {
	// LocalID is stable per envelope; the server drops one that it has.
	LocalID string
	// Turn and Kind (the event's type) are all that stands beside the sealed
	// body: they are needed when the message must be replaced. May be empty.
	Turn, Kind string
	// Sealed is the ciphertext.
	Sealed []byte
}

// Entry is a message in the outbox.
type Entry struct {
	// Seq orders the entries of a session; it only grows and is never reused.
	Seq uint64
	Message
}

// Queue counts the unacknowledged messages of a session.
type Queue struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // on disk
}

// Peek returns the oldest entries of a session: at most maxN, and no more than
// fit maxBytes of sealed content, but at least one when there is any.
func (c *Scope) Peek(key string, maxN, maxBytes int) ([]Entry, error) {
	var out []Entry
	_, err := c.viewSession(key, func(b *bolt.Bucket) error {
		ob := b.Bucket(bucketOut)
		if ob == nil {
			return nil
		}
		size := 0
		cur := ob.Cursor()
		for k, v := cur.First(); k != nil && len(out) < maxN; k, v = cur.Next() {
			m, err := decodeMessage(v)
			if err != nil {
				return err
			}
			if size += len(m.Sealed); size > maxBytes && len(out) > 0 {
				break
			}
			m.Sealed = append([]byte(nil), m.Sealed...) // out of the memory map
			out = append(out, Entry{binary.BigEndian.Uint64(k), m})
		}
		return nil
	})
	return out, err
}

// Ack deletes the entries up to and including seq upTo, which the server has
// acknowledged, and remembers the highest server seq. It changes nothing when
// the session has another tag by now.
func (c *Scope) Ack(ctx context.Context, key, tag string, upTo uint64, serverSeq int64) error {
	return c.change(ctx, key, 256, func(_, b *bolt.Bucket, o *op) error {
		ok, err := updateLink(b, tag, func(l *Link) { l.Acked = max(l.Acked, serverSeq) })
		if err != nil || !ok {
			return err
		}
		ob := b.Bucket(bucketOut)
		if ob == nil {
			return nil
		}
		q := getQueue(b)
		// Collected first: a bbolt cursor is not valid across deletions.
		var keys [][]byte
		cur := ob.Cursor()
		for k, v := cur.First(); k != nil && binary.BigEndian.Uint64(k) <= upTo; k, v = cur.Next() {
			keys = append(keys, append([]byte(nil), k...))
			q.Count--
			q.Bytes -= int64(len(v))
			o.freed += int64(len(v))
		}
		for _, k := range keys {
			if err := ob.Delete(k); err != nil {
				return err
			}
		}
		return putQueue(b, q)
	})
}

// Replace puts m in the place of entry seq, so that the order is kept, and
// counts it as parked for the reason why (empty: replaced without counting, as
// for a text that was cut). Nothing happens when the entry is no longer there
// or the session has another tag by now.
func (c *Scope) Replace(ctx context.Context, key, tag string, seq uint64, m Message, why string) error {
	if m.LocalID == "" {
		return fmt.Errorf("replacement of entry %d without a local id", seq)
	}
	return c.change(ctx, key, len(m.Sealed), func(_, b *bolt.Bucket, o *op) error {
		ob := b.Bucket(bucketOut)
		if ob == nil {
			return nil
		}
		old := ob.Get(seqKey(seq))
		if old == nil {
			return nil
		}
		was := int64(len(old))
		ok, err := updateLink(b, tag, func(l *Link) {
			if why != "" {
				l.Parked++
				l.ParkedWhy = why
			}
		})
		if err != nil || !ok {
			return err
		}
		v := encodeMessage(m)
		if err := ob.Put(seqKey(seq), v); err != nil {
			return err
		}
		q := getQueue(b)
		q.Bytes += int64(len(v)) - was
		o.freed += was
		return putQueue(b, q)
	})
}

// Pending returns the sessions that have unacknowledged messages.
func (c *Scope) Pending() map[string]Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.pending)
}

// QueuedBytes returns the size of the scope's unacknowledged messages. At its
// limit the bridge stops reading: the logs are the buffer then. What another
// account left behind does not count: it may never be sent.
func (c *Scope) QueuedBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Queued returns the counters of one session's outbox.
func (c *Scope) Queued(key string) Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[key]
}

func appendOut(b *bolt.Bucket, ms []Message) error {
	if len(ms) == 0 {
		return nil
	}
	ob, err := b.CreateBucketIfNotExists(bucketOut)
	if err != nil {
		return err
	}
	ob.FillPercent = 0.9 // keys only grow
	q := getQueue(b)
	for i := range ms {
		seq, err := ob.NextSequence()
		if err != nil {
			return err
		}
		v := encodeMessage(ms[i])
		if err := ob.Put(seqKey(seq), v); err != nil {
			return err
		}
		q.Count++
		q.Bytes += int64(len(v))
	}
	return putQueue(b, q)
}

// dropOut empties the outbox but keeps its sequence: an acknowledgement still
// under way must not hit entries that are appended later.
func dropOut(b *bolt.Bucket) (freed int64, err error) {
	ob := b.Bucket(bucketOut)
	if ob == nil {
		return 0, nil
	}
	seq := ob.Sequence()
	freed = getQueue(b).Bytes
	if err := b.DeleteBucket(bucketOut); err != nil {
		return 0, err
	}
	if ob, err = b.CreateBucket(bucketOut); err != nil {
		return 0, err
	}
	if err := ob.SetSequence(seq); err != nil {
		return 0, err
	}
	return freed, putQueue(b, Queue{})
}

func getQueue(b *bolt.Bucket) Queue {
	v := b.Get(keyQueue)
	if len(v) != 16 {
		return Queue{}
	}
	return Queue{int(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))}
}

func putQueue(b *bolt.Bucket, q Queue) error {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(q.Count))
	return b.Put(keyQueue, binary.BigEndian.AppendUint64(v, uint64(q.Bytes)))
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, 8), seq) }

// messageVersion is the first byte of an encoded message.
const messageVersion = 1

// encodeMessage: version, then local id, turn and kind each with their length,
// then the ciphertext as it is.
func encodeMessage(m Message) []byte {
	v := make([]byte, 0, 16+len(m.LocalID)+len(m.Turn)+len(m.Kind)+len(m.Sealed))
	v = append(v, messageVersion)
	for _, s := range []string{m.LocalID, m.Turn, m.Kind} {
		v = binary.AppendUvarint(v, uint64(len(s)))
		v = append(v, s...)
	}
	return append(v, m.Sealed...)
}

// decodeMessage leaves Sealed pointing into v.
func decodeMessage(v []byte) (Message, error) {
	var m Message
	if len(v) == 0 || v[0] != messageVersion {
		return m, fmt.Errorf("%w: outbox entry of unknown version", ErrCorrupt)
	}
	v = v[1:]
	for _, dst := range []*string{&m.LocalID, &m.Turn, &m.Kind} {
		n, used := binary.Uvarint(v)
		if used <= 0 || n > uint64(len(v)-used) {
			return m, fmt.Errorf("%w: outbox entry cut short", ErrCorrupt)
		}
		*dst = string(v[used : used+int(n)])
		v = v[used+int(n):]
	}
	m.Sealed = v
	return m, nil
}
