// Package adapters turns the records of coding agents' logs into session-protocol envelopes.
//
// Each provider is a folder below this one (adapters/claude, adapters/codex) and one line in the registry that the caller
// builds; what all of them need (turns, tool calls, subagents, strictly rising times, stable ids) is Core, here, once.
// Records, sidecar files, process states and ticks of the clock flow in; envelopes, and the names of the streams that may
// now be read, flow out. A Session is a pure function of these inputs: it never reads a clock, a disk or a network, and its
// state round-trips through Save and Provider.Load, so that a restart at any point goes on where it stopped.
package adapters

import (
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// Main is the stream of the conversation itself; every other stream is a subagent's, named by the provider's id for it.
const Main = ""

// A Provider knows one coding agent's files.
type Provider interface {
	// Name is the provider's name in tags, flavors and configuration: "claude", "codex".
	Name() string
	// Roots lists the trees to watch below one agent home (for example ~/.claude).
	Roots(home string) []watch.Root
	// Locate says what a file below a root is. first returns the file's first record where the name alone does not tell;
	// it may be called at most once and costs a read. ok is false for files that carry nothing (yet): ask again when they grow.
	Locate(root watch.Root, rel string, first func() (watch.Record, bool)) (place Place, ok bool)
	// New starts the mapper of a source session that has no saved state.
	New(o SessionOptions) Session
	// Load continues from what Save returned.
	Load(o SessionOptions, state []byte) (Session, error)
}

// Kind says what a located file carries.
type Kind int

const (
	KindLog     Kind = iota // records of one stream (and, in old formats, of inline children)
	KindMeta                // a small whole file that describes one stream
	KindProcess             // a small whole file that describes a live agent process
	KindIndex               // records that concern many sessions (titles)
)

// A Place is where a file belongs.
type Place struct {
	Kind    Kind
	Session string // source session id; "" for KindProcess and KindIndex
	Stream  string // Main or the provider's id of a subagent
	Group   string // what several subagents have in common that the file's place tells (a workflow's run)
	Key     string // cursor key of a log: equal for all names one log can have (renamed, archived, compressed); "" = its path
	Rebase  bool   // the log was rewritten by its owner without new content: go on at its end
}

// SessionOptions is what a mapper is told at its birth and again after each restart.
type SessionOptions struct {
	Provider  string // provider's name
	ID        string // source session id
	Tag       string // the Happy session's tag: the root of all ids
	Seen      Seen   // record identities handled before, durable
	ToolNames string // "provider" (default) or "spec"
	// Queued is how many read records of a stream still wait to be mapped; nil means none ever do. What the clock decides about
	// a stream waits for them.
	Queued func(stream string) int
}

// Seen is the set of record identities of one session that were handled, as 8-byte hashes. Implementations are durable with
// the batch in which an identity was added.
type Seen interface {
	Has(h uint64) bool
	Add(h uint64)
}

// An Item is one parsed record on its way through the buffer.
type Item struct {
	Stream string
	Place  Place
	Rec    watch.Record
	Value  any // the adapter's own decoded form
}

// A Session maps one source session. It is owned by one goroutine. Times are Unix milliseconds.
type Session interface {
	// Parse decodes a record and finds its stream. ok is false for records that mean nothing (counted by type).
	Parse(p Place, rec watch.Record, now int64) (it Item, ok bool)
	// Arrive is called once for each parsed record when it is first read, in file order, also for records that must wait:
	// it collects what links children to their parents.
	Arrive(it Item, now int64)
	// Admit says whether the record may be mapped now. Records of one stream are mapped in their order.
	Admit(it Item, now int64) bool
	// Map turns the record into envelopes.
	Map(it Item, now int64)
	// Observe takes what is not a record: sidecar files, the agent's process.
	Observe(o Observation, now int64)
	// Tick lets time pass. drained says that every file of the session was read to its end.
	Tick(now int64, drained bool)
	// Wake is the next time at which Tick could matter; 0 = not before the next input.
	Wake() int64
	// Reset says that a log will be read again from its start (truncated, replaced).
	Reset(p Place)
	// Take hands over what came out since the last call.
	Take() Output
	// Status describes the session for people.
	Status() Status
	// Facts is what the session's metadata is made of.
	Facts() Facts
	// Save returns the state for Provider.Load.
	Save() ([]byte, error)
}

// ObservationKind tells what was observed.
type ObservationKind int

const (
	ObserveMeta    ObservationKind = iota // Data is the whole sidecar file of Stream
	ObserveProcess                        // Process is the state of the agent's process
	ObserveEnd                            // no more input will come (offline mapping, end of a pipe): close what is open
	ObserveTitle                          // Data is the name that an index gives the session
)

// An Observation is an input that is not a record.
type Observation struct {
	Kind    ObservationKind
	Stream  string
	Data    []byte
	Process Process
}

// A Process is what is known of the agent's process behind a session.
type Process struct {
	Known    bool   // a process file or a similar proof told; otherwise Alive is guessed from the log's growth
	Alive    bool   //
	PID      int    //
	Status   string // provider's word: idle, busy, waiting, ""
	StatusAt int64  // when the status was set, Unix ms; 0 unknown
}

// Output is what mapping produced.
type Output struct {
	Envelopes []protocol.Envelope
	Opened    []string // streams that were registered: their records may flow
	Noise     []string // streams that are nobody's child (warm-up, compaction…): forget them
	Forgotten []string // streams that ended so long ago that nothing more of them is taken
	Changed   bool     // Facts changed
}

// Facts describe a source session for its metadata and for the filters.
type Facts struct {
	Cwd         string // first working directory; "" until known
	LastCwd     string // working directory of the latest record
	GitBranch   string
	Version     string // of the agent
	Model       string
	Title       string // custom title, else AI title, else first prompt
	TitleAt     int64  // Unix ms of the title
	Entrypoint  string // how the agent was started, provider's word
	HappyDriven bool   // Happy itself drives this session: do not mirror it a second time
	Native      string // id for claudeSessionId / codexThreadId
	HasContent  bool   // something worth a Happy session was seen
}

// Status is a session's state for `happyd status`.
type Status struct {
	Turn      string         `json:"turn"` // "open" or "idle"
	TurnID    string         `json:"turnId,omitempty"`
	OpenCalls int            `json:"openCalls"`
	Running   int            `json:"runningSubagents"`
	Thinking  bool           `json:"thinking"`
	Counts    map[string]int `json:"skipped,omitempty"` // skipped records by type
}

// A ProcessFile is what a provider's process file says.
type ProcessFile struct {
	PID      int
	Start    string // the process's start as the provider wrote it; on Linux field 22 of /proc/<pid>/stat
	Session  string
	Status   string
	StatusAt int64 // Unix ms
}

// A ProcessParser is a Provider that writes KindProcess files. ok is false for a file that is being written.
type ProcessParser interface {
	ParseProcess(data []byte) (f ProcessFile, ok bool)
}

// A Keyer is a Provider whose logs can have several names: the cursor key is the Place.Key of a path, told without a read.
type Keyer interface {
	CursorKey(rel string) string
}

// A CwdReader is a Provider whose records name their working directory elsewhere than in a top-level "cwd". "" = the record names none.
type CwdReader interface {
	RecordCwd(data []byte) string
}

// An IndexParser is a Provider that writes KindIndex files: records that name sessions. Later records win.
type IndexParser interface {
	ParseIndex(data []byte) (session, title string, ok bool)
}
