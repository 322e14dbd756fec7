package uplink

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// State is what the uplink as a whole can do at the moment.
type State string

// The states. Sessions have states of their own: see SessionStatus.
const (
	StateConnecting   State = "connecting"    // nothing was answered yet since the start
	StateOnline       State = "online"        // the latest request was answered
	StateOffline      State = "offline"       // the server cannot be reached, or fails
	StateAuthRequired State = "auth_required" // the server does not accept the token
	StateWrongServer  State = "wrong_server"  // what answers is no Happy server
	StatePaused       State = "paused"        // by the user
)

const (
	backoffBase = time.Second
	backoffCap  = time.Minute
	// authProbe is the time between two looks at whether a refused token is
	// accepted after all. New credentials are tried at once.
	authProbe = time.Minute
	// maxRetryAfter keeps a confused server from silencing us for days.
	maxRetryAfter = time.Hour
	// softAfter is how long the server may answer nothing but errors of its
	// own before that counts as offline.
	softAfter = 30 * time.Second
)

// backoff is exponential with full jitter: between nothing and the doubled
// step, so that many clients of a restarted server do not come back together.
func backoff(attempt int, random func() float64) time.Duration {
	step := backoffCap
	if attempt < 1 {
		attempt = 1
	}
	if attempt < 7 {
		step = min(backoffCap, backoffBase<<(attempt-1))
	}
	return time.Duration(random() * float64(step))
}

// gate decides when a request may go to the server. While all is well everyone
// passes. After a failure nobody passes until the time for the next try, and
// then one at a time, until one succeeds: a server that comes back is not run
// over by all sessions at once, and one that is away is asked by one only.
type gate struct {
	random func() float64

	mu      sync.Mutex
	state   State
	since   time.Time
	reason  string
	paused  bool
	until   time.Time // nobody passes before
	attempt int       // failures in a row; 0 = everyone passes
	probing bool      // someone is out to try
	fixed   bool      // until was set by the server: no network change lifts it
	lastOK  time.Time
	changed chan struct{} // closed and replaced at each change
}

func newGate(random func() float64) *gate {
	if random == nil {
		random = rand.Float64
	}
	now := time.Now()
	return &gate{random: random, state: StateConnecting, since: now, lastOK: now, changed: make(chan struct{})}
}

func (g *gate) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) set(s State, reason string) {
	if g.state != s {
		g.state, g.since = s, time.Now()
	}
	g.reason = reason
}

// enter waits until a request may go. Every enter that succeeds is followed by
// exactly one of pass, fail, soft, rate, refuse, wrong or leave.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		wait := time.Until(g.until)
		free := !g.paused && wait <= 0 && (g.attempt == 0 || !g.probing)
		if free && g.attempt > 0 {
			g.probing = true
		}
		changed, byTime := g.changed, !g.paused && wait > 0
		g.mu.Unlock()
		if ctx.Err() != nil {
			if free {
				g.leave()
			}
			return ctx.Err()
		}
		if free {
			return nil
		}
		if err := sleepUntil(ctx, changed, wait, byTime); err != nil {
			return err
		}
	}
}

// sleepUntil waits for a change, for d if timed, or for the end of ctx.
func sleepUntil(ctx context.Context, changed <-chan struct{}, d time.Duration, timed bool) error {
	var fire <-chan time.Time
	if timed {
		t := time.NewTimer(d)
		defer t.Stop()
		fire = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-fire:
	}
	return nil
}

func (g *gate) update(fn func(now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = false
	fn(time.Now())
	g.broadcast()
}

// pass: the server answered as it should.
func (g *gate) pass() {
	g.update(func(now time.Time) {
		g.lastOK = now
		// An answer to a request from before the server asked us to wait says
		// nothing about that.
		if g.attempt > 0 && g.fixed && now.Before(g.until) {
			return
		}
		g.attempt, g.until, g.fixed = 0, time.Time{}, false
		g.set(StateOnline, "")
	})
}

// leave: the request says nothing about the server.
func (g *gate) leave() { g.update(func(time.Time) {}) }

// fail: the server cannot be reached or is not ready.
func (g *gate) fail(reason string) {
	g.update(func(now time.Time) {
		if now.Before(g.until) { // one of several that were under way together
			return
		}
		g.attempt++
		g.until, g.fixed = now.Add(backoff(g.attempt, g.random)), false
		g.set(StateOffline, reason)
	})
}

// soft: the server answered, with an error about this one request. The caller
// delays its own session; only when nothing else succeeds it counts as offline.
func (g *gate) soft(reason string) {
	g.update(func(now time.Time) {
		if now.Sub(g.lastOK) > softAfter && g.state != StateAuthRequired {
			g.set(StateOffline, reason)
		}
	})
}

// rate: the server asks all of us to wait; after <= 0 when it does not say how
// long.
func (g *gate) rate(after time.Duration) {
	g.update(func(now time.Time) {
		g.attempt++
		if after <= 0 {
			after = backoffBase + backoff(g.attempt, g.random)
		} else {
			// Not everyone who was told the same time should use its first ms.
			after = min(after, maxRetryAfter) + time.Duration(g.random()*float64(time.Second))
		}
		if until := now.Add(after); until.After(g.until) {
			g.until, g.fixed = until, true
		}
		g.reason = "the server asks to send less"
	})
}

// refuse: the token is not accepted.
func (g *gate) refuse(reason string) {
	g.update(func(now time.Time) {
		g.attempt++
		g.until, g.fixed = now.Add(authProbe), true
		g.set(StateAuthRequired, reason)
	})
}

// wrong: what answered is not a Happy server.
func (g *gate) wrong(reason string) {
	g.update(func(now time.Time) {
		g.attempt++
		g.until, g.fixed = now.Add(backoffBase+backoff(g.attempt, g.random)), false
		g.set(StateWrongServer, reason)
	})
}

// retry lifts the wait that we chose ourselves: the network has changed.
func (g *gate) retry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.fixed {
		g.until = time.Time{}
		g.attempt = min(g.attempt, 1)
	}
	g.broadcast()
}

// renew lifts the wait for other credentials: there are some.
func (g *gate) renew() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == StateAuthRequired {
		g.until, g.fixed = time.Time{}, false
	}
	g.broadcast()
}

func (g *gate) pause(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = on
	g.broadcast()
}

// gateView is a snapshot for status, logs and waiting.
type gateView struct {
	state   State
	since   time.Time
	next    time.Time // zero when there is no wait
	reason  string
	changed <-chan struct{}
}

func (g *gate) view() gateView {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := gateView{g.state, g.since, time.Time{}, g.reason, g.changed}
	if time.Now().Before(g.until) {
		v.next = g.until
	}
	if g.paused {
		v.state, v.next = StatePaused, time.Time{}
	}
	return v
}
