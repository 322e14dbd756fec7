package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/control"
)

// view is a session as its goroutine last described it.
type view struct {
	status adapters.Status
	dir    string
	state  string
	files  map[string]int64 // offsets by path
	grew   time.Time
}

// orphans are a session's records that wait for a parent, and the subagents they belong to.
type orphans struct {
	Records int `json:"r"`
	Agents  int `json:"a"`
}

// orphansValue is the store's name for the counts of all sessions.
const orphansValue = "orphans"

func (b *Bridge) loadOrphans() error {
	raw, ok, err := b.o.Scope.Value(orphansValue)
	if err != nil || !ok {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = json.Unmarshal(raw, &b.orphans) // only a count for people
	if b.orphans == nil {
		b.orphans = map[string]orphans{}
	}
	return nil
}

// noteOrphans keeps the count of a session where everybody sees it, also when the session is not loaded.
func (a *actor) noteOrphans(ctx context.Context) {
	var o orphans
	o.Records, o.Agents = a.pump.Orphans()
	b := a.b
	b.mu.Lock()
	if b.orphans[a.key] == o {
		b.mu.Unlock()
		return
	}
	if b.orphans[a.key] = o; o == (orphans{}) {
		delete(b.orphans, a.key)
	}
	raw, err := json.Marshal(b.orphans)
	b.mu.Unlock()
	if err == nil {
		err = b.o.Scope.SetValue(ctx, orphansValue, raw)
	}
	if err != nil && ctx.Err() == nil {
		b.log.Error("storing the count of orphans", "error", err)
	}
}

// show refreshes the session's view.
func (a *actor) show() {
	v := view{grew: a.grew, files: make(map[string]int64, len(a.offsets))}
	if a.pump != nil {
		v.status = a.pump.Session().Status()
		v.status.Counts = maps.Clone(v.status.Counts) // the mapper goes on counting while others read
		v.dir = a.pump.Session().Facts().Cwd
	}
	for path, off := range a.offsets {
		v.files[path] = off
	}
	switch {
	case a.isGone():
		v.state = control.SessionGone
	case a.saved.Driven:
		v.state = control.SessionSkipped
	case a.saved.Decided && !a.saved.Allowed:
		v.state = control.SessionWithheld
	case a.proc.Known && !a.proc.Alive:
		v.state = control.SessionEnded
	case a.aliveNow():
		v.state = control.SessionActive
	default:
		v.state = control.SessionIdle
	}
	a.mu.Lock()
	a.view = v
	a.mu.Unlock()
}

// Sessions describes the sessions that are loaded, by key.
func (b *Bridge) Sessions() map[string]control.SessionStatus {
	b.mu.Lock()
	actors := make([]*actor, 0, len(b.actors))
	for _, a := range b.actors {
		actors = append(actors, a)
	}
	b.mu.Unlock()
	out := map[string]control.SessionStatus{}
	for _, a := range actors {
		a.mu.Lock()
		v := a.view
		a.mu.Unlock()
		turn := "closed"
		if v.status.Turn == "open" {
			turn = "open"
		}
		s := control.SessionStatus{
			ID: a.id, Provider: a.name, Dir: v.dir, State: v.state, Turn: turn,
			OpenCalls: v.status.OpenCalls, Subagents: v.status.Running, Files: fileStatus(v.files),
		}
		if !v.grew.IsZero() {
			g := v.grew
			s.LastRecord = &g
		}
		out[a.key] = s
	}
	return out
}

// fileStatus compares what was read with what is there.
func fileStatus(offsets map[string]int64) []control.FileStatus {
	out := make([]control.FileStatus, 0, len(offsets))
	for _, path := range sortedKeys(offsets) {
		f := control.FileStatus{Path: path, Offset: offsets[path]}
		if fi, err := os.Stat(path); err == nil {
			f.Size = fi.Size()
		}
		if strings.HasSuffix(path, ".zst") {
			f.Size = f.Offset // offsets count decompressed bytes
		}
		out = append(out, f)
	}
	return out
}

// Orphans sums up the records that wait for a parent.
func (b *Bridge) Orphans() control.OrphanStatus {
	o := control.OrphanStatus{Bytes: b.budget.Used()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.orphans {
		o.Messages += n.Records
		o.Agents += n.Agents
	}
	return o
}

// OrphansOf is the number of records of one session that wait for a parent.
func (b *Bridge) OrphansOf(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.orphans[key].Records
}

// Left counts the records of the loaded sessions that mean nothing to a mapper, by provider and type.
func (b *Bridge) Left() map[string]int64 {
	out := map[string]int64{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.actors {
		a.mu.Lock()
		for what, n := range a.view.status.Counts {
			out[a.name+": "+what] += int64(n)
		}
		a.mu.Unlock()
	}
	return out
}
