package bridge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink"
	"github.com/happyd/happyd/watch"
)

// A Source is one provider and the agent homes in which its files lie.
type Source struct {
	Provider adapters.Provider
	Homes    []string
	// Form tells apart the providers of one name: "" for an agent's own logs, FormStream for streams that were piped in and kept
	// in files. A session is mapped from one form only.
	Form string
}

// FormStream is the form of kept streams. Their last record is StreamEnd.
const FormStream = "stream"

// StreamEnd is the record that ends a kept stream: its pipe was closed.
const StreamEnd = `{"type":"happyd.end"}`

// Uplink is what the bridge needs of the uplink.
type Uplink interface {
	Wake(session string)
	Presence(session string, p uplink.Presence)
}

// Options are what a Bridge is made of.
type Options struct {
	Sources  []Source
	Scope    *store.Scope
	Full     func() bool // the outbox is at its limit: reading pauses
	Account  *crypto.Account
	Uplink   Uplink
	History  config.History
	Projects config.Projects
	Memory   int64 // bytes that all buffers together may hold
	Tools    string

	Machine Machine
	// HappyHome is the happy CLI's directory, read to recognise the sessions that it drives itself; "" = none.
	HappyHome string
	// Publish shows a plaintext envelope on this machine, once it is durable. It must not block. May be nil.
	Publish func(session, provider string, e protocol.Envelope)
	Log     *slog.Logger
	Now     func() time.Time
	// Newborn is how long a new session waits for signs that Happy itself drives it; 0 = DefaultNewborn.
	Newborn time.Duration
	// OwnParents replaces the look at a process's ancestors in tests; nil = the real one.
	OwnParents func(pid int) []string
}

// Machine describes this machine in the sessions' metadata.
type Machine struct {
	ID, Host, OS, Home, HappyHome, Version string
}

// Defaults and limits.
const (
	DefaultNewborn = 3 * time.Second

	aliveAfterGrowth = 10 * time.Minute       // without a process file, a log that grew lately belongs to a live agent
	giveUpOnCalls    = 6 * time.Hour          // …but a tool may run longer than that in silence
	tailStill        = 5 * time.Second        // after which a final line without newline counts
	unloadAfter      = time.Minute            // of rest
	aliveCheck       = 5 * time.Second        // between looks at the processes, while there are any
	scanLook         = 100 * time.Millisecond // between looks while the first scan runs
	batchBytes       = 1 << 20                // of records per transaction, about
	batchRecords     = 500
	packedBytes      = 8 << 20 // batchBytes of a compressed log
	readers          = 8       // sessions that read at a time
)

// Bridge runs the way from the files to the outbox. Its methods may be called from any goroutine.
type Bridge struct {
	o        Options
	budget   *buffer.Budget
	log      *slog.Logger
	watcher  *watch.Watcher
	provider map[string]adapters.Provider // by root name and path
	roots    map[string]watch.Root

	wg    sync.WaitGroup
	slots chan struct{} // as many sessions read at a time

	mu      sync.Mutex
	ctx     context.Context
	actors  map[string]*actor // by session key
	unknown map[string]watch.Event
	procs   map[string]process // by path of the process file
	alive   map[string]*life   // by session key
	counts  map[string]int64
	old     map[string][]byte
	pending map[string]bool    // roots whose first scan runs
	orphans map[string]orphans // by session key, also of sessions that are not loaded
	places  map[string]located // by path
	indexes map[string]*index  // by path
	logs    map[string]bool    // session keys of which a log of the agent's own was seen
	later   map[string][]file  // by session key: sidecars that are read once something else loads the session
}

// New makes a Bridge.
func New(o Options) *Bridge {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Newborn == 0 {
		o.Newborn = DefaultNewborn
	}
	if o.Publish == nil {
		o.Publish = func(string, string, protocol.Envelope) {}
	}
	if o.Full == nil {
		o.Full = func() bool { return false }
	}
	if o.OwnParents == nil {
		o.OwnParents = ancestors
	}
	b := &Bridge{
		o: o, log: o.Log, budget: buffer.NewBudget(o.Memory),
		provider: map[string]adapters.Provider{}, roots: map[string]watch.Root{},
		actors: map[string]*actor{}, unknown: map[string]watch.Event{}, procs: map[string]process{}, alive: map[string]*life{},
		counts: map[string]int64{}, old: map[string][]byte{}, pending: map[string]bool{},
		orphans: map[string]orphans{}, logs: map[string]bool{}, places: map[string]located{}, indexes: map[string]*index{},
		later: map[string][]file{}, slots: make(chan struct{}, readers),
	}
	var roots []watch.Root
	for _, s := range o.Sources {
		for _, home := range s.Homes {
			for _, r := range s.Provider.Roots(home) {
				key := rootKey(r.Name, r.Path)
				if b.provider[key] != nil {
					continue
				}
				b.provider[key], b.roots[key], b.pending[key] = s.Provider, r, true
				roots = append(roots, r)
			}
		}
	}
	b.watcher = watch.New(roots, watch.Options{Log: o.Log})
	return b
}

func rootKey(name, path string) string { return name + "\x00" + filepath.Clean(path) }

// Rescan looks at everything again, after the machine slept.
func (b *Bridge) Rescan() { b.watcher.Rescan() }

// Watching describes the roots.
func (b *Bridge) Watching() watch.Status { return b.watcher.Status() }

// Run works until ctx ends. What was read by then is durable.
func (b *Bridge) Run(outer context.Context) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
	if err := b.resume(ctx); err != nil {
		return err
	}
	b.wg.Add(1)
	go func() {
		defer b.wg.Done()
		b.watchProcesses(ctx)
	}()
	err := b.watcher.Run(ctx, func(e watch.Event) { b.event(ctx, e) })
	cancel() // where the watcher broke, the sessions must end, too
	b.flushOld(context.WithoutCancel(ctx))
	b.wg.Wait()
	if outer.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch logs: %w", err)
	}
	return nil
}

// resume loads the sessions that wait for something: an open turn, a running subagent.
func (b *Bridge) resume(ctx context.Context) error {
	all, err := b.o.Scope.Sessions()
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	// What was queued before a directory was excluded must not leave any more.
	queued := b.o.Scope.Pending()
	filtered := len(b.o.Projects.Include) > 0 || len(b.o.Projects.Exclude) > 0
	for _, s := range all {
		p, id := b.split(s.Key)
		if p == nil {
			continue
		}
		if _, q := queued[s.Key]; s.Info.Open || q && filtered {
			b.send(p, id, func(*actor) {})
		}
	}
	return b.loadOrphans()
}

// form is the form of a provider.
func (b *Bridge) form(p adapters.Provider) string {
	for _, s := range b.o.Sources {
		if s.Provider == p {
			return s.Form
		}
	}
	return ""
}

// ofForm is the provider of a name and form; nil when it is not configured.
func (b *Bridge) ofForm(name, form string) adapters.Provider {
	for _, s := range b.o.Sources {
		if s.Provider.Name() == name && s.Form == form {
			return s.Provider
		}
	}
	return nil
}

// HasLog says whether a session's own log was seen, so that a stream of it would say everything twice.
func (b *Bridge) HasLog(provider, session string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs[provider+":"+session]
}

// split takes a session key apart; p is nil for a provider that is not configured.
func (b *Bridge) split(key string) (p adapters.Provider, id string) {
	for _, s := range b.o.Sources {
		if n := s.Provider.Name() + ":"; len(key) > len(n) && key[:len(n)] == n {
			return s.Provider, key[len(n):]
		}
	}
	return nil, ""
}

// send runs fn on a session's inbox and wakes its goroutine, which is started where it does not run.
func (b *Bridge) send(p adapters.Provider, id string, fn func(*actor)) {
	key := p.Name() + ":" + id
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil || b.ctx.Err() != nil {
		return
	}
	a := b.actors[key]
	if a == nil {
		a = newActor(b, p, id)
		b.actors[key] = a
		for _, f := range b.later[key] {
			a.dirty[f.event.Path] = f
		}
		delete(b.later, key)
		b.wg.Add(1)
		go func() {
			defer b.wg.Done()
			a.run(b.ctx)
		}()
	}
	a.mu.Lock()
	fn(a)
	a.mu.Unlock()
	a.wake()
}

// retire removes a resting actor unless something came in. It reports whether the actor may end.
func (b *Bridge) retire(a *actor) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.dirty) > 0 || len(a.observed) > 0 || a.regenerate {
		return false
	}
	delete(b.actors, a.key)
	return true
}

// Gone is the uplink's word that the user deleted a session.
func (b *Bridge) Gone(key string) {
	if p, id := b.split(key); p != nil {
		b.send(p, id, func(a *actor) { a.gone = true })
	}
}

// NewGeneration is the uplink's word that the server holds a foreign key under a session's tag: it starts over under another one.
func (b *Bridge) NewGeneration(key string) {
	if p, id := b.split(key); p != nil {
		b.send(p, id, func(a *actor) { a.regenerate = true })
	}
}

// count adds to a counter of what was left out.
func (b *Bridge) count(what string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.counts[what] += n
	b.mu.Unlock()
}

// Counters returns what was skipped or left out, by reason.
func (b *Bridge) Counters() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]int64, len(b.counts))
	for k, n := range b.counts {
		out[k] = n
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
