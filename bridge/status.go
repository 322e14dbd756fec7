package bridge

import (
	"os"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/control"
)

// view is a session as its goroutine last described it.
type view struct {
	status  adapters.Status
	dir     string
	state   string
	files   []control.FileStatus
	orphans int
	agents  int
	grew    time.Time
}

// show refreshes the session's view.
func (a *actor) show() {
	v := view{grew: a.grew}
	if a.pump != nil {
		v.status = a.pump.Session().Status()
		v.dir = a.pump.Session().Facts().Cwd
		v.orphans, v.agents = a.pump.Orphans()
	}
	switch {
	case a.gone:
		v.state = control.SessionGone
	case a.saved.Driven:
		v.state = control.SessionSkipped
	case a.saved.Decided && !a.saved.Allowed:
		v.state = control.SessionWithheld
	case a.b.o.Now().Sub(a.grew) < aliveAfterGrowth || a.proc.Alive:
		v.state = control.SessionActive
	default:
		v.state = control.SessionIdle
	}
	if a.proc.Known && !a.proc.Alive && v.state == control.SessionActive {
		v.state = control.SessionEnded
	}
	for _, key := range sortedKeys(a.saved.Files) {
		path := a.saved.Files[key]
		fs := control.FileStatus{Path: path}
		if c, err := a.cursor(key); err == nil {
			fs.Offset = c.Offset
		}
		if fi, err := os.Stat(path); err == nil {
			fs.Size = fi.Size()
			if len(path) > 4 && path[len(path)-4:] == ".zst" {
				fs.Size = max(fs.Offset, 0) // offsets count decompressed bytes
			}
		}
		v.files = append(v.files, fs)
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
			ID: a.id, Provider: a.p.Name(), Dir: v.dir, State: v.state, Turn: turn,
			OpenCalls: v.status.OpenCalls, Subagents: v.status.Running, Orphans: v.orphans, Files: v.files,
		}
		if !v.grew.IsZero() {
			g := v.grew
			s.LastRecord = &g
		}
		out[a.key] = s
	}
	return out
}

// Orphans sums up the records that wait for a parent.
func (b *Bridge) Orphans() control.OrphanStatus {
	o := control.OrphanStatus{Bytes: b.budget.Used()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.actors {
		a.mu.Lock()
		o.Messages += a.view.orphans
		o.Agents += a.view.agents
		a.mu.Unlock()
	}
	return o
}
