package codex

import (
	"encoding/json"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

type session struct {
	*state
	c    *adapters.Core
	opts adapters.SessionOptions

	drained bool             // every file was read to its end since the latest record
	fronts  map[string]front // records that wait for older ones of other threads, by queue
	asks    int              // how often the queues were asked again since something moved

	// Of the record that is being mapped.
	stream string
	th     *thread
	f      *file
	l      *line
	ord    int // envelopes made of it so far
}

var _ adapters.Session = (*session)(nil)

func newSession(o adapters.SessionOptions, st *state) *session {
	if st.Files == nil {
		st.Files = map[string]*file{}
	}
	if st.Threads == nil {
		st.Threads = map[string]*thread{}
	}
	if st.Kids == nil {
		st.Kids = map[string]kid{}
	}
	if st.Closed == nil {
		st.Closed = map[string]report{}
	}
	if st.Waiting == nil {
		st.Waiting = map[string]bool{}
	}
	if st.Parts == nil {
		st.Parts = map[string]bool{}
	}
	o.Provider = Name
	c := adapters.NewCore(o, st.Core)
	st.Core = c.S
	c.S.Facts.Native = o.ID
	return &session{state: st, c: c, opts: o, fronts: map[string]front{}}
}

// partPrefix marks the queue of a later segment of a thread: it flows once the earlier ones were read.
const partPrefix = "segment:"

// key is the cursor key of a record's file.
func key(p adapters.Place, rec watch.Record) string {
	if p.Key != "" {
		return p.Key
	}
	return rec.Path
}

// Parse implements adapters.Session.
func (s *session) Parse(p adapters.Place, rec watch.Record, now int64) (adapters.Item, bool) {
	it := adapters.Item{Stream: p.Stream, Place: p, Rec: rec}
	if _, seg, ok := strings.Cut(p.Key, "_"); ok {
		it.Stream = partPrefix + p.Stream + "/" + seg
	}
	l, skip := parse(rec)
	if l == nil {
		s.c.Count(skip)
		return it, false
	}
	if st := s.c.S.Streams[p.Stream]; st != nil && st.Noise {
		s.c.Count("helper thread")
		return it, false
	}
	it.Value = l
	return it, true
}

// own is the id of the thread that a place belongs to.
func (s *session) own(p adapters.Place) string {
	if p.Stream != adapters.Main {
		return p.Stream
	}
	return s.opts.ID
}

// Map implements adapters.Session.
func (s *session) Map(it adapters.Item, now int64) {
	l := it.Value.(*line)
	k := key(it.Place, it.Rec)
	s.stream, s.l, s.ord, s.Now, s.asks = it.Place.Stream, l, 0, now, 0
	s.f, s.th = s.file(k), s.threadOf(s.stream)
	ident := s.f.identity(k, l, it.Rec.Offset)
	copied := s.f.step(l, s.own(it.Place))
	if !s.c.Fresh(ident) {
		s.c.Count("repeated record")
		return
	}
	if copied {
		if l.kind != kindMeta {
			s.c.Count("copied history")
			s.review(l.sub) // a fork may be made in order to review: its own turn begins after this
		}
		return
	}
	if s.f.Rewrit != 0 && l.ts != 0 && l.ts <= s.f.Rewrit {
		s.c.Count("rewritten record")
		return
	}
	ts := l.ts
	if ts == 0 {
		ts = s.th.First
	}
	s.c.Begin(ident, ts, now)
	switch l.kind {
	case kindContext:
		s.mapContext(l)
	case kindCompact:
		s.compacted()
	case kindResponse:
		s.mapResponse(l)
	case kindEvent:
		s.mapEvent(l)
	}
	s.th.At, s.th.TS, s.f.TS, s.Gone = now, max(s.th.TS, l.ts), max(s.f.TS, l.ts), 0
	s.link()
}

// next numbers the envelopes of a record.
func (s *session) next() int {
	s.ord++
	return s.ord - 1
}

// mapContext reads what a turn runs with.
func (s *session) mapContext(l *line) {
	v := adapters.Fields(l.p, "cwd", "model")
	if cwd := adapters.String(v[0]); cwd != "" {
		s.th.Cwd = cwd
	}
	if s.stream != adapters.Main {
		return
	}
	f := &s.c.S.Facts
	if s.th.Cwd != "" {
		s.set(&f.LastCwd, s.th.Cwd)
		if f.Cwd == "" {
			s.set(&f.Cwd, s.th.Cwd)
		}
	}
	s.set(&f.Model, adapters.String(v[1]))
}

// set changes a fact.
func (s *session) set(dst *string, v string) {
	if v != "" && v != *dst {
		*dst = v
		s.c.Changed()
	}
}

// Reset implements adapters.Session.
func (s *session) Reset(p adapters.Place) {
	clear(s.fronts)
	// The structure is read again; what was mapped is known by its identity.
	if f := s.Files[p.Key]; f != nil {
		f.Metas, f.Contexts, f.Ord, f.Tasks, f.Copied, f.Own = 0, 0, 0, false, false, false
	}
}

// Take implements adapters.Session.
func (s *session) Take() adapters.Output { return s.c.Take() }

// Save implements adapters.Session.
func (s *session) Save() ([]byte, error) { return json.Marshal(s.state) }

// Status implements adapters.Session. A held call is an open one: the agent works.
func (s *session) Status() adapters.Status {
	st := s.c.Status()
	for _, th := range s.Threads {
		st.OpenCalls += len(th.Pending)
	}
	return st
}

// Facts implements adapters.Session.
func (s *session) Facts() adapters.Facts {
	f := s.c.S.Facts
	f.Title = s.Name
	if f.Title == "" {
		f.Title = s.Prompt
	}
	return f
}

// setName takes the thread's name, the latest one wins.
func (s *session) setName(name string) {
	name = protocol.Truncate(protocol.CleanText(name), maxTitle)
	if name == "" || name == s.Name {
		return
	}
	s.Name = name
	s.titled()
}

func (s *session) setPrompt(text string) {
	if s.Prompt != "" {
		return
	}
	if s.Prompt = protocol.Truncate(protocol.CleanText(text), maxTitle); s.Prompt != "" {
		s.titled()
	}
}

func (s *session) titled() {
	s.c.S.Facts.TitleAt = max(s.Now, s.c.S.Facts.TitleAt)
	s.c.Changed()
}
