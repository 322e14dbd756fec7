package relay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/bbolt"
)

const (
	maxBatch = 100
	maxLimit = 500
	// pageBytes is where a page of messages ends early; the reader asks for more.
	pageBytes = 32 << 20
	// maxLocalID is below bbolt's limit for a key.
	maxLocalID = 1024
)

// message is a row: one sealed message of a session.
type message struct {
	ID        string  `json:"id"`
	LocalID   *string `json:"localId"` // the sender's name for it; nil if it gave none
	Content   string  `json:"c"`
	CreatedAt int64   `json:"createdAt"`
}

// sealed is a message's content on the wire.
type sealed struct {
	T string `json:"t"` // "encrypted"
	C string `json:"c"`
}

// messageView is a message on the wire.
type messageView struct {
	ID        string  `json:"id"`
	Seq       int64   `json:"seq"`
	LocalID   *string `json:"localId"`
	Content   *sealed `json:"content,omitempty"` // not in the answer to a POST
	CreatedAt int64   `json:"createdAt"`
	UpdatedAt int64   `json:"updatedAt"`
}

func (m *message) view(seq int64, withContent bool) messageView {
	v := messageView{ID: m.ID, Seq: seq, LocalID: m.LocalID, CreatedAt: m.CreatedAt, UpdatedAt: m.CreatedAt}
	if withContent {
		v.Content = &sealed{T: "encrypted", C: m.Content}
	}
	return v
}

// newMessage is the body of an update that tells of a message.
type newMessage struct {
	T       string      `json:"t"` // "new-message"
	SID     string      `json:"sid"`
	Message messageView `json:"message"`
}

// incoming is a message that wants to be stored.
type incoming struct {
	Content *string
	LocalID *string
}

func seqKey(seq int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(seq)) }

// postMessages stores a batch in one transaction. A local id that the session
// knows keeps its first message; the answer names old and new ones alike.
func (r *Relay) postMessages(account string, req *http.Request) (any, error) {
	var in struct{ Messages []incoming }
	if err := readBody(req, &in); err != nil {
		return nil, err
	}
	if err := checkBatch(in.Messages); err != nil {
		return nil, err
	}
	var stored []messageView
	err := r.db.update(func(tx *bbolt.Tx) (after func(), err error) {
		stored, after, err = r.storeMessages(tx, account, req.PathValue("id"), in.Messages, nil)
		return after, err
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"messages": stored}, nil
}

func checkBatch(batch []incoming) error {
	switch {
	case batch == nil:
		return badRequest("body/messages Invalid input: expected array, received undefined")
	case len(batch) < 1:
		return badRequest("body/messages Too small: expected array to have >=1 items")
	case len(batch) > maxBatch:
		return badRequest("body/messages Too big: expected array to have <=%d items", maxBatch)
	}
	for i, m := range batch {
		switch {
		case m.Content == nil:
			return badRequest("body/messages/%d/content Invalid input: expected string, received undefined", i)
		case m.LocalID == nil:
			return badRequest("body/messages/%d/localId Invalid input: expected string, received undefined", i)
		case *m.LocalID == "":
			return badRequest("body/messages/%d/localId Too small: expected string to have >=1 characters", i)
		case len(*m.LocalID) > maxLocalID:
			return badRequest("body/messages/%d/localId Too big: expected string to have <=%d characters", i, maxLocalID)
		}
	}
	return nil
}

// storeMessages adds what is new of a batch to a session and returns the rows
// of the whole batch in the order of their numbers, and what to tell whom
// (all followers but skip) once it is on disk.
func (r *Relay) storeMessages(tx *bbolt.Tx, account, id string, batch []incoming, skip *conn) ([]messageView, func(), error) {
	s, err := loadSession(tx, account, id)
	if err != nil {
		return nil, nil, err
	}
	if s == nil {
		return nil, nil, notFound()
	}
	messages, err1 := tx.Bucket(bucketMessages).CreateBucketIfNotExists([]byte(id))
	localIDs, err2 := tx.Bucket(bucketLocalIDs).CreateBucketIfNotExists([]byte(id))
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	messages.FillPercent = 0.9 // numbers only grow: fill the pages

	now := r.ms()
	var known, fresh []messageView
	for _, in := range batch {
		if in.LocalID != nil {
			if seq := localIDs.Get([]byte(*in.LocalID)); seq != nil {
				n := int64(binary.BigEndian.Uint64(seq))
				if n > s.Seq-int64(len(fresh)) {
					continue // a second time within this batch
				}
				m, err := loadMessage(messages, n)
				if err != nil {
					return nil, nil, err
				}
				known = insert(known, m.view(n, false))
				continue
			}
		}
		s.Seq++
		m := message{ID: newID(now), LocalID: in.LocalID, Content: *in.Content, CreatedAt: now}
		b, err := json.Marshal(m)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding a message: %w", err)
		}
		if err := messages.Put(seqKey(s.Seq), b); err != nil {
			return nil, nil, err
		}
		if in.LocalID != nil {
			if err := localIDs.Put([]byte(*in.LocalID), seqKey(s.Seq)); err != nil {
				return nil, nil, err
			}
		}
		fresh = append(fresh, m.view(s.Seq, true))
	}
	if len(fresh) == 0 {
		return known, nil, nil
	}
	seq, err := nextUpdates(tx, account, int64(len(fresh)))
	if err != nil {
		return nil, nil, err
	}
	if err := r.saveSession(tx, s); err != nil {
		return nil, nil, err
	}
	to := followers(id)
	if skip != nil {
		to = except(to, skip)
	}
	rows := known
	for _, v := range fresh {
		v.Content = nil
		rows = append(rows, v)
	}
	return rows, func() {
		for i, v := range fresh {
			r.hub.push(account, to, seq+int64(i), now, newMessage{"new-message", id, v})
		}
	}, nil
}

// insert adds v to a list sorted by number, unless it is there.
func insert(list []messageView, v messageView) []messageView {
	i := len(list)
	for i > 0 && list[i-1].Seq >= v.Seq {
		i--
	}
	if i < len(list) && list[i].Seq == v.Seq {
		return list
	}
	list = append(list, messageView{})
	copy(list[i+1:], list[i:])
	list[i] = v
	return list
}

func loadMessage(messages *bbolt.Bucket, seq int64) (m message, err error) {
	b := messages.Get(seqKey(seq))
	if b == nil {
		return m, fmt.Errorf("message %d is missing", seq)
	}
	return m, json.Unmarshal(b, &m)
}

type messagePage struct {
	Messages []messageView `json:"messages"`
	HasMore  bool          `json:"hasMore"`
}

// listMessages returns a page: forwards from after_seq, or backwards from
// before_seq or from the end.
func (r *Relay) listMessages(account string, req *http.Request) (any, error) {
	after, err1 := queryInt(req, "after_seq", 0, 1<<53, -1)
	before, err2 := queryInt(req, "before_seq", 1, 1<<53, -1)
	limit, err3 := queryInt(req, "limit", 1, maxLimit, 100)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	if after >= 0 && before >= 0 {
		return nil, refuse(http.StatusBadRequest, "Cannot specify both after_seq and before_seq")
	}
	return read(r, func(tx *bbolt.Tx) (any, error) {
		s, err := loadSession(tx, account, req.PathValue("id"))
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, notFound()
		}
		page := messagePage{Messages: []messageView{}}
		bucket := tx.Bucket(bucketMessages).Bucket([]byte(s.ID))
		if bucket == nil {
			return page, nil
		}
		seq, step := after+1, int64(1)
		if after < 0 {
			seq, step = s.Seq, -1
			if before >= 0 {
				seq = min(s.Seq, before-1)
			}
		}
		for bytes := 0; seq >= 1 && seq <= s.Seq; seq += step {
			if len(page.Messages) == int(limit) || bytes > r.maxPage {
				page.HasMore = true
				break
			}
			m, err := loadMessage(bucket, seq)
			if err != nil {
				return nil, err
			}
			bytes += len(m.Content)
			page.Messages = append(page.Messages, m.view(seq, true))
		}
		return page, nil
	})
}
