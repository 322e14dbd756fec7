package relay

import (
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// inactiveAfter is how long a session or machine stays active unheard.
	inactiveAfter = 10 * time.Minute
	// heartbeatWindow is how old a heartbeat may be.
	heartbeatWindow = 10 * time.Minute
	// muteFor is how long heartbeats of a session are ignored once it ended, so
	// that one that was on its way does not revive it.
	muteFor = time.Minute
	// persistAfter spares the disk: presence is written only when it moved by
	// more than this.
	persistAfter = 30 * time.Second
)

// activity is the ephemeral event about a session's presence.
type activity struct {
	Type     string `json:"type"` // "activity"
	ID       string `json:"id"`
	Active   bool   `json:"active"`
	ActiveAt int64  `json:"activeAt"`
	Thinking bool   `json:"thinking"`
}

// machineActivity is the ephemeral event about a machine's presence.
type machineActivity struct {
	Type     string `json:"type"` // "machine-activity"
	ID       string `json:"id"`
	Active   bool   `json:"active"`
	ActiveAt int64  `json:"activeAt"`
}

// mutes are the sessions whose heartbeats are ignored for now.
type mutes struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func newMutes() *mutes { return &mutes{until: map[string]time.Time{}} }

func (m *mutes) mute(id string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until[id] = now.Add(muteFor)
}

func (m *mutes) lift(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.until, id)
}

func (m *mutes) muted(id string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.until[id]
	return ok && now.Before(until)
}

// tidy forgets what is over.
func (m *mutes) tidy(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, until := range m.until {
		if !now.Before(until) {
			delete(m.until, id)
		}
	}
}

// heartbeat brings a client's time into range: not in the future, and not
// older than the window.
func (r *Relay) heartbeat(t float64) (int64, bool) {
	now := r.ms()
	if t > float64(now) {
		return now, true
	}
	return int64(t), t >= float64(now-heartbeatWindow.Milliseconds())
}

// sessionAlive notes a session's heartbeat.
func (r *Relay) sessionAlive(account, id string, t float64, thinking bool) error {
	at, ok := r.heartbeat(t)
	if !ok || r.ended.muted(id, r.now()) {
		return nil
	}
	s, err := read(r, func(tx *bbolt.Tx) (*session, error) { return loadSession(tx, account, id) })
	if err != nil || s == nil {
		return err
	}
	r.hub.ephemeral(account, users, activity{"activity", id, true, at, thinking})
	if s.Active && at-s.ActiveAt <= persistAfter.Milliseconds() {
		return nil
	}
	return r.db.update(func(tx *bbolt.Tx) (func(), error) {
		s, err := loadSession(tx, account, id)
		if err != nil || s == nil || r.ended.muted(id, r.now()) {
			return nil, err // it ended in the meantime
		}
		s.Active, s.ActiveAt = true, at
		return nil, r.saveSession(tx, s)
	})
}

// sessionEnd makes a session inactive; it reports false for one that is not
// there, or a time out of range.
func (r *Relay) sessionEnd(account, id string, t float64) (bool, error) {
	at, ok := r.heartbeat(t)
	if !ok {
		return false, nil
	}
	found := false
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		s, err := loadSession(tx, account, id)
		if err != nil || s == nil {
			return nil, err
		}
		found = true
		s.Active, s.ActiveAt = false, at
		return func() { r.announceEnd(s) }, r.saveSession(tx, s)
	})
	return found, err
}

// announceEnd tells that a session is inactive, and holds it to that.
func (r *Relay) announceEnd(s *session) {
	r.ended.mute(s.ID, r.now())
	r.hub.ephemeral(s.Account, users, activity{"activity", s.ID, false, s.ActiveAt, false})
}

// machineAlive notes a machine's heartbeat.
func (r *Relay) machineAlive(account, id string, t float64) error {
	at, ok := r.heartbeat(t)
	if !ok {
		return nil
	}
	m, err := read(r, func(tx *bbolt.Tx) (*machine, error) { return loadMachine(tx, account, id) })
	if err != nil || m == nil {
		return err
	}
	r.hub.ephemeral(account, users, machineActivity{"machine-activity", id, true, at})
	if m.Active && at-m.ActiveAt <= persistAfter.Milliseconds() {
		return nil
	}
	return r.db.update(func(tx *bbolt.Tx) (func(), error) {
		m, err := loadMachine(tx, account, id)
		if err != nil || m == nil {
			return nil, err
		}
		m.Active, m.ActiveAt = true, at
		return nil, r.saveMachine(tx, m)
	})
}

func (r *Relay) sweepLoop() {
	defer close(r.sweeper)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := r.sweep(); err != nil {
				r.log.Error("relay: looking for inactive sessions", "err", err)
			}
		case <-r.ctx.Done():
			return
		}
	}
}

// sweep makes inactive what was not heard for long. Most sweeps find nothing
// and do not write.
func (r *Relay) sweep() error {
	r.ended.tidy(r.now())
	limit := r.ms() - inactiveAfter.Milliseconds()
	stale, err := read(r, func(tx *bbolt.Tx) (keys []string, err error) {
		err = tx.Bucket(bucketActive).ForEach(func(k, _ []byte) error {
			old, err := lastHeard(tx, string(k))
			if err == nil && old <= limit {
				keys = append(keys, string(k))
			}
			return err
		})
		return keys, err
	})
	if err != nil || len(stale) == 0 {
		return err
	}
	return r.db.update(func(tx *bbolt.Tx) (func(), error) {
		var events []func()
		for _, key := range stale {
			event, err := r.retire(tx, key, limit)
			if err != nil {
				return nil, err
			}
			if event != nil {
				events = append(events, event)
			}
		}
		return func() {
			for _, event := range events {
				event()
			}
		}, nil
	})
}

// lastHeard is the activeAt of a row in the list of active ones; 0 if it is
// gone.
func lastHeard(tx *bbolt.Tx, key string) (int64, error) {
	var row struct {
		ActiveAt int64 `json:"activeAt"`
	}
	bucket := bucketSessions
	if key[0] == 'm' {
		bucket = bucketMachines
	}
	_, err := load(tx, bucket, key[1:], &row)
	return row.ActiveAt, err
}

// retire makes one row inactive unless it was heard after limit.
func (r *Relay) retire(tx *bbolt.Tx, key string, limit int64) (event func(), err error) {
	id := key[1:]
	if key[0] == 'm' {
		var m machine
		found, err := load(tx, bucketMachines, id, &m)
		if err != nil || !found || m.ActiveAt > limit {
			return nil, err
		}
		m.Active = false
		return func() {
			r.hub.ephemeral(m.Account, users, machineActivity{"machine-activity", id, false, m.ActiveAt})
		}, r.saveMachine(tx, &m)
	}
	var s session
	found, err := load(tx, bucketSessions, id, &s)
	if err != nil || !found || s.ActiveAt > limit {
		return nil, err
	}
	s.Active = false
	return func() {
		r.hub.ephemeral(s.Account, users, activity{"activity", id, false, s.ActiveAt, false})
	}, r.saveSession(tx, &s)
}
