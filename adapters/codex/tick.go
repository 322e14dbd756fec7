package codex

import (
	"sort"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// Observe implements adapters.Session.
func (s *session) Observe(o adapters.Observation, now int64) {
	s.c.SetNow(now)
	s.Now = now
	switch o.Kind {
	case adapters.ObserveProcess:
		switch {
		case o.Process.Alive:
			s.Gone = 0
		case s.Gone == 0:
			s.Gone = max(now, 1)
		}
	case adapters.ObserveTitle:
		s.setName(string(o.Data))
	case adapters.ObserveEnd:
		s.drained = true
		s.decideAll()
		for s.openParts() {
		}
		s.finish()
	}
	s.link()
}

// decideAll settles files in which only a prompt was found: no event will repeat it.
func (s *session) decideAll() {
	for _, f := range s.Files {
		if f.Layer == layerOpen && f.User && !f.Events {
			f.Layer = layerResponses
		}
	}
}

// openParts lets the next later segment of the thread flow.
func (s *session) openParts() bool {
	var parts []string
	for k, open := range s.Parts {
		if !open {
			parts = append(parts, k)
		}
	}
	if len(parts) == 0 {
		return false
	}
	sort.Strings(parts)
	s.Parts[parts[0]] = true
	s.c.Open(parts[0])
	return true
}

// Tick implements adapters.Session.
func (s *session) Tick(now int64, drained bool) {
	s.c.SetNow(now)
	s.Now, s.drained, s.asks = now, drained, 0
	s.link()
	if !drained || s.openParts() {
		return
	}
	s.adopt(false)
	for _, key := range s.c.Running() {
		if t := s.stopAt(key); t != 0 && now >= t {
			s.at(key, func() { s.endTurn(protocol.StatusCompleted) })
		}
	}
	if t := s.lazyAt(adapters.Main); t != 0 && now >= t {
		s.at(adapters.Main, func() { s.endTurn(s.closing(protocol.StatusCancelled)) })
	}
	if t := s.goneAt(); t != 0 && now >= t {
		s.finish()
	}
}

// at runs fn on a thread outside of any record.
func (s *session) at(stream string, fn func()) {
	s.stream, s.th, s.l, s.ord = stream, s.threadOf(stream), nil, 0
	fn()
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
	at(s.lazyAt(adapters.Main))
	at(s.goneAt())
	for _, f := range s.fronts {
		if f.since != 0 {
			at(f.since + holdChild)
		}
	}
	for _, open := range s.Parts {
		if !open {
			at(s.Now + 100)
		}
	}
	return next
}

// stopAt is when a running child stops without a word of its own log: another agent closed it, or its version logs no ends.
func (s *session) stopAt(key string) int64 {
	if s.c.Queued(key) > 0 {
		return 0
	}
	th := s.threadOf(key)
	if r, ok := s.Closed[key]; ok && r.TS >= th.TS {
		return max(r.At, th.At) + graceClose
	}
	return s.lazyAt(key)
}

// lazyAt is when a turn that nothing announced ends after the agent's last words.
func (s *session) lazyAt(stream string) int64 {
	th := s.Threads[stream]
	if th == nil || !th.Lazy || !th.Texted || !s.isOpen(stream) || s.c.OpenCalls(stream) > 0 || len(th.Pending) > 0 || s.c.Queued(stream) > 0 {
		return 0
	}
	return th.At + idleLazy
}

// goneAt is when the death of the process ends everything.
func (s *session) goneAt() int64 {
	if s.Gone == 0 || s.c.S.Turn == nil && len(s.c.Running()) == 0 && len(s.Waiting) == 0 {
		return 0
	}
	return s.Gone + graceGone
}

// finish closes what is open because nothing will follow.
func (s *session) finish() {
	if s.adopt(true) {
		return // the records of those threads come first
	}
	for _, key := range s.c.Running() {
		s.at(key, func() { s.endTurn(protocol.StatusFailed) })
	}
	s.at(adapters.Main, func() { s.endTurn(s.closing(protocol.StatusFailed)) })
	s.Gone = 0
}
