package claude

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// Graces and limits, in milliseconds. A log proves the end of a turn only after nothing that continues it followed: stop hooks,
// automatic continuations and lost connections all go on within moments.
const (
	graceStop    = 2000   // after a final stop reason, before the turn is completed
	graceError   = 3000   // after an API error: a running tool's result may still continue the turn
	graceGone    = 2000   // after the process ended: its last lines come up to 0.3 s later
	graceIdle    = 3000   // after the process says idle: what it wrote before may still be on its way to the disk
	holdChild    = 2000   // how long a parent waits for the end of a foreground child
	holdDeep     = 120000 // how long it waits for records of the child that were read but wait for its own children
	settleSure   = 300    // after a child's own final message
	settleWeak   = 1000   // after a message that may be final (old versions log no stop reason)
	settleNever  = 2000   // when only others say that the child ended
	settleGroup  = 1000   // after which no more calls of one API message are expected
	waitSiblings = 2000   // for children with equal prompts to show up
	waitMeta     = 500    // for the sidecar of a child, which names its parent
	maxPrompts   = 64     // remembered prompts
	maxTitle     = 120    // characters of a title
	maxSide      = 20000  // remembered records of running inline sidechains
	maxNth       = 1024   // remembered records without uuid
	maxNames     = 1024   // remembered agents, runs and teammates each
)

// state is everything a session's mapping depends on.
type state struct {
	Core     *adapters.State   `json:"core"`
	Pending  *pending          `json:"pending,omitempty"`
	Side     map[string]string `json:"side,omitempty"` // inline sidechains (1.x): record uuid -> stream
	LastSide string            `json:"lastSide,omitempty"`
	Prompt   string            `json:"prompt,omitempty"`  // promptId of the main thread's current run
	Prompts  []string          `json:"prompts,omitempty"` // the latest ones, in order
	Queue    []string          `json:"queue,omitempty"`   // prompts typed while the agent works, not yet taken up
	Absorbed string            `json:"absorbed,omitempty"`
	Agents   map[string]string `json:"agents,omitempty"` // agent id -> spawning call, as results and progress records say
	Runs     map[string]string `json:"runs,omitempty"`   // workflow run id -> Workflow call
	Mates    map[string]string `json:"mates,omitempty"`  // teammate's name -> agent id
	Nth      map[string]int    `json:"nth,omitempty"`    // occurrences of records without uuid, the latest ones
	NthOrder []string          `json:"nthOrder,omitempty"`
	Version  string            `json:"version,omitempty"` // of the client that wrote the latest main record
	Plan     bool              `json:"plan,omitempty"`    // plan mode is on
	Usage    *usage            `json:"usage,omitempty"`
	LastTS   int64             `json:"lastTs,omitempty"` // timestamp of the latest main record
	LastAt   int64             `json:"lastAt,omitempty"` // clock when it was mapped
	LastText bool              `json:"lastText,omitempty"`
	Proc     adapters.Process  `json:"proc,omitempty"`
	ProcAt   int64             `json:"procAt,omitempty"`
	Died     bool              `json:"died,omitempty"`   // the process that opened the turn is gone
	Titles   [3]string         `json:"titles,omitempty"` // custom, AI, first prompt
}

// pending is an end of the turn that the log has announced but not yet proved.
type pending struct {
	Status protocol.Status `json:"s"`
	TS     int64           `json:"ts"` // timestamp of the record that announced it
	At     int64           `json:"at"` // clock when it was mapped
	Grace  int64           `json:"g"`  // ms
	Msg    string          `json:"m"`  // API message: its further blocks announce the same end again
	Held   bool            `json:"h"`  // the harness goes on by itself: only a new prompt or the process's end proves it
	Weak   bool            `json:"w,omitempty"`
}

// usage is the token count of the latest API message, reported with the turn's end unless a visible envelope carried it.
type usage struct {
	Msg   string          `json:"m"`
	Count *protocol.Usage `json:"u,omitempty"`
	Sent  bool            `json:"s"`
}

type session struct {
	*state
	c    *adapters.Core
	opts adapters.SessionOptions

	// What follows is derived from the state.
	waiting map[string]bool // streams that are not registered yet
	dirty   bool            // something changed that may register one
	linkAt  int64           // when time alone may register one; 0 = never

	// drained says that no record came since a tick found all files read to their ends. Only then may the clock let a parent go
	// on: what it waits for may have been written long ago, and not been read yet.
	drained bool
}

var _ adapters.Session = (*session)(nil)

func newSession(o adapters.SessionOptions, st *state) *session {
	if st.Side == nil {
		st.Side = map[string]string{}
	}
	if st.Agents == nil {
		st.Agents = map[string]string{}
	}
	if st.Runs == nil {
		st.Runs = map[string]string{}
	}
	if st.Mates == nil {
		st.Mates = map[string]string{}
	}
	if st.Nth == nil {
		st.Nth = map[string]int{}
	}
	o.Provider = Name
	c := adapters.NewCore(o, st.Core)
	st.Core = c.S
	c.S.Facts.Native = o.ID
	s := &session{state: st, c: c, opts: o, waiting: map[string]bool{}, dirty: true}
	for key, w := range c.S.Streams {
		if !w.Registered && !w.Noise && w.Seen != 0 {
			s.waiting[key] = true
		}
	}
	return s
}

// parsed is an Item's value: the decoded line.
type parsed struct {
	l *line
}

// Parse implements adapters.Session.
func (s *session) Parse(p adapters.Place, rec watch.Record, now int64) (adapters.Item, bool) {
	it := adapters.Item{Stream: p.Stream, Place: p, Rec: rec}
	l, skip := parse(rec)
	if l == nil {
		s.c.Count(skip)
		return it, false
	}
	if p.Stream == adapters.Main && l.sidechain {
		it.Stream = s.inline(l)
	}
	if st := s.c.S.Streams[it.Stream]; st != nil && st.Noise || st == nil && s.c.Forgotten(it.Stream) {
		s.c.Count("noise agent")
		return it, false
	}
	it.Value = &parsed{l: l}
	return it, true
}

// Arrive implements adapters.Session.
func (s *session) Arrive(it adapters.Item, now int64) {
	s.c.SetNow(now)
	s.drained = false
	l := it.Value.(*parsed).l
	s.facts(l)
	if it.Stream != adapters.Main {
		s.head(it.Stream, it.Place.Group, l, now)
	}
	s.evidence(it.Stream, l)
	s.link(now)
}

// facts takes the working directory and the like, which every record repeats.
func (s *session) facts(l *line) {
	f := &s.c.S.Facts
	set := func(dst *string, x string) {
		if x != "" && x != *dst {
			*dst = x
			s.c.Changed()
		}
	}
	if f.Cwd == "" {
		set(&f.Cwd, l.cwd)
	}
	if l.cwd != "" {
		f.LastCwd = l.cwd
	}
	set(&f.GitBranch, l.branch)
	set(&f.Version, l.version)
	if f.Entrypoint == "" {
		set(&f.Entrypoint, l.entry)
	}
	if l.entry == "remote_mobile" && !f.HappyDriven {
		f.HappyDriven = true
		s.c.Changed()
	}
}

// Admit implements adapters.Session.
func (s *session) Admit(it adapters.Item, now int64) bool {
	if it.Stream != adapters.Main {
		if st := s.c.S.Streams[it.Stream]; st == nil || !st.Registered {
			return false
		}
	}
	return s.admitResults(it.Stream, it.Value.(*parsed).l, now)
}

// Map implements adapters.Session.
func (s *session) Map(it adapters.Item, now int64) {
	l := it.Value.(*parsed).l
	if l.typ == "custom-title" || l.typ == "ai-title" || l.typ == "summary" {
		s.c.SetNow(now)
		s.title(it.Stream, l) // repeated at every resume, word for word: the latest wins, however often it comes
		return
	}
	nth := 0
	if l.uuid == "" {
		nth = s.nth(it)
	}
	ident := identity(l, it.Rec, nth)
	if !s.c.Fresh(ident) {
		s.c.Count("repeated record")
		return
	}
	s.c.Begin(ident, l.ts, now)
	s.settle(it.Stream, l)
	if it.Stream == adapters.Main {
		if l.version != "" {
			s.Version = l.version
		}
		s.mapMain(l)
		s.LastTS = max(s.LastTS, l.ts)
		s.LastAt = now
	} else {
		s.mapChild(it.Stream, l)
	}
	s.link(now)
}

// nth says which occurrence of a record without uuid this is: two prompts taken from the queue within one millisecond leave two
// equal lines. Equal lines stand close together, so that the latest ones are enough to remember.
func (s *session) nth(it adapters.Item) int {
	k := fmt.Sprintf("%s:%x", it.Place.Stream, it.Rec.Sum[:8])
	n, ok := s.Nth[k]
	if !ok {
		s.NthOrder = append(s.NthOrder, k)
		if len(s.NthOrder) > maxNth {
			delete(s.Nth, s.NthOrder[0])
			s.NthOrder = append([]string(nil), s.NthOrder[1:]...)
		}
	}
	s.Nth[k] = n + 1
	return n
}

// Reset implements adapters.Session.
func (s *session) Reset(p adapters.Place) {
	// Records without uuid are counted again from the file's start; those seen before are known by their identity.
	kept := s.NthOrder[:0]
	for _, k := range s.NthOrder {
		if strings.HasPrefix(k, p.Stream+":") {
			delete(s.Nth, k)
		} else {
			kept = append(kept, k)
		}
	}
	s.NthOrder = kept
}

// Take implements adapters.Session.
func (s *session) Take() adapters.Output { return s.c.Take() }

// Save implements adapters.Session.
func (s *session) Save() ([]byte, error) { return json.Marshal(s.state) }

// Status implements adapters.Session.
func (s *session) Status() adapters.Status {
	st := s.c.Status()
	if s.Proc.Known && s.Proc.Status != "" {
		st.Thinking = s.Proc.Alive && s.Proc.Status == "busy"
	}
	return st
}

// Facts implements adapters.Session.
func (s *session) Facts() adapters.Facts {
	f := s.c.S.Facts
	for _, t := range s.Titles {
		if t != "" {
			f.Title = t
			break
		}
	}
	return f
}
