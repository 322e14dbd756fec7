package claude

import (
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// Tick implements adapters.Session.
func (s *session) Tick(now int64, drained bool) {
	s.c.SetNow(now)
	s.drained = drained
	s.link(now)
	if !drained {
		return
	}
	s.adopt(false)
	for _, key := range s.c.Running() {
		if t := s.stopAt(key); t != 0 && now >= t {
			s.stop(key)
			s.dropInline(key)
		}
	}
	if s.c.Queued(adapters.Main) > 0 {
		return // what waits may go on with the turn
	}
	if t := s.pendingAt(); t != 0 && now >= t {
		s.endTurn(s.Pending.Status)
	}
	if t := s.idleAt(); t != 0 && now >= t {
		status := protocol.StatusCancelled
		if s.Died {
			status = protocol.StatusFailed
		}
		s.endTurn(s.closingStatus(status))
	}
	if t := s.goneAt(); t != 0 && now >= t {
		s.finish()
	}
}

// pendingAt is when an announced end is proved by nothing having followed. A running tool's result may still continue a turn
// whose API request failed.
func (s *session) pendingAt() int64 {
	p := s.Pending
	if p == nil || p.Held || p.Status == protocol.StatusFailed && s.c.OpenCalls(adapters.Main) > 0 {
		return 0
	}
	return p.At + p.Grace
}

// Wake implements adapters.Session.
func (s *session) Wake() int64 {
	next := int64(0)
	at := func(t int64) {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	for _, key := range s.c.Running() {
		at(s.stopAt(key))
	}
	if s.c.Queued(adapters.Main) == 0 {
		at(s.pendingAt())
		at(s.idleAt())
		at(s.goneAt())
	}
	// What time registers or releases was done at the last tick, if it could be: only what is still to come matters.
	future := func(t int64) {
		if t > s.c.Now() {
			at(t)
		}
	}
	future(s.linkAt)
	for _, sp := range s.c.S.Spawns {
		if sp.Hold != 0 && !sp.Closed {
			future(s.holdEnd(sp))
		}
	}
	return next
}

// stopAt is when a running subagent's reported end becomes its stop: once its own log had time to be written. 0 = not yet reported.
func (s *session) stopAt(key string) int64 {
	st := s.c.S.Streams[key]
	if s.c.Queued(key) > 0 {
		return 0
	}
	if !s.ended(st) {
		return 0
	}
	if strings.HasPrefix(key, workflowPrefix) {
		for _, kid := range s.c.S.Streams {
			if kid.Parent == key && kid.Running {
				return 0
			}
		}
	}
	switch st.Terminal {
	case adapters.TerminalSure:
		return st.At + settleSure
	case adapters.TerminalWeak:
		return st.At + settleWeak
	}
	return max(st.At, st.EndAt) + settleNever // it may have been silent for long before its last words
}

// ended says whether a subagent's current run is over as far as anyone reports.
func (s *session) ended(st *adapters.Stream) bool {
	switch {
	case st.Done(), st.Told == adapters.ToldStopped:
		return true
	case st.Terminal != adapters.TerminalSure:
		return false
	}
	// The sidecar of an earlier run may still say finished, so that it counts only beside the log's own word. An agent of a
	// workflow has nobody who reports its end.
	return st.Told == adapters.ToldFinished || strings.HasPrefix(st.Parent, workflowPrefix)
}

// idleAt is when the process's word "idle" closes an open turn: it is later than the last record, and that had time to be written.
func (s *session) idleAt() int64 {
	if s.c.S.Turn == nil || !s.Proc.Known || !s.Proc.Alive || s.Proc.Status != "idle" || s.Proc.StatusAt < s.LastTS {
		return 0
	}
	return max(s.Proc.StatusAt, s.LastAt) + graceIdle
}

// goneAt is when a dead process ends everything.
func (s *session) goneAt() int64 {
	if !s.Proc.Known || s.Proc.Alive || (s.c.S.Turn == nil && len(s.c.Running()) == 0 && len(s.adoptable(true)) == 0) {
		return 0
	}
	return max(s.ProcAt, s.LastAt) + graceGone
}

// finish closes what is open because nothing will follow.
func (s *session) finish() {
	if len(s.adoptable(true)) == 0 || s.c.S.Turn != nil {
		for _, key := range s.c.Running() {
			s.c.EndNow(key)
			s.stop(key)
			s.dropInline(key)
		}
		s.endTurn(s.closingStatus(protocol.StatusFailed))
	}
	s.adopt(true) // their records flow now; what they open is closed when this is called again
}

// adopt registers children whose spawning call can no longer come, with a card of our own.
func (s *session) adopt(dead bool) {
	for _, a := range s.adoptable(dead) {
		st := s.c.S.Streams[a.key]
		s.c.LinkCard(a.key, a.parent, st.Target, card(st))
		delete(s.waiting, a.key)
	}
}

func card(st *adapters.Stream) map[string]any {
	return map[string]any{"description": st.Title, "subagent_type": st.Kind}
}

// An orphan is a child that waits for a call, and the parent below which it is shown without one.
type orphan struct{ key, parent string }

// adoptable lists the children that their sidecar gives a call which can no longer come: the process is dead, the main thread has
// moved on to a later prompt, or the agent that made the call has ended. One below the main thread waits until no turn is open,
// so that the turn of its card never depends on when this is asked.
func (s *session) adoptable(dead bool) []orphan {
	var out []orphan
	for key := range s.waiting {
		st := s.c.S.Streams[key]
		if st == nil || st.Registered || st.Noise || st.Target == "" || st.Hint != "" {
			continue
		}
		parent := st.Named
		p := s.c.S.Streams[parent]
		ok := false
		switch {
		case parent == "":
			ok = dead || st.Depth <= 1 && s.movedOn(st) // deeper ones do not say below whom
		case p != nil && p.Registered:
			ok = dead || p.Runs > 0 && !p.Running && s.c.Queued(parent) == 0
		case p != nil && p.Target != "" && s.waiting[parent]:
			// Its parent is adopted first.
		default:
			parent, ok = "", dead
		}
		if ok && (parent != "" || dead || s.c.S.Turn == nil) {
			out = append(out, orphan{key, parent})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].key < out[j].key })
	return out
}

// movedOn says whether the main thread has gone past the prompt that a child belongs to.
func (s *session) movedOn(st *adapters.Stream) bool {
	if st.Key == "" {
		return false
	}
	for i, p := range s.Prompts {
		if p == st.Key {
			return i < len(s.Prompts)-1
		}
	}
	return false
}
