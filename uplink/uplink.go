// Package uplink brings the sealed messages of the store's outbox to a Happy
// server, each once and in order, and keeps what the server shows about the
// sessions true: that they exist, their metadata, who is alive.
//
// What flows in: the outbox and the session infos of a [store.Scope], a wake-up
// for each commit, the wanted presence of each session. What flows out: HTTP
// requests and one Socket.IO connection; back into the store go
// acknowledgements and link facts; to the owner go three callbacks and a
// [Status] with the next step for the user.
//
// The rules:
//   - Per session one POST at a time, oldest messages first, the same local ids
//     on every retry: the server drops what it has. Sessions take turns, a few
//     side by side.
//   - Nothing leaves the outbox before the server has named it in an answer.
//   - Trouble with the server stops everyone and is tried again by one (gate);
//     trouble with one message is confined to its session: batches are halved
//     down to that message, which is then cut or replaced in its place.
//   - A refused token stops the sending, not the queueing. A session that the
//     user deleted stays deleted.
//   - While there is no server, nothing is held in memory: the disk is the queue.
//
// It never reads a log, never decides what a message says (but for the line
// that takes the place of one the server refuses), and never logs contents,
// tokens or keys.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/store"
)

// Defaults of Options.
const (
	DefaultBatchBytes = 1 << 20 // bytes of a request's body
	DefaultBatchCount = 50      // the server takes 100, its database not always
	DefaultParallel   = 4       // requests side by side

	requestTimeout = 30 * time.Second // plus time for the body
	shutdownGrace  = time.Second      // for requests under way when Run ends
	clockTick      = 5 * time.Second
	sleepGap       = 30 * time.Second // a clock gap that means the machine slept
)

// Options say where to and what from.
type Options struct {
	// BaseURL is the server, http or https.
	BaseURL string
	// Token reads the current bearer token from where the credentials are. It
	// is called at the start, after CredentialsChanged, after a refusal, and
	// every few seconds while the server refuses. It must fail when the
	// credentials are by now those of another account than Account.
	Token func() (string, error)
	// CredentialsChanged tells that Token may return something new; may be nil.
	CredentialsChanged <-chan struct{}
	// Scope is the outbox of this server and account.
	Scope *store.Scope
	// Account opens and seals the messages that must be replaced.
	Account *crypto.Account
	// HTTPClient serves HTTP and WebSocket; see [NewHTTPClient]. Nil makes one
	// from the environment.
	HTTPClient *http.Client
	// BatchBytes and BatchCount bound a request; 0 means the defaults.
	BatchBytes, BatchCount int
	// MachineID is what the sessions' metadata call this machine; empty means
	// that no machine is registered (and that an account which vanished from
	// the server cannot be told from a deleted session). MachineMetadata is its metadata as JSON.
	MachineID       string
	MachineMetadata []byte
	// Version goes into the client's name.
	Version string
	// LoginHint is the next step for the user when the token is refused.
	LoginHint string

	// OnAck, OnGone and OnNewGeneration may be nil. They run on the uplink's
	// goroutines: they must not block for long, and may call the Uplink.

	// OnAck says that messages up to the server's seq were acknowledged.
	OnAck func(session string, serverSeq int64)
	// OnGone says that the user deleted the session: its queue was dropped and
	// nothing more of it is sent, until its link in the store is emptied or its
	// tag changes.
	OnGone func(session string)
	// OnNewGeneration says that the server holds another key under the
	// session's tag. Nothing is sent until the bridge has committed an info
	// with another tag.
	OnNewGeneration func(session string)

	// Log receives changes of state and what was done about a message that
	// could not be delivered. Nil discards.
	Log *slog.Logger
	// Wall is the wall clock, Random draws from [0,1) for any goroutine; for
	// tests.
	Wall   func() time.Time
	Random func() float64
}

// Presence is what the server should show of a session.
type Presence struct {
	// Alive says that the agent's process runs, Thinking that it works.
	Alive, Thinking bool
}

// Uplink is one connection to one server for one account. Its methods may be
// called from any goroutine, before, during and after Run.
type Uplink struct {
	o    Options
	log  *slog.Logger
	api  *api
	gate *gate
	work *queue // session keys, and machineKey
	meta *queue // session keys whose metadata may differ
	sock *socket

	mu        sync.Mutex
	sessions  map[string]*session
	token     string
	machine   string // the id in use
	base      context.Context
	epoch     context.Context // of the requests under way; ended when the network changes
	endEpoch  context.CancelCauseFunc
	started   time.Time
	limit     int       // bytes of a body that the server seems to take; 0 = BatchBytes
	limitedAt time.Time // when limit was learned
}

// errNetworkChanged ends requests that may hang on a connection that is no more.
var errNetworkChanged = errors.New("network changed")

// errRetry says that a request got no answer that concerns its caller: the gate
// knows why, and the same work is to be done again.
var errRetry = errors.New("server unavailable")

// New checks the options and loads what the store knows. Nothing is sent before
// Run.
func New(o Options) (*Uplink, error) {
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("server URL is not a http or https address")
	}
	if o.Token == nil || o.Scope == nil || o.Account == nil {
		return nil, errors.New("uplink needs Token, Scope and Account")
	}
	if o.HTTPClient == nil {
		if o.HTTPClient, err = NewHTTPClient("", ""); err != nil {
			return nil, err
		}
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = DefaultBatchBytes
	}
	if o.BatchCount <= 0 || o.BatchCount > 100 {
		o.BatchCount = DefaultBatchCount
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if len(o.MachineMetadata) == 0 {
		o.MachineMetadata = []byte("{}")
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	u := &Uplink{
		o:        o,
		log:      o.Log,
		gate:     newGate(o.Random),
		work:     newQueue(),
		meta:     newQueue(),
		sessions: make(map[string]*session),
		api: &api{base: base, http: o.HTTPClient, client: "happyd/" + o.Version,
			timeout: requestTimeout},
	}
	u.sock = newSocket(u)
	if err := u.load(); err != nil {
		return nil, err
	}
	return u, nil
}

// load makes work of what an earlier run left.
func (u *Uplink) load() error {
	all, err := u.o.Scope.Sessions()
	if err != nil {
		return fmt.Errorf("loading sessions: %w", err)
	}
	for _, ses := range all {
		s := u.session(ses.Key)
		s.follow(ses)
		s.active = ses.Link.Active
		s.dirty = ses.Info.MetadataHash != ses.Link.MetadataAcked
		if u.o.Scope.Queued(ses.Key).Count > 0 {
			u.work.add(ses.Key)
		}
	}
	return u.loadMachine()
}

// Run sends until ctx ends. It returns within 2 s then: requests under way may
// finish, everything else waits on disk for the next run. It may be called once.
func (u *Uplink) Run(ctx context.Context) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopGrace := context.AfterFunc(ctx, func() {
		t := time.NewTimer(shutdownGrace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-base.Done():
		}
	})
	defer stopGrace()

	u.mu.Lock()
	u.base, u.started = base, time.Now()
	u.epoch, u.endEpoch = context.WithCancelCause(base)
	u.mu.Unlock()
	if err := u.reloadToken(); err != nil {
		u.gate.refuse(err.Error())
	}

	u.work.add(machineKey)
	var group sync.WaitGroup
	for range DefaultParallel {
		group.Go(func() { u.worker(ctx) })
	}
	for range 2 {
		group.Go(func() { u.metaWorker(ctx) })
	}
	group.Go(func() { u.sock.run(ctx) })
	group.Go(func() { u.watchClock(ctx) })
	group.Go(func() { u.watchState(ctx) })
	group.Wait()
	u.work.stop()
	u.meta.stop()
	return nil
}

// Wake says that something of the session was committed: messages, or an info.
func (u *Uplink) Wake(session string) {
	u.mu.Lock()
	u.session(session).dirty = true
	u.mu.Unlock()
	u.work.add(session)
	if u.sock.connected() {
		u.meta.add(session)
	}
}

// Presence says what the server should show of the session. It is kept until
// the next call, repeated to the server, and corrected after a reconnection.
// A session for which it is never called counts as not alive after a minute.
func (u *Uplink) Presence(session string, p Presence) {
	u.mu.Lock()
	s := u.session(session)
	changed := s.want == nil || *s.want != p
	s.want = &p
	u.mu.Unlock()
	if changed {
		u.sock.poke()
	}
}

// NetworkChanged says that the network is another one, or back: requests under
// way are given up, the socket is dialed anew, and nothing waits any longer
// (except where the server itself asked for it).
func (u *Uplink) NetworkChanged() {
	u.mu.Lock()
	if u.base != nil {
		u.endEpoch(errNetworkChanged)
		u.epoch, u.endEpoch = context.WithCancelCause(u.base)
	}
	u.mu.Unlock()
	u.o.HTTPClient.CloseIdleConnections()
	u.gate.retry()
	u.work.hurry()
	u.sock.redial()
}

// Pause stops all sending; what is committed goes on waiting on disk.
func (u *Uplink) Pause() {
	u.gate.pause(true)
	u.sock.redial() // ends the connection; the pause keeps it from coming back
}

// Resume ends a pause.
func (u *Uplink) Resume() { u.gate.pause(false) }

// worker does the work of one session after the other.
func (u *Uplink) worker(ctx context.Context) {
	for {
		key, err := u.work.next(ctx)
		if err != nil {
			return
		}
		var more bool
		var delay time.Duration
		if key == machineKey {
			more, delay = u.registerMachine(ctx)
		} else {
			more, delay = u.deliver(ctx, key)
		}
		u.work.done(key, more && ctx.Err() == nil, delay)
	}
}

// watchClock notices that the machine slept, and new credentials that nobody
// announced.
func (u *Uplink) watchClock(ctx context.Context) {
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	mono, wall := time.Now(), u.o.Wall().Round(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.o.CredentialsChanged:
			u.renewToken()
			continue
		case <-tick.C:
		}
		m, w := time.Now(), u.o.Wall().Round(0)
		// Asleep, the monotonic clock stands still on some systems and goes on
		// on others; a process that was stopped sees it jump, too.
		slept := max(w.Sub(wall), m.Sub(mono)) - clockTick
		mono, wall = m, w
		if slept > sleepGap {
			u.log.Info("woke up, connecting anew", "slept", slept.Round(time.Second))
			u.NetworkChanged()
		}
		if u.gate.view().state == StateAuthRequired {
			u.renewToken()
		}
	}
}

// watchState logs each change of the overall state once.
func (u *Uplink) watchState(ctx context.Context) {
	last := StateConnecting
	for {
		v := u.gate.view()
		if v.state != last {
			last = v.state
			level := slog.LevelWarn
			if v.state == StateOnline || v.state == StatePaused {
				level = slog.LevelInfo
			}
			u.log.Log(ctx, level, "uplink is "+string(v.state), "server", u.api.base.Redacted(),
				"reason", v.reason, "next_step", u.hint(v))
		}
		select {
		case <-ctx.Done():
			return
		case <-v.changed:
		}
	}
}
