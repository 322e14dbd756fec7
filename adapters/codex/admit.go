package codex

import (
	"math"
	"slices"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// Admit implements adapters.Session.
func (s *session) Admit(it adapters.Item, now int64) bool {
	l := it.Value.(*line)
	if it.Place.Stream != adapters.Main {
		if st := s.c.S.Streams[it.Place.Stream]; st == nil || !st.Registered {
			return false
		}
	}
	if it.Stream != it.Place.Stream && !s.Parts[it.Stream] {
		return false
	}
	f := s.file(key(it.Place, it.Rec))
	if f.Layer == layerOpen && f.User && !f.Events && l.kind == kindResponse && l.sub == "message" && l.str("role") == "user" && userWaits(l) {
		s.fronts[it.Stream] = front{ts: math.MaxInt64}
		return false // whether an event repeats it is told by what follows
	}
	return s.admitOrder(it, l, f, now)
}

// maxAsks bounds how often one input makes the queues be asked again, should one of them never answer.
const maxAsks = 8

// A front is a record at the head of its queue that waits.
type front struct {
	ts, since int64
	ends      []string // unfinished children whose end it reports
	blind     bool     // it waits only because the heads of other queues were not looked at yet
}

// admitOrder keeps the threads of a session in the order of their times, which matters where several files are read at once, as
// after a restart. A record waits until the spawned threads were read as far and older records of other threads that wait were
// mapped; one that reports a child's end, until that end was read. Nothing waits longer than holdChild, or for files that
// have nothing left to read.
func (s *session) admitOrder(it adapters.Item, l *line, f *file, now int64) bool {
	was := s.fronts[it.Stream]
	delete(s.fronts, it.Stream)
	if l.ts == 0 || len(s.Kids) == 0 || f.Copied {
		return true
	}
	ends := s.unfinished(endedChildren(l))
	wait := len(ends) > 0 || s.mustWait(it, l.ts, now)
	blind := !wait && s.unknownFronts(it.Stream)
	if !wait && !blind {
		return true
	}
	if was.ts != l.ts {
		was = front{ts: l.ts, since: now}
	}
	if now >= was.since+holdChild {
		return true
	}
	was.ends, was.blind = ends, blind
	s.fronts[it.Stream] = was
	return false
}

func (s *session) mustWait(it adapters.Item, ts, now int64) bool {
	for queue, f := range s.fronts {
		if queue != it.Stream && f.ts < ts && f.blind {
			if s.asks < maxAsks {
				s.asks++
				s.c.Open(queue) // this queue's head is known now: ask again for the older one
			}
			return true
		}
		if queue != it.Stream && f.ts < ts && !(slices.Contains(f.ends, it.Place.Stream) && len(s.unfinished([]string{it.Place.Stream})) > 0) {
			return true
		}
	}
	for id, kid := range s.Kids {
		if id == it.Place.Stream {
			continue
		}
		th := s.Threads[id]
		switch unseen := th == nil || th.Arrived == 0; {
		case unseen && now < kid.At+holdChild, // its file is about to be found
			!unseen && !s.drained && th.Arrived < ts:
			return true
		}
	}
	return false
}

// unknownFronts says whether another queue that flows holds records of which the first was not looked at since the one before it
// was mapped.
func (s *session) unknownFronts(own string) bool {
	unknown := func(queue string) bool {
		_, known := s.fronts[queue]
		return !known && queue != own && s.c.Queued(queue) > 0
	}
	if unknown(adapters.Main) {
		return true
	}
	for part, open := range s.Parts {
		if open && unknown(part) {
			return true
		}
	}
	for id := range s.Kids {
		if st := s.c.S.Streams[id]; st != nil && st.Registered && unknown(id) {
			return true
		}
	}
	return false
}

// unfinished are those of the threads that are known, and of which the log was not yet read to the end of a run.
func (s *session) unfinished(ids []string) (out []string) {
	for _, id := range ids {
		if st := s.c.S.Streams[id]; st != nil && st.Registered && st.Seen != 0 && (st.Running || st.Runs == 0) {
			out = append(out, id)
		}
	}
	return out
}

// endedChildren lists the threads that a record reports as finished.
func endedChildren(l *line) (ids []string) {
	states := func(raw []byte) {
		adapters.ScanObject(raw, func(id, raw []byte) bool {
			if done := string(raw) != `"running"` && string(raw) != `"pending_init"`; done && isUUID(string(id)) {
				ids = append(ids, strings.ToLower(string(id)))
			}
			return true
		})
	}
	switch {
	case l.item == "SubAgentActivity":
		v := adapters.Fields(l.it, "kind", "agent_thread_id")
		if adapters.String(v[0]) == "completed" {
			ids = append(ids, strings.ToLower(adapters.String(v[1])))
		}
	case l.item == "CollabAgentToolCall":
		v := adapters.Fields(l.it, "tool", "agents_states")
		if adapters.String(v[0]) == "wait" {
			states(v[1])
		}
	case l.sub == "function_call_output":
		out := adapters.Fields(l.p, "output")[0]
		if strings.HasPrefix(string(out), `"{\"status\":{`) {
			states(adapters.Fields([]byte(adapters.String(out)), "status")[0])
		}
	}
	return ids
}
