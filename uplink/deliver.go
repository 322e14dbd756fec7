package uplink

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/happyd/happyd/store"
)

const (
	// A message is given up only when the server, asked in between, answered
	// other questions, this often in a row and for this long. A server that
	// fails at random never gets there.
	parkStrikes = 6
	parkAfter   = 2 * time.Minute
	// halveStrikes is how often a batch fails before it is halved: the first
	// failure is usually the server's bad moment.
	halveStrikes = 2
	// storeDelay is the wait after the store failed.
	storeDelay = 2 * time.Second
	// limitFor is how long a learned limit on the body's size is believed.
	limitFor = 10 * time.Minute
)

// session is what the uplink keeps in memory of a session. Fields below the
// line belong to the worker that has the session's key at the moment, those
// above are guarded by Uplink.mu.
type session struct {
	key      string
	tag      string
	serverID string
	gone     bool
	active   bool      // the server may show it as running
	revive   bool      // POST the tag again: heartbeats are ignored after an end
	dirty    bool      // the metadata may differ from the server's
	blocked  string    // tag that the server holds with another key
	want     *Presence // nil: nobody said yet
	told     *Presence // last sent on this connection
	toldAt   time.Time
	problem  string // why nothing moves, for status

	// ---
	count       int // messages in a batch; 0 = BatchCount
	strikes     int
	firstStrike time.Time
	attempt     int // local backoff
	unnoted     *ack
}

// ack is an acknowledgement that the store could not take yet.
type ack struct {
	tag  string
	upTo uint64
	seq  int64
}

// session returns the entry of key; u.mu is held (or nobody else knows u yet).
func (u *Uplink) session(key string) *session {
	s := u.sessions[key]
	if s == nil {
		s = &session{key: key}
		u.sessions[key] = s
	}
	return s
}

// follow takes over what the store says; u.mu is held.
func (s *session) follow(ses store.Session) {
	if s.tag != ses.Info.Tag {
		*s = session{key: s.key, want: s.want, dirty: true, tag: ses.Info.Tag}
	}
	// Not active: of that the memory knows more than a look at the disk that
	// may be older.
	s.serverID, s.gone = ses.Link.ServerID, ses.Link.Gone
}

func (u *Uplink) setProblem(s *session, why string) {
	u.mu.Lock()
	s.problem = why
	u.mu.Unlock()
}

// deliver does the next thing for a session: create it, or send one batch. It
// returns whether there is more to do, and after which delay.
func (u *Uplink) deliver(ctx context.Context, key string) (more bool, delay time.Duration) {
	ses, ok, err := u.o.Scope.Lookup(key)
	if err != nil {
		u.log.Error("reading a session", "session", key, "err", err)
		return true, storeDelay
	}
	if !ok || ses.Info.Tag == "" {
		return false, 0
	}
	queued := u.o.Scope.Queued(key).Count
	u.mu.Lock()
	s := u.session(key)
	s.follow(ses)
	blocked, revive := s.blocked == s.tag, s.revive
	u.mu.Unlock()
	switch {
	case blocked:
		return false, 0
	case ses.Link.Gone:
		if queued == 0 {
			return false, 0
		}
		return u.storeOutcome(key, u.o.Scope.Commit(u.background(), store.Commit{Session: key, DropOutbox: true}), false)
	case queued == 0 && (ses.Link.ServerID == "" || !revive):
		return false, 0
	case ses.Link.ServerID == "" || revive:
		return u.create(ctx, s, ses)
	}
	if a := s.unnoted; a != nil && a.tag == ses.Info.Tag {
		return u.note(s, *a) // a full disk is no reason to send all of it again
	}
	return u.send(ctx, s, ses)
}

// background is the context of store operations, which finish even while Run
// is ending.
func (u *Uplink) background() context.Context {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.base != nil {
		return u.base
	}
	return context.Background()
}

// storeOutcome turns the result of a store operation into what to do next.
func (u *Uplink) storeOutcome(key string, err error, more bool) (bool, time.Duration) {
	if err == nil {
		return more, 0
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrWrite) { // the store itself reports writes
		u.log.Error("noting what was delivered", "session", key, "err", err)
	}
	return true, storeDelay
}

// create creates the session on the server, or finds it by its tag.
func (u *Uplink) create(ctx context.Context, s *session, ses store.Session) (bool, time.Duration) {
	var remote remoteSession
	var account string
	err := u.request(ctx, func(ctx context.Context, token string) (err error) {
		account = accountOf(token)
		remote, err = u.api.createSession(ctx, token, ses.Info)
		return err
	})
	if err != nil {
		return u.failed(s, err)
	}
	s.attempt = 0
	key := ""
	if remote.Key != nil {
		key = *remote.Key
	}
	if key != ses.Info.Wrapped {
		// Someone made this tag with a key that we cannot know. What we sealed
		// would be unreadable there.
		u.log.Warn("the server holds another key for this session, a new one is made", "session", s.key)
		u.mu.Lock()
		s.blocked, s.problem = ses.Info.Tag, "the server holds another key under this tag"
		u.mu.Unlock()
		if u.o.OnNewGeneration != nil {
			u.o.OnNewGeneration(s.key)
		}
		return false, 0
	}
	acked := ""
	if remote.Metadata == base64.StdEncoding.EncodeToString(ses.Info.Metadata) {
		acked = ses.Info.MetadataHash
	}
	err = u.o.Scope.UpdateLink(u.background(), s.key, ses.Info.Tag, func(l *store.Link) {
		if l.ServerID != remote.ID {
			l.Acked = 0
		}
		l.ServerID, l.Account = remote.ID, account
		l.MetadataVersion, l.Active = remote.MetadataVersion, true
		if acked != "" {
			l.MetadataAcked = acked
		}
	})
	if err == nil {
		u.mu.Lock()
		s.serverID, s.active, s.revive, s.problem = remote.ID, true, false, ""
		u.mu.Unlock()
		u.sock.poke()
		if u.sock.connected() {
			u.meta.add(s.key)
		}
	}
	return u.storeOutcome(s.key, err, true)
}

// failed delays a session after an answer that concerns it alone.
func (u *Uplink) failed(s *session, err error) (bool, time.Duration) {
	if errors.Is(err, errRetry) || errors.Is(err, context.Canceled) {
		return true, 0 // the gate makes everyone wait
	}
	u.setProblem(s, err.Error())
	s.attempt++
	return true, backoff(s.attempt, u.gate.random)
}

// send posts the oldest batch.
func (u *Uplink) send(ctx context.Context, s *session, ses store.Session) (bool, time.Duration) {
	count := u.o.BatchCount
	if s.count > 0 {
		count = min(count, s.count)
	}
	bodyLimit := u.bodyLimit()
	batch, err := u.o.Scope.Peek(s.key, count, bodyLimit*3/4) // base64 makes 4 of 3
	if err != nil {
		u.log.Error("reading the outbox", "session", s.key, "err", err)
		return true, storeDelay
	}
	if len(batch) == 0 {
		return false, 0
	}
	body, err := encodeBatch(batch)
	if err != nil {
		u.log.Error("encoding a batch", "session", s.key, "err", err)
		return true, storeDelay
	}
	var seq int64
	err = u.request(ctx, func(ctx context.Context, token string) (err error) {
		seq, err = u.api.postMessages(ctx, token, ses.Link.ServerID, body, batch)
		return err
	})
	var se *statusError
	switch {
	case err == nil:
		return u.delivered(s, ses, batch, seq)
	case !errors.As(err, &se):
		return true, 0
	case se.code == http.StatusNotFound:
		return u.missing(ctx, s, ses)
	case se.code >= http.StatusInternalServerError:
		return u.struck(ctx, s, ses, batch, se)
	default:
		return u.refused(s, ses, batch, len(body), se)
	}
}

func (u *Uplink) delivered(s *session, ses store.Session, batch []store.Entry, seq int64) (bool, time.Duration) {
	s.strikes, s.attempt = 0, 0
	if s.count > 0 {
		if s.count *= 2; s.count >= u.o.BatchCount {
			s.count = 0
		}
	}
	u.setProblem(s, "")
	return u.note(s, ack{ses.Info.Tag, batch[len(batch)-1].Seq, seq})
}

// note takes acknowledged messages out of the outbox.
func (u *Uplink) note(s *session, a ack) (bool, time.Duration) {
	if err := u.o.Scope.Ack(u.background(), s.key, a.tag, a.upTo, a.seq); err != nil {
		s.unnoted = &a
		return u.storeOutcome(s.key, err, true)
	}
	s.unnoted = nil
	if u.o.OnAck != nil {
		u.o.OnAck(s.key, a.seq)
	}
	return u.o.Scope.Queued(s.key).Count > 0, 0
}

// struck counts a 5xx against the batch. Halving comes first; a single message
// is struck only when the server at the same time answers something else.
func (u *Uplink) struck(ctx context.Context, s *session, ses store.Session, batch []store.Entry, se *statusError) (bool, time.Duration) {
	single := len(batch) == 1
	if single && u.verify(ctx) != nil {
		s.strikes = 0 // it is the server's trouble
	} else {
		if s.strikes == 0 {
			s.firstStrike = time.Now()
		}
		s.strikes++
	}
	switch {
	case !single && s.strikes >= halveStrikes:
		s.count, s.strikes = len(batch)/2, 0
	case single && s.strikes >= parkStrikes && time.Since(s.firstStrike) >= parkAfter:
		s.strikes, s.attempt = 0, 0
		return u.replace(s, ses, batch[0], se)
	}
	return u.failed(s, se)
}

// refused deals with a 413 or 400: never again with the same body.
func (u *Uplink) refused(s *session, ses store.Session, batch []store.Entry, size int, se *statusError) (bool, time.Duration) {
	if len(batch) == 1 {
		return u.replace(s, ses, batch[0], se)
	}
	s.count = len(batch) / 2
	if se.code == http.StatusRequestEntityTooLarge {
		u.learnLimit(size / 2)
	}
	return true, 0
}

// bodyLimit is the size of a request's body to aim at.
func (u *Uplink) bodyLimit() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit == 0 || time.Since(u.limitedAt) > limitFor {
		u.limit = 0
		return u.o.BatchBytes
	}
	return u.limit
}

func (u *Uplink) learnLimit(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit == 0 || n < u.limit {
		u.limit = max(n, 4<<10)
	}
	u.limitedAt = time.Now()
}

// missing deals with a 404 for a session that the server gave us. The user has
// deleted it, unless the account is not the one that made it.
func (u *Uplink) missing(ctx context.Context, s *session, ses store.Session) (bool, time.Duration) {
	account := accountOf(u.currentToken())
	if ses.Link.Account != "" && account != "" && account != ses.Link.Account {
		u.log.Warn("the server has forgotten this account's sessions (it was reset?), making it anew", "session", s.key)
		err := u.o.Scope.UpdateLink(u.background(), s.key, ses.Info.Tag, func(l *store.Link) {
			*l = store.Link{Parked: l.Parked, ParkedWhy: l.ParkedWhy}
		})
		return u.storeOutcome(s.key, err, true)
	}
	if err := u.verify(ctx); err != nil {
		return u.failed(s, err)
	}
	err := u.o.Scope.UpdateLink(u.background(), s.key, ses.Info.Tag, func(l *store.Link) { l.Gone, l.Active = true, false })
	if err == nil {
		err = u.o.Scope.Commit(u.background(), store.Commit{Session: s.key, DropOutbox: true})
	}
	if err != nil {
		return u.storeOutcome(s.key, err, true)
	}
	u.mu.Lock()
	s.gone, s.active = true, false
	u.mu.Unlock()
	u.log.Info("the session was deleted on the server, nothing more of it is sent", "session", s.key)
	if u.o.OnGone != nil {
		u.o.OnGone(s.key)
	}
	return false, 0
}
