package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
)

// gateBytes is how much may wait in memory while it is not known whether a session may be shown at all.
const gateBytes = 4 << 20

// mayCommit says whether the session's data may leave this goroutine: only once its working directory is known and allowed,
// and once it had time to prove to be driven by Happy itself. Otherwise it says how long to wait.
func (a *actor) mayCommit(now time.Time) (bool, time.Duration) {
	if a.saved.Decided || len(a.envs) == 0 {
		return true, 0
	}
	f := a.pump.Session().Facts()
	if f.HappyDriven {
		a.decide(false, true)
		return true, 0
	}
	age := now.Sub(a.born)
	if f.Cwd == "" && age < a.b.o.Newborn {
		return false, a.b.o.Newborn - age
	}
	if f.Cwd == "" && a.filtered() {
		return false, 0 // its directory decides; it is read again when the log grows
	}
	if f.Cwd != "" && (!a.b.o.Projects.Included(f.Cwd) || a.b.o.Projects.Excluded(f.Cwd)) {
		a.decide(false, false)
		return true, 0
	}
	if driven, sure := a.driven(f.Entrypoint); driven {
		a.decide(false, true)
		return true, 0
	} else if !sure && now.Sub(a.grew) < a.b.o.Newborn && age < a.b.o.Newborn {
		return false, a.b.o.Newborn - age
	}
	a.decide(true, false)
	return true, 0
}

// filtered says whether the configuration lets only some directories through.
func (a *actor) filtered() bool {
	return len(a.b.o.Projects.Include) > 0 || len(a.b.o.Projects.Exclude) > 0
}

func (a *actor) decide(allowed, driven bool) {
	a.saved.Decided, a.saved.Allowed, a.saved.Driven = true, allowed, driven
	switch {
	case driven:
		a.b.log.Info("a session that Happy itself drives is not mirrored a second time", "session", a.key)
	case !allowed:
		a.b.log.Info("a session's directory is not included", "session", a.key)
	}
}

// gated says whether too much waits for that decision to read on.
func (a *actor) gated() bool { return !a.saved.Decided && a.envBytes > gateBytes }

// flush commits what was made. It returns how long to wait where it must not yet.
func (a *actor) flush(ctx context.Context) time.Duration {
	ok, wait := a.mayCommit(a.b.o.Now())
	if !ok {
		return wait
	}
	a.commit(ctx)
	return 0
}

// commit makes the batch durable in one transaction: cursors, state, identities, sealed messages. It is tried again until the
// disk takes it or ctx ends; meanwhile nothing more is read.
func (a *actor) commit(ctx context.Context) {
	if len(a.envs) == 0 && len(a.cursors) == 0 && len(a.seen.added) == 0 && !a.stateDue() {
		return
	}
	c, shown, err := a.batch()
	if err != nil {
		a.b.log.Error("sealing a batch; the session is left alone until the next start", "session", a.key, "error", err)
		a.broken = true
		return
	}
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		err := a.b.o.Scope.Commit(ctx, c)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		a.b.log.Error("the state cannot be stored; trying again, nothing is lost", "session", a.key, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	a.saved.Pump, a.changed = nil, false
	a.storeFiles(ctx)
	if c.Info != nil {
		a.info = *c.Info
	}
	a.seen.added, a.envs, a.envBytes = nil, nil, 0
	clear(a.cursors)
	if a.streamed != "" {
		_ = os.Remove(a.streamed) // all of it is in the outbox; a leftover would be met at its end
		a.streamed = ""
	}
	for _, e := range shown {
		a.b.o.Publish(a.id, a.p.Name(), e)
	}
	if len(c.Messages) > 0 || c.Info != nil {
		a.b.o.Uplink.Wake(a.key)
	}
}

// stateDue says whether something besides records changed that the server or a restart must know.
func (a *actor) stateDue() bool {
	if a.changed || a.info.MetadataHash == "" {
		return a.changed // without a hash it is not on the server
	}
	_, hash, err := a.metadata()
	return err == nil && hash != a.info.MetadataHash || a.info.Open != a.waits()
}

// batch seals what there is.
func (a *actor) batch() (store.Commit, []protocol.Envelope, error) {
	c := store.Commit{Session: a.key, Seen: a.seen.added, Cursors: map[string][]byte{}}
	for k, v := range a.cursors {
		c.Cursors[k] = v
	}
	var err error
	if a.saved.Pump, err = a.pump.Save(); err != nil {
		return c, nil, err
	}
	plain, err := json.Marshal(a.saved)
	if err != nil {
		return c, nil, fmt.Errorf("encode state: %w", err)
	}
	if c.State, err = a.b.o.Account.State().Seal(plain); err != nil {
		return c, nil, fmt.Errorf("seal state: %w", err)
	}
	if a.saved.Decided && !a.saved.Allowed {
		a.b.count("withheld envelope", int64(len(a.envs)))
		return c, nil, nil
	}
	if len(a.envs) == 0 && a.info.MetadataHash == "" {
		return c, nil, nil
	}
	keys, err := a.b.o.Account.Session(a.info.Tag)
	if err != nil {
		return c, nil, fmt.Errorf("derive session key: %w", err)
	}
	shown := make([]protocol.Envelope, 0, len(a.envs))
	for _, e := range a.envs {
		plain, err := protocol.Wrap(e)
		if err != nil {
			// What a peer would refuse is never queued; it would block its session for nothing.
			a.b.count("envelope that the protocol refuses", 1)
			a.b.log.Error("an envelope is invalid and was left out", "session", a.key, "kind", string(e.Ev.T), "error", err)
			continue
		}
		sealed, err := keys.Sealer.Seal(plain)
		if err != nil {
			return c, nil, fmt.Errorf("seal envelope: %w", err)
		}
		c.Messages = append(c.Messages, store.Message{LocalID: e.ID, Turn: e.Turn, Kind: string(e.Ev.T), Sealed: sealed})
		shown = append(shown, e)
	}
	meta, hash, err := a.metadata()
	if err != nil {
		return c, nil, err
	}
	open := a.waits()
	stale := a.now()-a.info.LastActive > int64(time.Minute/time.Millisecond)
	if hash != a.info.MetadataHash || open != a.info.Open || stale && len(c.Messages) > 0 {
		info := a.info
		info.Wrapped, info.Open, info.LastActive = keys.Wrapped, open, a.now()
		if hash != a.info.MetadataHash {
			if info.Metadata, err = keys.Sealer.Seal(meta); err != nil {
				return c, nil, fmt.Errorf("seal metadata: %w", err)
			}
			info.MetadataHash = hash
		}
		c.Info = &info
	}
	return c, shown, nil
}

// metadata is what makes the app's list right, as JSON, and a hash of it.
func (a *actor) metadata() (plain []byte, hash string, err error) {
	f := a.pump.Session().Facts()
	m := a.b.o.Machine
	path := f.Cwd
	if path == "" {
		path = m.Home
	}
	meta := map[string]any{
		"path": path, "host": m.Host, "homeDir": m.Home, "os": m.OS, "flavor": a.p.Name(),
		"startedBy": "terminal", "lifecycleState": "running",
	}
	set := func(k, v string) {
		if v != "" {
			meta[k] = v
		}
	}
	set("machineId", m.ID)
	set("happyHomeDir", m.HappyHome)
	set("version", m.Version)
	set("gitBranch", f.GitBranch)
	if a.p.Name() == "codex" {
		set("codexThreadId", f.Native)
	} else {
		set("claudeSessionId", f.Native)
	}
	if f.Title != "" {
		meta["summary"] = map[string]any{"text": f.Title, "updatedAt": max(f.TitleAt, 1)}
	}
	if plain, err = json.Marshal(meta); err != nil {
		return nil, "", fmt.Errorf("encode metadata: %w", err)
	}
	h := fnv.New128a()
	_, _ = h.Write(plain)
	return plain, fmt.Sprintf("%x", h.Sum(nil)), nil
}

// startOver gives the session another tag and reads all its logs again: the server holds a key under the old tag that is not
// ours, and no other client could read what we would send there.
func (a *actor) startOver(ctx context.Context, dirty map[string]file) {
	info := store.SessionInfo{Generation: a.info.Generation + 1}
	info.Tag = a.b.o.Account.Tag(a.p.Name(), a.id, info.Generation)
	c := store.Commit{Session: a.key, Info: &info, ClearSeen: true, DropOutbox: true, State: []byte{}, Cursors: map[string][]byte{}}
	for key := range a.saved.Files {
		c.Cursors[key] = nil
	}
	if err := a.b.o.Scope.Commit(ctx, c); err != nil {
		a.b.log.Error("starting a session over", "session", a.key, "error", err)
		a.mu.Lock()
		a.regenerate = true // in a while again: until then nothing of it can be sent
		a.mu.Unlock()
		return
	}
	a.b.log.Warn("the server holds a foreign key for a session; it is sent again under another tag", "session", a.key)
	a.pump.Close()
	files := a.saved.Files
	a.saved = actorState{Files: map[string]string{}, Decided: a.saved.Decided, Allowed: a.saved.Allowed, Driven: a.saved.Driven, Form: a.saved.Form, Process: a.saved.Process}
	a.info, a.link = info, store.Link{}
	a.seen = &seenSet{all: map[uint64]struct{}{}}
	a.envs, a.envBytes = nil, 0
	clear(a.cursors)
	if err := a.openPump(); err != nil {
		a.broken = true
		return
	}
	for _, path := range files {
		if _, there := dirty[path]; !there {
			if f, ok := a.b.locate(a.p, path); ok {
				dirty[path] = f
			}
		}
	}
}
