package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/watch"
)

// file is a log or sidecar of a session that deserves a look.
type file struct {
	p     adapters.Provider
	place adapters.Place
	event watch.Event
}

// cursorKey is the key of the file's cursor: one for all names that a log can have, else its path.
func (f file) cursorKey(path string) string {
	if f.place.Key != "" {
		return f.place.Key
	}
	return path
}

// An actor is the goroutine that owns one source session from record to outbox. It is loaded when something happens and leaves
// again after a while of rest.
type actor struct {
	b    *Bridge
	p    adapters.Provider // load may take the one of another form; the name stays
	name string            // of the provider
	id   string
	key  string

	signal chan struct{}

	// mu guards the inbox. Bridge.mu is taken first where both are needed.
	mu         sync.Mutex
	dirty      map[string]file
	observed   []adapters.Observation
	gone       bool // the user deleted the session
	regenerate bool // another tag is needed
	view       view // for status

	// What follows is the goroutine's own.
	pump     *Pump
	newFiles bool // saved.Files differs from what is stored
	seen     *seenSet
	saved    actorState
	info     store.SessionInfo
	link     store.Link
	born     time.Time // when this goroutine met the session
	grew     time.Time // latest modification of its logs
	active   time.Time // when something last happened
	partial  map[string]file
	offsets  map[string]int64  // by path, of the files met since the session was loaded
	cursors  map[string][]byte // changed, not yet committed
	envs     []protocol.Envelope
	envBytes int
	proc     adapters.Process
	streamed string // a kept stream that was read to its end, to be removed once that is durable
	changed  bool   // saved differs from what is stored
	slot     bool   // it holds one of Bridge.slots
	silent   bool   // the silence of the log was taken for the process's end
	broken   bool   // the store's state cannot be used: the session rests
}

// actorState is the saved state of a session: the pump's and what the bridge itself must remember.
type actorState struct {
	Pump    json.RawMessage   `json:"pump,omitempty"`
	Files   map[string]string `json:"-"` // cursor key -> path; stored beside the state, see files.go
	Driven  bool              `json:"driven,omitempty"`
	Decided bool              `json:"decided,omitempty"` // whether Happy drives it, and whether its directory is included
	Allowed bool              `json:"allowed,omitempty"`
	Form    string            `json:"form,omitempty"`    // of its files: see Source
	Process bool              `json:"process,omitempty"` // a process file named it once
	Cwd     map[string]string `json:"cwd,omitempty"`     // path -> latest working directory, while some are excluded
}

func newActor(b *Bridge, p adapters.Provider, id string) *actor {
	return &actor{
		b: b, p: p, name: p.Name(), id: id, key: p.Name() + ":" + id, signal: make(chan struct{}, 1),
		dirty: map[string]file{}, partial: map[string]file{}, cursors: map[string][]byte{}, offsets: map[string]int64{},
	}
}

func (a *actor) wake() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// seenSet is the durable set of record identities, loaded with the session.
type seenSet struct {
	all   map[uint64]struct{}
	added []uint64
}

func (s *seenSet) Has(h uint64) bool { _, ok := s.all[h]; return ok }

func (s *seenSet) Add(h uint64) {
	if _, ok := s.all[h]; !ok {
		s.all[h] = struct{}{}
		s.added = append(s.added, h)
	}
}

// run is the goroutine.
func (a *actor) run(ctx context.Context) {
	defer func() {
		if a.pump != nil {
			a.pump.Close()
		}
	}()
	a.born, a.active = a.b.o.Now(), a.b.o.Now()
	if err := a.load(); err != nil {
		a.b.log.Error("loading a session; it is left alone until the next start", "session", a.key, "error", err)
		a.broken = true
	}
	for {
		next := a.round(ctx)
		if ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(max(next, time.Millisecond))
		select {
		case <-ctx.Done():
		case <-a.signal:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			a.lastFlush()
			return
		}
		if a.resting() && a.b.retire(a) {
			return
		}
	}
}

// lastFlush makes durable what was read before the shutdown.
func (a *actor) lastFlush() {
	if a.broken {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if ok, _ := a.mayCommit(a.b.o.Now()); ok {
		a.commit(ctx)
	}
}

// load reads the session's state from the store.
func (a *actor) load() error {
	raw, ses, ok, err := a.b.o.Scope.Session(a.key)
	if err != nil {
		return err
	}
	a.saved = actorState{}
	if ok && len(raw) > 0 {
		plain, err := a.b.o.Account.State().Open(raw)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(plain, &a.saved); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		a.saved.Form = a.b.form(a.p) // what comes first decides
	}
	if err := a.loadFiles(); err != nil {
		return err
	}
	if p := a.b.ofForm(a.p.Name(), a.saved.Form); p != nil {
		a.p = p
	}
	a.info, a.link = ses.Info, ses.Link
	if a.info.Tag == "" {
		a.info.Tag = a.b.o.Account.Tag(a.p.Name(), a.id, 0)
	}
	if a.link.Gone {
		a.mu.Lock()
		a.gone = true
		a.mu.Unlock()
	}
	hashes, err := a.b.o.Scope.Seen(a.key)
	if err != nil {
		return err
	}
	a.seen = &seenSet{all: make(map[uint64]struct{}, len(hashes))}
	for _, h := range hashes {
		a.seen.all[h] = struct{}{}
	}
	if err := a.openPump(); err != nil {
		return err
	}
	return a.purge()
}

// purge drops what was queued before the session's directory was excluded.
func (a *actor) purge() error {
	cwd := a.pump.Session().Facts().Cwd
	if !a.b.o.Projects.Excluded(cwd) || a.b.o.Scope.Queued(a.key).Count == 0 {
		return nil
	}
	a.b.log.Info("a directory is excluded by now; what was queued of it is dropped", "session", a.key)
	return a.b.o.Scope.Commit(context.Background(), store.Commit{Session: a.key, DropOutbox: true})
}

func (a *actor) openPump() error {
	pump, err := NewPump(a.p, adapters.SessionOptions{
		ID: a.id, Tag: a.info.Tag, Seen: a.seen, ToolNames: a.b.o.Tools,
	}, buffer.New(a.b.budget, watch.ReadRange), a.saved.Pump)
	if err != nil {
		return err
	}
	a.pump = pump
	if t := a.b.indexed(a.id); t != "" {
		a.pump.Observe(titleOf(t), a.now())
	}
	return nil
}

// round takes what came in, reads what there is, and says when to come again.
func (a *actor) round(ctx context.Context) time.Duration {
	if a.broken {
		a.mu.Lock()
		a.dirty, a.observed, a.regenerate = map[string]file{}, nil, false
		a.mu.Unlock()
		return unloadAfter
	}
	if a.b.o.Full() {
		a.glance()
		a.show()
		return time.Second // the logs are the buffer
	}
	a.mu.Lock()
	dirty, observed, gone, regenerate := a.dirty, a.observed, a.gone, a.regenerate
	a.dirty, a.observed, a.regenerate = map[string]file{}, nil, false
	a.mu.Unlock()
	if len(dirty) > 0 || len(observed) > 0 {
		a.active = a.b.o.Now()
	}
	if regenerate {
		a.startOver(ctx, dirty)
	}
	if gone || a.saved.Driven {
		a.skip(ctx, dirty)
		a.show()
		return unloadAfter
	}
	for _, o := range observed {
		if o.Kind == adapters.ObserveProcess {
			a.observeProcess(o.Process)
			continue
		}
		a.pump.Observe(o, a.now())
	}
	if len(dirty) > 0 && !a.takeSlot(ctx) {
		return 0
	}
	defer a.freeSlot()
	again := a.read(ctx, dirty)
	if ctx.Err() != nil {
		return 0
	}
	a.checkSilence()
	// Before the first scan is over, or with files waiting, what decides may stand in a log that was not looked at yet.
	scanned := a.b.scannedAll()
	a.pump.Tick(a.now(), !again && scanned && !a.more())
	a.collect()
	wait := a.flush(ctx)
	a.freeSlot()
	a.noteOrphans(ctx)
	a.presence()
	a.show()
	if again {
		return time.Second
	}
	next := a.nextLook(wait)
	if !scanned {
		next = max(next, scanLook) // what is overdue waits for the scan, whose end is a signal
	}
	return next
}

// takeSlot waits for the right to read a batch: what is read and not yet stored is in memory, so few sessions may at a time,
// however many have something to read. It reports false when ctx ended.
func (a *actor) takeSlot(ctx context.Context) bool {
	select {
	case a.b.slots <- struct{}{}:
		a.slot = true
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *actor) freeSlot() {
	if a.slot {
		<-a.b.slots
		a.slot = false
	}
}

// more says whether files came in that this round did not read.
func (a *actor) more() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.dirty) > 0
}

// isGone says whether the user deleted the session.
func (a *actor) isGone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

func (a *actor) now() int64 { return a.b.o.Now().UnixMilli() }

// resting says whether nothing is expected of this session soon.
func (a *actor) resting() bool {
	if a.broken {
		return true
	}
	if a.b.o.Now().Sub(a.active) < unloadAfter || len(a.partial) > 0 || len(a.envs) > 0 || len(a.cursors) > 0 {
		return false
	}
	if a.saved.Driven || a.isGone() {
		return true
	}
	return a.pump.Wake() == 0 && a.pump.Err() == nil && !a.waits() && !a.aliveNow()
}

// waits says whether something is open that the end of the agent's process must close.
func (a *actor) waits() bool {
	st := a.pump.Session().Status()
	return st.Turn == "open" || st.Running > 0
}

// nextLook is when the next round is due without any signal.
func (a *actor) nextLook(wait time.Duration) time.Duration {
	next := unloadAfter
	sooner := func(d time.Duration) { next = min(next, max(d, 20*time.Millisecond)) }
	if wait > 0 {
		sooner(wait)
	}
	if w := a.pump.Wake(); w != 0 {
		sooner(time.UnixMilli(w).Sub(a.b.o.Now()))
	}
	if a.pump.Err() != nil {
		sooner(2 * time.Second)
	}
	for path, f := range a.partial {
		due := tailStill - a.b.o.Now().Sub(f.event.ModTime)
		if due <= 0 {
			// Still and no whole object: only growth changes that.
			delete(a.partial, path)
			continue
		}
		sooner(due + 10*time.Millisecond)
		a.mu.Lock()
		if _, newer := a.dirty[path]; !newer {
			a.dirty[path] = f
		}
		a.mu.Unlock()
	}
	return next
}
