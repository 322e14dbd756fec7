package uplink

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/happyd/happyd/socketio"
	"github.com/happyd/happyd/store"
)

const (
	aliveEvery = 20 * time.Second
	// silentGrace is how long after the start a session that nobody spoke of
	// keeps the state that the server shows.
	silentGrace = time.Minute
	// healthyAfter is how long a connection must live to forget the failures
	// before it.
	healthyAfter   = time.Minute
	confirmTimeout = 10 * time.Second
)

// socket keeps the one Socket.IO connection of the daemon and tells presence
// over it. Messages never depend on it.
//
// Of the three kinds of client, this one is session-scoped, on the session
// that changed longest ago. All kinds may send the same events, but a
// user-scoped one is pushed every message of the account in full, our own
// included, and a machine-scoped one makes the app show the machine as offline
// when it disconnects, although happy's own daemon may still serve it. A quiet
// session costs next to nothing.
type socket struct {
	u *Uplink

	mu      sync.Mutex
	conn    *socketio.Conn // nil while there is none
	since   time.Time      // of the present state
	err     string         // why there is none
	next    time.Time      // when the next try is due
	broad   bool           // the server wants no session-scoped client of us
	pokes   chan struct{}  // capacity 1: presence or sessions changed
	redials chan struct{}  // capacity 1: drop the connection, dial now
}

func newSocket(u *Uplink) *socket {
	return &socket{u: u, since: time.Now(), pokes: make(chan struct{}, 1), redials: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (k *socket) poke()   { signal(k.pokes) }
func (k *socket) redial() { signal(k.redials) }

func (k *socket) connected() bool { return k.current() != nil }

func (k *socket) current() *socketio.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.conn
}

func (k *socket) note(conn *socketio.Conn, err string, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if (conn == nil) != (k.conn == nil) {
		k.since = time.Now()
	}
	k.conn, k.err, k.next = conn, err, next
}

// run dials again and again until ctx ends.
func (k *socket) run(ctx context.Context) {
	var closing sync.WaitGroup
	defer closing.Wait()
	attempt := 0
	for k.ready(ctx) {
		conn, err := k.dial(ctx)
		if err == nil {
			begin := time.Now()
			k.note(conn, "", time.Time{})
			again := k.serve(ctx, conn)
			err = conn.Err()
			// Saying goodbye on a dead connection takes its time.
			closing.Go(func() { conn.Close() })
			if time.Since(begin) >= healthyAfter {
				attempt = 0
			}
			if again {
				k.note(nil, "", time.Time{})
				continue
			}
		}
		if ctx.Err() != nil {
			break
		}
		attempt++
		wait := backoff(attempt, k.u.gate.random)
		var refused *socketio.ErrConnect
		if errors.As(err, &refused) {
			// Whether it is the token is for HTTP to say, where it is certain.
			wait = max(wait, backoffCap/2)
			k.u.work.add(machineKey)
		}
		var status *socketio.ErrStatus
		if errors.As(err, &status) {
			wait = max(wait, min(retryAfter(status.RetryAfter), maxRetryAfter))
		}
		reason := "disconnected"
		if err != nil {
			reason = shorten(err.Error(), 200)
		}
		k.note(nil, reason, time.Now().Add(wait))
		if k.pause(ctx, wait) {
			attempt = 0
		}
	}
	k.note(nil, "", time.Time{})
}

// pause waits for the next try; true when a redial was asked for.
func (k *socket) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-k.redials:
		return true
	}
	return false
}

// ready waits until there is something to connect for and the server is not
// known to refuse; false at the end of ctx.
func (k *socket) ready(ctx context.Context) bool {
	for ctx.Err() == nil {
		v := k.u.gate.view()
		blocked := v.state == StatePaused || v.state == StateAuthRequired || v.state == StateWrongServer || !v.next.IsZero()
		if !blocked && k.u.anchor() != "" {
			return true
		}
		var timer <-chan time.Time
		stop := func() bool { return true }
		if !v.next.IsZero() {
			t := time.NewTimer(time.Until(v.next))
			timer, stop = t.C, t.Stop
		}
		select {
		case <-ctx.Done():
		case <-v.changed:
		case <-timer:
		case <-k.pokes:
		case <-k.redials:
		}
		stop()
	}
	return false
}

// anchor is the server's id of the session to connect as, empty for none.
func (u *Uplink) anchor() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	best := ""
	var quiet *session
	for _, s := range u.sessions {
		if s.serverID == "" || s.gone {
			continue
		}
		// Not running beats running; the name decides so that it is stable.
		if quiet == nil || alive(quiet) && !alive(s) || alive(quiet) == alive(s) && s.serverID < best {
			quiet, best = s, s.serverID
		}
	}
	return best
}

func alive(s *session) bool { return s.want != nil && s.want.Alive }

func (k *socket) dial(ctx context.Context) (*socketio.Conn, error) {
	token, epoch := k.u.credentials()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(epoch, cancel)()
	auth := map[string]any{"token": token, "happyClient": k.u.api.client}
	if id := k.u.anchor(); id != "" && !k.broad {
		auth["clientType"], auth["sessionId"] = "session-scoped", id
	} else {
		auth["clientType"] = "user-scoped"
	}
	conn, err := socketio.Dial(ctx, k.u.api.base.String(), socketio.Options{
		Auth:       auth,
		HTTPClient: k.u.o.HTTPClient,
		// Nothing is expected from the server yet; what it pushes is dropped.
		OnEvent: nil,
	})
	var refused *socketio.ErrConnect
	if errors.As(err, &refused) && !strings.Contains(strings.ToLower(refused.Message), "token") {
		k.broad = true // perhaps a server that knows this session no more, and minds
	}
	return conn, err
}

// serve tells presence over conn until it ends; true when it is to be dialed
// anew at once.
func (k *socket) serve(ctx context.Context, conn *socketio.Conn) bool {
	k.u.mu.Lock()
	for key, s := range k.u.sessions {
		s.told = nil
		if s.dirty && s.serverID != "" && !s.gone {
			k.u.meta.add(key)
		}
	}
	k.u.mu.Unlock()
	k.u.meta.hurry()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		k.tell(ctx, conn)
		select {
		case <-ctx.Done():
			return false
		case <-conn.Done():
			return false
		case <-k.redials:
			return true
		case <-k.pokes:
		case <-tick.C:
		}
	}
}

// tell sends what the server has to know by now: heartbeats that are due,
// changes, and ends.
func (k *socket) tell(ctx context.Context, conn *socketio.Conn) {
	type end struct{ key, tag string }
	var ended []end
	now := time.Now()
	for _, n := range k.u.due(now) {
		payload := map[string]any{"sid": n.serverID, "time": k.u.o.Wall().UnixMilli()}
		event := "session-end"
		if n.alive {
			event = "session-alive"
			payload["thinking"] = n.thinking
		}
		if err := conn.Emit(ctx, event, payload); err != nil {
			return // the connection ends or is stuck; all is told again on the next
		}
		if n.alive {
			k.u.told(n, now)
		} else {
			ended = append(ended, end{n.key, n.tag})
		}
	}
	if len(ended) == 0 {
		return
	}
	// Events are handled in their order, so the answer to this one means that
	// the ends have arrived. Without it they are sent again.
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if _, err := conn.Call(ctx, "ping"); err != nil {
		return
	}
	for _, e := range ended {
		err := k.u.o.Scope.UpdateLink(k.u.background(), e.key, e.tag, func(l *store.Link) { l.Active = false })
		if err != nil {
			return
		}
		k.u.mu.Lock()
		if s := k.u.session(e.key); s.tag == e.tag {
			s.active, s.told = false, nil
		}
		k.u.mu.Unlock()
	}
	if len(ended) > 0 {
		k.poke() // someone may be alive again by now
	}
}

// notice is one presence event to send.
type notice struct {
	key, tag, serverID string
	alive, thinking    bool
}

// due collects what has to be told now. A session that the server was told the
// end of needs its tag POSTed again before heartbeats count: that is left to
// the worker.
func (u *Uplink) due(now time.Time) []notice {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []notice
	for key, s := range u.sessions {
		if s.serverID == "" || s.gone || s.blocked == s.tag {
			continue
		}
		want := s.want
		if want == nil {
			if now.Sub(u.started) < silentGrace {
				continue
			}
			want = &Presence{}
		}
		n := notice{key, s.tag, s.serverID, want.Alive, want.Thinking}
		switch {
		case want.Alive && !s.active:
			if !s.revive {
				s.revive = true
				u.work.add(key)
			}
		case want.Alive:
			// A second of slack: ticks are not exact.
			if s.told == nil || *s.told != *want || now.Sub(s.toldAt) >= aliveEvery-time.Second {
				out = append(out, n)
			}
		case s.active:
			out = append(out, n)
		}
	}
	return out
}

func (u *Uplink) told(n notice, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.session(n.key); s.tag == n.tag {
		s.told, s.toldAt = &Presence{n.alive, n.thinking}, now
	}
}
