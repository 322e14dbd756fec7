package relay

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

const (
	listLimit    = 150 // sessions in the plain list
	recentWindow = 15 * time.Minute
	cursorPrefix = "cursor_v1_"
)

// session is a row. Times are milliseconds since 1970.
type session struct {
	ID                string  `json:"id"`
	Account           string  `json:"account"`
	Tag               string  `json:"tag"`
	Seq               int64   `json:"seq"` // number of the last message
	Metadata          string  `json:"metadata"`
	MetadataVersion   int64   `json:"metadataVersion"`
	AgentState        *string `json:"agentState"`
	AgentStateVersion int64   `json:"agentStateVersion"`
	DataEncryptionKey *string `json:"dataEncryptionKey"`
	Active            bool    `json:"active"`
	ActiveAt          int64   `json:"activeAt"`
	CreatedAt         int64   `json:"createdAt"`
	UpdatedAt         int64   `json:"updatedAt"`
}

// sessionView is a session on the wire.
type sessionView struct {
	ID                string  `json:"id"`
	Seq               int64   `json:"seq"`
	Metadata          string  `json:"metadata"`
	MetadataVersion   int64   `json:"metadataVersion"`
	AgentState        *string `json:"agentState"`
	AgentStateVersion int64   `json:"agentStateVersion"`
	DataEncryptionKey *string `json:"dataEncryptionKey"`
	Active            bool    `json:"active"`
	ActiveAt          int64   `json:"activeAt"`
	CreatedAt         int64   `json:"createdAt"`
	UpdatedAt         int64   `json:"updatedAt"`
}

func (s *session) view() sessionView {
	return sessionView{
		ID: s.ID, Seq: s.Seq, Metadata: s.Metadata, MetadataVersion: s.MetadataVersion,
		AgentState: s.AgentState, AgentStateVersion: s.AgentStateVersion, DataEncryptionKey: s.DataEncryptionKey,
		Active: s.Active, ActiveAt: s.ActiveAt, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

// listedSession is how v1 shows a session.
type listedSession struct {
	sessionView
	LastMessage any `json:"lastMessage"` // always null
}

func notFound() *answer { return refuse(http.StatusNotFound, "Session not found") }

// loadSession reads a session of the account; nil if there is none.
func loadSession(tx *bbolt.Tx, account, id string) (*session, error) {
	var s session
	found, err := load(tx, bucketSessions, id, &s)
	if err != nil || !found || s.Account != account {
		return nil, err
	}
	return &s, nil
}

// saveSession writes a session as changed now.
func (r *Relay) saveSession(tx *bbolt.Tx, s *session) error {
	s.UpdatedAt = r.ms()
	if err := saveActive(tx, 's', s.ID, s.Active); err != nil {
		return err
	}
	return save(tx, bucketSessions, s.ID, s)
}

// sessionsOf reads the sessions of an account that keep wants.
func sessionsOf(tx *bbolt.Tx, account string, keep func(*session) bool) (list []*session, err error) {
	err = tx.Bucket(bucketSessions).ForEach(func(_, v []byte) error {
		var s session
		if err := json.Unmarshal(v, &s); err != nil {
			return err
		}
		if s.Account == account && keep(&s) {
			list = append(list, &s)
		}
		return nil
	})
	return list, err
}

// listSessions shows the sessions that changed last.
func (r *Relay) listSessions(account string, _ *http.Request) (any, error) {
	list, err := read(r, func(tx *bbolt.Tx) ([]*session, error) {
		return sessionsOf(tx, account, func(*session) bool { return true })
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b *session) int { return cmp.Compare(b.UpdatedAt, a.UpdatedAt) })
	views := []listedSession{}
	for _, s := range list[:min(len(list), listLimit)] {
		views = append(views, listedSession{sessionView: s.view()})
	}
	return map[string]any{"sessions": views}, nil
}

// activeSessions shows the sessions that were alive within a quarter of an hour.
func (r *Relay) activeSessions(account string, req *http.Request) (any, error) {
	limit, err := queryInt(req, "limit", 1, 500, listLimit)
	if err != nil {
		return nil, err
	}
	since := r.ms() - recentWindow.Milliseconds()
	list, err := read(r, func(tx *bbolt.Tx) ([]*session, error) {
		return sessionsOf(tx, account, func(s *session) bool { return s.Active && s.ActiveAt > since })
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b *session) int { return cmp.Compare(b.ActiveAt, a.ActiveAt) })
	views := []sessionView{}
	for _, s := range list[:min(len(list), int(limit))] {
		views = append(views, s.view())
	}
	return map[string]any{"sessions": views}, nil
}

// pageSessions shows all sessions, newest first, page by page.
func (r *Relay) pageSessions(account string, req *http.Request) (any, error) {
	limit, err := queryInt(req, "limit", 1, 200, 50)
	if err != nil {
		return nil, err
	}
	since, err := queryInt(req, "changedSince", 1, 1<<53, 0)
	if err != nil {
		return nil, err
	}
	before, ok := "", true
	if cursor := req.URL.Query().Get("cursor"); cursor != "" {
		if before, ok = strings.CutPrefix(cursor, cursorPrefix); !ok {
			return nil, refuse(http.StatusBadRequest, "Invalid cursor format")
		}
	}
	list, err := read(r, func(tx *bbolt.Tx) ([]*session, error) {
		return sessionsOf(tx, account, func(s *session) bool {
			return s.UpdatedAt > since && (before == "" || s.ID < before)
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(b.ID, a.ID) })
	out := struct {
		Sessions   []sessionView `json:"sessions"`
		NextCursor *string       `json:"nextCursor"`
		HasNext    bool          `json:"hasNext"`
	}{Sessions: []sessionView{}, HasNext: len(list) > int(limit)}
	for _, s := range list[:min(len(list), int(limit))] {
		out.Sessions = append(out.Sessions, s.view())
	}
	if out.HasNext {
		next := cursorPrefix + out.Sessions[limit-1].ID
		out.NextCursor = &next
	}
	return out, nil
}

// createSession makes the session of a tag, or returns the one that is there:
// its stored metadata and key, whatever the request says, but active again.
func (r *Relay) createSession(account string, req *http.Request) (any, error) {
	var in struct {
		Tag               *string
		Metadata          *string
		AgentState        *string // accepted and ignored; update-state sets it
		DataEncryptionKey *string
	}
	if err := readBody(req, &in); err != nil {
		return nil, err
	}
	if in.Tag == nil || in.Metadata == nil {
		return nil, badRequest("body tag and metadata are required strings")
	}
	if len(*in.Tag) > bbolt.MaxKeySize/2 {
		return nil, badRequest("body/tag Too big: expected string to have <=%d characters", bbolt.MaxKeySize/2)
	}
	var s *session
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		tags, key := tx.Bucket(bucketTags), []byte(account+"\x00"+*in.Tag)
		var err error
		if s, err = loadSession(tx, account, string(tags.Get(key))); err != nil {
			return nil, err
		}
		if s != nil {
			s.Active, s.ActiveAt = true, r.ms()
			return func() { r.ended.lift(s.ID) }, r.saveSession(tx, s)
		}
		now := r.ms()
		s = &session{
			ID: newID(now), Account: account, Tag: *in.Tag, Metadata: *in.Metadata, DataEncryptionKey: in.DataEncryptionKey,
			Active: true, ActiveAt: now, CreatedAt: now,
		}
		if s.DataEncryptionKey != nil && *s.DataEncryptionKey == "" {
			s.DataEncryptionKey = nil
		}
		if err := tags.Put(key, []byte(s.ID)); err != nil {
			return nil, err
		}
		seq, err := nextUpdates(tx, account, 1)
		if err != nil {
			return nil, err
		}
		if err := r.saveSession(tx, s); err != nil {
			return nil, err
		}
		return func() {
			r.hub.push(account, users, seq, now, struct {
				T string `json:"t"`
				sessionView
			}{"new-session", s.view()})
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"session": listedSession{sessionView: s.view()}}, nil
}

// archiveSession makes a session inactive; it keeps taking messages.
func (r *Relay) archiveSession(account string, req *http.Request) (any, error) {
	id := req.PathValue("id")
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		s, err := loadSession(tx, account, id)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, notFound()
		}
		s.Active, s.ActiveAt = false, r.ms()
		return func() { r.announceEnd(s) }, r.saveSession(tx, s)
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true}, nil
}

// deleteSession forgets a session, its messages and its tag.
func (r *Relay) deleteSession(account string, req *http.Request) (any, error) {
	id := req.PathValue("id")
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		s, err := loadSession(tx, account, id)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, refuse(http.StatusNotFound, "Session not found or not owned by user")
		}
		if err := removeSession(tx, s); err != nil {
			return nil, err
		}
		seq, err := nextUpdates(tx, account, 1)
		if err != nil {
			return nil, err
		}
		return func() {
			r.ended.mute(id, r.now())
			r.hub.push(account, users, seq, r.ms(), map[string]string{"t": "delete-session", "sid": id})
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true}, nil
}

func removeSession(tx *bbolt.Tx, s *session) error {
	for _, bucket := range [][]byte{bucketMessages, bucketLocalIDs} {
		if tx.Bucket(bucket).Bucket([]byte(s.ID)) == nil {
			continue
		}
		if err := tx.Bucket(bucket).DeleteBucket([]byte(s.ID)); err != nil {
			return err
		}
	}
	if err := removePrefix(tx.Bucket(bucketUsage), s.Account+"\x00"+s.ID+"\x00"); err != nil {
		return err
	}
	if err := tx.Bucket(bucketTags).Delete([]byte(s.Account + "\x00" + s.Tag)); err != nil {
		return err
	}
	if err := saveActive(tx, 's', s.ID, false); err != nil {
		return err
	}
	return tx.Bucket(bucketSessions).Delete([]byte(s.ID))
}

func removePrefix(b *bbolt.Bucket, prefix string) error {
	c := b.Cursor()
	for k, _ := c.Seek([]byte(prefix)); k != nil && strings.HasPrefix(string(k), prefix); k, _ = c.Seek([]byte(prefix)) {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}
