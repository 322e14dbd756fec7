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
	s.link(now)
	if !drained {
		return
	}
	s.adopt(false)
	for _, key := range s.c.Running() {
		if t := s.stopAt(key); t != 0 && now >= t {
			s.c.Stop(key)
		}
	}
	if s.c.Queued(adapters.Main) > 0 {
		return // what waits may go on with the turn
	}
	if p := s.Pending; p != nil && !p.Held && now >= p.At+p.Grace {
		s.endTurn(p.Status)
	}
	if t := s.idleAt(); t != 0 && now >= t {
		s.endTurn(s.closingStatus(protocol.StatusCancelled))
	}
	if t := s.goneAt(); t != 0 && now >= t {
		s.finish(now)
	}
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
		if p := s.Pending; p != nil && !p.Held {
			at(p.At + p.Grace)
		}
		at(s.idleAt())
		at(s.goneAt())
	}
	for _, sp := range s.c.S.Spawns {
		if sp.Hold != 0 && !sp.Closed {
			at(sp.Hold + holdChild)
		}
		if sp.Child == "" && s.waitsFor(sp) {
			at(sp.At + settleGroup)
			at(sp.At + waitSiblings)
		}
	}
	return next
}

func (s *session) waitsFor(sp *adapters.Spawn) bool {
	for _, st := range s.c.S.Streams {
		if !st.Registered && !st.Noise && st.Seen != 0 && st.Prompt != "" && st.Prompt == sp.Prompt {
			return true
		}
	}
	return false
}

// stopAt is when a running subagent's reported end becomes its stop: once its own log had time to be written. 0 = not yet reported.
func (s *session) stopAt(key string) int64 {
	st := s.c.S.Streams[key]
	if s.c.Queued(key) > 0 {
		return 0
	}
	if inWorkflow := strings.HasPrefix(st.Parent, workflowPrefix); !st.Done() && !(inWorkflow && st.Terminal == adapters.TerminalSure) {
		return 0 // an agent of a workflow has nobody who reports its end
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
	return st.At + settleNever
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
	if !s.Proc.Known || s.Proc.Alive || (s.c.S.Turn == nil && len(s.c.Running()) == 0 && !s.orphans()) {
		return 0
	}
	return max(s.ProcAt, s.LastAt) + graceGone
}

func (s *session) orphans() bool {
	for _, st := range s.c.S.Streams {
		if !st.Registered && !st.Noise && st.Seen != 0 && st.Target != "" {
			return true
		}
	}
	return false
}

// finish closes what is open because nothing will follow.
func (s *session) finish(now int64) {
	if s.adopt(true) {
		return // the records of those children come first
	}
	for _, key := range s.c.Running() {
		s.c.EndNow(key)
		s.c.Stop(key)
	}
	status := protocol.StatusFailed
	if s.c.S.Turn != nil {
		status = s.closingStatus(status)
	}
	s.endTurn(status)
}

// adopt registers children whose spawning call can no longer come, with a card of our own: the process is dead, or the main
// thread has moved on to a later prompt. It says whether there were any.
func (s *session) adopt(dead bool) bool {
	var keys []string
	for key, st := range s.c.S.Streams {
		if !st.Registered && !st.Noise && st.Seen != 0 && st.Target != "" {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	any := false
	for _, key := range keys {
		st := s.c.S.Streams[key]
		if p := s.c.S.Streams[st.Named]; st.Named != "" && (p == nil || !p.Registered) {
			continue
		}
		if !dead && !s.movedOn(st) {
			continue
		}
		s.c.LinkCard(key, st.Named, st.Target, card(st))
		any = true
	}
	return any
}

func card(st *adapters.Stream) map[string]any {
	return map[string]any{"description": st.Title, "subagent_type": st.Kind}
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
