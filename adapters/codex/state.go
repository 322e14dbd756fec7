package codex

import (
	"fmt"

	"github.com/happyd/happyd/adapters"
)

// Limits and graces, in milliseconds where they are times.
const (
	graceGone  = 2000   // after the process ended: its last lines may still come
	graceClose = 2000   // after a parent closed a child that did not say so itself
	holdChild  = 2000   // how long a parent waits for the end of a child that it was told of
	idleLazy   = 60_000 // after the last words of a version that logs no ends of turns
	maxClosed  = 32     // remembered ends of turns
	maxCalls   = 2000   // remembered call ids of a turn
	maxTitle   = 120    // characters of a title
)

// Which layer of a rollout is shown.
const (
	layerOpen      = iota // not decided yet
	layerResponses        // response_item: nothing else is there
	layerEvents           // event_msg
	layerItems            // item_completed
)

// state is everything a session's mapping depends on.
type state struct {
	Core    *adapters.State    `json:"core"`
	Files   map[string]*file   `json:"files,omitempty"`   // by cursor key
	Threads map[string]*thread `json:"threads,omitempty"` // by stream
	Kids    map[string]kid     `json:"kids,omitempty"`    // spawned threads whose calls were shown
	Closed  map[string]report  `json:"closed,omitempty"`  // thread -> when its parent closed it
	Waiting map[string]bool    `json:"waiting,omitempty"` // threads that were seen and are not registered
	Parts   map[string]bool    `json:"parts,omitempty"`   // queues of later segments, and whether they flow
	Name    string             `json:"name,omitempty"`    // the thread's name
	Prompt  string             `json:"prompt,omitempty"`  // first prompt
	Usage   *usage             `json:"usage,omitempty"`
	Main    bool               `json:"main,omitempty"` // a record of the root thread was seen
	Now     int64              `json:"now,omitempty"`  // clock of the latest input
	Gone    int64              `json:"gone,omitempty"` // clock when the process was found dead
}

// A kid is how a thread was spawned: the call's id in its stream, and when that was shown.
type kid struct {
	Call string `json:"c"`
	At   int64  `json:"at"`
}

// A report is a parent's word that a child was closed.
type report struct {
	TS int64 `json:"ts"`
	At int64 `json:"at"`
}

// A file is what is known of one rollout file.
type file struct {
	Mode  string `json:"m,omitempty"`
	Layer int    `json:"l,omitempty"`
	// Events says that the file has an event layer, User that a message of the user waits for the choice of the layer.
	Events bool `json:"e,omitempty"`
	User   bool `json:"u,omitempty"`
	// Metas and Contexts count what marks the starts of histories; Tasks says that the file logs starts of turns.
	Metas    int  `json:"n,omitempty"`
	Silent   bool `json:"si,omitempty"` // of a version that does not log why a turn failed
	Contexts int  `json:"c,omitempty"`
	Tasks    bool `json:"t,omitempty"`
	// Copied says that the records are still those of the thread that this one was made from.
	Copied bool  `json:"cp,omitempty"`
	Own    bool  `json:"own,omitempty"` // the thread's own part has begun
	Start  int64 `json:"s,omitempty"`   // ordinal where it begins, as the first record says; -1 = not said
	Born   int64 `json:"b,omitempty"`   // when the thread was made, Unix ms
	Ord    int64 `json:"o,omitempty"`   // highest ordinal, plus one
	TS     int64 `json:"ts,omitempty"`  // latest timestamp that was mapped
	Plain  bool  `json:"pl,omitempty"`  // its records have no ordinals
	Rewrit int64 `json:"rw,omitempty"`  // it was rewritten with ordinals: records up to this time were handled before
}

// A thread is the state of one conversation thread: the main one or a spawned agent.
type thread struct {
	Turn    string           `json:"turn,omitempty"` // provider's id of the open turn
	Lazy    bool             `json:"lazy,omitempty"` // opened by the agent's output, as nothing announced it
	Closed  []string         `json:"closed,omitempty"`
	Calls   map[string]bool  `json:"calls,omitempty"` // calls seen in this turn
	Pending map[string]*call `json:"pending,omitempty"`
	Texted  bool             `json:"texted,omitempty"` // the latest output was a text
	Fail    string           `json:"fail,omitempty"`   // the turn's error, shown already
	Note    string           `json:"note,omitempty"`   // shown when the next turn starts
	Compact bool             `json:"compact,omitempty"`
	Review  bool             `json:"review,omitempty"`
	User    uint64           `json:"user,omitempty"`   // hash of the latest prompt
	Asked   bool             `json:"asked,omitempty"`  // its first message was seen
	Prompt  bool             `json:"prompt,omitempty"` // the turn answers a prompt
	Viewed  int              `json:"viewed,omitempty"` // pictures that the agent looked at in this turn, which come as user messages
	Cwd     string           `json:"cwd,omitempty"`
	At      int64            `json:"at,omitempty"`  // clock when its latest record was mapped
	TS      int64            `json:"ts,omitempty"`  // timestamp of its latest record
	Arrived int64            `json:"arr,omitempty"` // timestamp of the latest record that was read
	End     int64            `json:"end,omitempty"` // timestamp of its latest end of a turn
	First   int64            `json:"first,omitempty"`
}

// A call waits for what tells how it is to be shown: a spawned thread's id, or whether a script called tools.
type call struct {
	Tool   adapters.Tool `json:"t"`
	Spawn  bool          `json:"s,omitempty"`
	Nested bool          `json:"n,omitempty"`
	N      int           `json:"i"`
}

func (s *session) file(key string) *file {
	f := s.Files[key]
	if f == nil {
		f = &file{Start: -1}
		s.Files[key] = f
	}
	return f
}

func (s *session) threadOf(stream string) *thread {
	th := s.Threads[stream]
	if th == nil {
		th = &thread{}
		s.Threads[stream] = th
	}
	return th
}

// identity is what a record's ids derive from: the log and the ordinal, which survives rewriting; else, and where an ordinal was
// given twice, the offset.
func (f *file) identity(key string, l *line, offset int64) string {
	if l.ord >= f.Ord {
		f.Ord = l.ord + 1
		return fmt.Sprintf("%s:%d", key, l.ord)
	}
	return fmt.Sprintf("%s@%d", key, offset)
}

// step follows the file's structure and says whether the record belongs to a copied history.
func (f *file) step(l *line, own string) (copied bool) {
	switch {
	case l.kind == kindMeta:
		f.meta(l.meta(), own)
		return true
	case l.kind == kindEvent && (l.sub == "task_started" || l.sub == "turn_started"):
		if f.Copied && f.ownTurn(l) {
			f.begin()
		}
		f.Tasks = true
	case l.kind == kindEvent && l.sub == "user_message":
		// Up to 0.98 nothing marks turns. Each history begins with a block about the environment, the copied ones and then the own.
		if f.Copied && !f.Tasks && f.Contexts >= f.Metas {
			f.begin()
		}
	case l.kind == kindResponse && l.sub == "message":
		if f.Copied && hasContext(l.p) {
			f.Contexts++
		}
	}
	if f.Copied && f.Start >= 0 && l.ord >= f.Start {
		f.begin()
	}
	if !f.Copied {
		f.Own = true
	}
	return f.Copied
}

func (f *file) begin() { f.Copied, f.Own = false, true }

func (f *file) meta(m meta, own string) {
	f.Metas++
	switch {
	case f.Metas == 1:
		f.Mode, f.Start, f.Born, f.Silent = m.mode, m.start, bornAt(m.id), versionBefore(m.version, 146)
		if f.Born == 0 {
			f.Born = m.ts
		}
		f.Copied = !m.base && (m.forked != "" || m.start >= 0)
	case m.id != own && !f.Own:
		f.Copied = true // an ancestor's: its records follow
	}
}

// ownTurn says whether a turn began after the thread was made. Only milliseconds count: turns begin within the thread's first.
func (f *file) ownTurn(l *line) bool {
	if t := bornAt(l.turnID()); t != 0 {
		return t >= f.Born
	}
	if t := adapters.Int(adapters.Fields(l.p, "started_at")[0]); t != 0 {
		return t >= f.Born/1000
	}
	return false
}
