package bridge

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/uplink"
	"github.com/happyd/happyd/watch"
)

// process is one agent process as its file describes it.
type process struct {
	p     adapters.Provider
	file  adapters.ProcessFile
	alive bool
}

// maxObserved is how many changes of a process wait one by one for a session that cannot take them.
const maxObserved = 64

// life is what is known of a session's presence.
type life struct {
	sent uplink.Presence
	told bool
	grew time.Time // latest growth of its logs
}

// processFile reads a process file that appeared, changed or vanished.
func (b *Bridge) processFile(p adapters.Provider, e watch.Event) {
	parser, ok := p.(adapters.ProcessParser)
	if !ok {
		return
	}
	b.mu.Lock()
	old, had := b.procs[e.Path]
	b.mu.Unlock()
	if e.Op == watch.Gone {
		b.mu.Lock()
		delete(b.procs, e.Path)
		b.mu.Unlock()
		if had {
			b.tell(p, old.file.Session)
		}
		return
	}
	data, err := os.ReadFile(e.Path)
	if err != nil {
		return
	}
	f, ok := parser.ParseProcess(data)
	if !ok {
		return // being written: its next event follows
	}
	b.mu.Lock()
	b.procs[e.Path] = process{p: p, file: f, alive: processAlive(f.PID, f.Start)}
	b.mu.Unlock()
	if had && old.file.Session != f.Session {
		b.tell(p, old.file.Session) // the process went on with another session
	}
	b.tell(p, f.Session)
}

// watchProcesses looks at the known processes now and then; without any it only waits.
func (b *Bridge) watchProcesses(ctx context.Context) {
	t := time.NewTicker(aliveCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		var changed []process
		b.mu.Lock()
		for path, pr := range b.procs {
			if pr.alive && !processAlive(pr.file.PID, pr.file.Start) {
				pr.alive = false
				b.procs[path] = pr
				changed = append(changed, pr)
			}
		}
		b.mu.Unlock()
		for _, pr := range changed {
			b.tell(pr.p, pr.file.Session)
		}
		b.agePresence()
	}
}

// processOf is what the process files say of a session: a live process, else a dead one, else nothing.
func (b *Bridge) processOf(p adapters.Provider, session string) adapters.Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out adapters.Process
	for _, pr := range b.procs {
		if pr.p != p || pr.file.Session != session || out.Known && out.Alive {
			continue
		}
		out = adapters.Process{Known: true, Alive: pr.alive, PID: pr.file.PID, Status: pr.file.Status, StatusAt: pr.file.StatusAt}
	}
	return out
}

// tell hands a session the state of its process. A session that no process file names any more has lost its process.
func (b *Bridge) tell(p adapters.Provider, session string) {
	if session == "" {
		return
	}
	pr := b.processOf(p, session)
	key := p.Name() + ":" + session
	b.mu.Lock()
	_, loaded := b.actors[key]
	b.mu.Unlock()
	if !pr.Known {
		pr = adapters.Process{Known: true}
		if !loaded {
			b.mu.Lock()
			_, shown := b.alive[key]
			b.mu.Unlock()
			if shown {
				b.presence(key, uplink.Presence{}, time.Time{})
			}
			return
		}
	}
	if !loaded && !b.met(key) {
		return // nothing of it was read: its log will ask
	}
	b.send(p, session, func(a *actor) {
		if n := len(a.observed); n >= maxObserved && a.observed[n-1].Kind == adapters.ObserveProcess {
			a.observed = a.observed[:n-1] // it cannot take them now; the latest says it all
		}
		a.observed = append(a.observed, adapters.Observation{Kind: adapters.ObserveProcess, Process: pr})
	})
}

// met says whether the store knows a session.
func (b *Bridge) met(key string) bool {
	_, ok, err := b.o.Scope.Lookup(key)
	return ok && err == nil
}

// checkSilence takes long silence for the end of an agent that has no process file, and asks for the process of a session that
// was just loaded.
func (a *actor) checkSilence() {
	if !a.proc.Known {
		if pr := a.b.processOf(a.p, a.id); pr.Known {
			a.observeProcess(pr)
			return
		}
		if a.saved.Process && a.b.scannedAll() {
			a.observeProcess(adapters.Process{Known: true}) // it had a process file, and that is gone
			return
		}
		if a.grew.IsZero() {
			a.grew = a.lastGrowth()
		}
		quiet := a.b.o.Now().Sub(a.grew)
		gone := quiet > aliveAfterGrowth && (a.pump.Session().Status().OpenCalls == 0 || quiet > giveUpOnCalls)
		if gone != a.silent {
			a.silent = gone
			a.pump.Observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: adapters.Process{Known: gone}}, a.now())
		}
	}
}

func (a *actor) observeProcess(p adapters.Process) {
	a.proc = p
	if p.Alive && !a.saved.Process {
		a.saved.Process, a.changed = true, true
	}
	a.pump.Observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: p}, a.now())
}

// scannedAll says whether the first scans are over, so that what was not seen does not exist.
func (b *Bridge) scannedAll() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) == 0
}

// lastGrowth is when the session's logs last grew, as their files say.
func (a *actor) lastGrowth() time.Time {
	var last time.Time
	for _, path := range a.saved.Files {
		if fi, err := os.Stat(path); err == nil && fi.ModTime().After(last) {
			last = fi.ModTime()
		}
	}
	if now := a.b.o.Now(); last.After(now) {
		return now
	}
	return last
}

// aliveNow says whether the agent behind the session runs, as far as anyone can tell.
func (a *actor) aliveNow() bool {
	if a.proc.Known {
		return a.proc.Alive
	}
	return a.b.o.Now().Sub(a.grew) < aliveAfterGrowth
}

// glance keeps the presence true while nothing is read: what came in stays where it is.
func (a *actor) glance() {
	a.mu.Lock()
	gone := a.gone
	for _, o := range a.observed {
		if o.Kind == adapters.ObserveProcess {
			a.proc = o.Process
		}
	}
	for _, f := range a.dirty {
		if f.place.Kind == adapters.KindLog && f.event.ModTime.After(a.grew) {
			a.grew = f.event.ModTime
		}
	}
	a.mu.Unlock()
	if !gone && !a.saved.Driven {
		a.presence()
	}
}

// presence tells the uplink what the server should show.
func (a *actor) presence() {
	if a.info.MetadataHash == "" {
		return // not on the server
	}
	alive := a.aliveNow()
	a.b.presence(a.key, uplink.Presence{Alive: alive, Thinking: alive && a.pump.Session().Status().Thinking}, a.grew)
}

func (b *Bridge) presence(key string, p uplink.Presence, grew time.Time) {
	b.mu.Lock()
	l := b.alive[key]
	if l == nil {
		l = &life{}
		b.alive[key] = l
	}
	if grew.After(l.grew) {
		l.grew = grew
	}
	changed := !l.told || l.sent != p
	l.sent, l.told = p, true
	b.mu.Unlock()
	if changed {
		b.o.Uplink.Presence(key, p)
	}
}

// agePresence ends the presence of sessions that no process file covers and whose logs have been still for long.
func (b *Bridge) agePresence() {
	now := b.o.Now()
	var ended []string
	b.mu.Lock()
	for key, l := range b.alive {
		if !l.sent.Alive && b.actors[key] == nil {
			delete(b.alive, key)
			continue
		}
		if l.sent.Alive && b.actors[key] == nil && now.Sub(l.grew) > aliveAfterGrowth && !b.covered(key) {
			ended = append(ended, key)
		}
	}
	b.mu.Unlock()
	for _, key := range ended {
		b.presence(key, uplink.Presence{}, time.Time{})
	}
}

// covered says whether a live process file names the session. b.mu is held.
func (b *Bridge) covered(key string) bool {
	for _, pr := range b.procs {
		if pr.alive && pr.p.Name()+":"+pr.file.Session == key {
			return true
		}
	}
	return false
}

// correctPresence ends, after a start, what the server may still show as running although its agent has gone meanwhile.
func (b *Bridge) correctPresence() {
	all, err := b.o.Scope.Sessions()
	if err != nil {
		b.log.Error("reading sessions", "error", err)
		return
	}
	for _, s := range all {
		p, id := b.split(s.Key)
		if p == nil || s.Link.ServerID == "" || s.Link.Gone || !s.Link.Active {
			continue
		}
		b.mu.Lock()
		_, told := b.alive[s.Key]
		b.mu.Unlock()
		if told {
			continue
		}
		pr := b.processOf(p, id)
		grew := time.UnixMilli(s.Info.LastActive)
		alive := pr.Alive || !pr.Known && b.o.Now().Sub(grew) < aliveAfterGrowth
		b.presence(s.Key, uplink.Presence{Alive: alive}, grew)
	}
}

// locate finds a path's place below one of a provider's roots.
func (b *Bridge) locate(p adapters.Provider, path string) (file, bool) {
	for key, root := range b.roots {
		if b.provider[key] != p {
			continue
		}
		rel, err := filepath.Rel(root.Path, path)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		rel = filepath.ToSlash(rel)
		fi, err := os.Lstat(path)
		if err != nil {
			return file{}, false
		}
		place, ok := p.Locate(root, rel, func() (watch.Record, bool) {
			r, ok, err := watch.First(path, watch.Limits{})
			return r, ok && err == nil
		})
		e := watch.Event{Root: root.Name, RootPath: root.Path, Path: path, Rel: rel, Class: root.Classify(rel), Op: watch.Changed, Size: fi.Size(), ModTime: fi.ModTime()}
		return file{p: p, place: place, event: e}, ok
	}
	return file{}, false
}
