package control

import "time"

// Server states: see ServerStatus.State. Each comes with a Hint for the user
// when something has to be done.
const (
	ServerOnline       = "online"        // the last request succeeded
	ServerOffline      = "offline"       // no answer; NextTry says when it is asked again
	ServerAuthRequired = "auth_required" // the token was refused; waits for a new login
	ServerWrong        = "wrong_server"  // something answers that is no Happy server
	ServerPaused       = "paused"        // not sending because the user said so
	ServerStarting     = "starting"      // nothing was sent yet
)

// Session states: see SessionStatus.State.
const (
	SessionActive   = "active"       // its agent runs
	SessionIdle     = "idle"         // its agent has not written for a while
	SessionWithheld = "withheld"     // its directory is not included, or excluded
	SessionSkipped  = "skipped"      // a session that Happy itself drives
	SessionEnded    = "ended"        // its agent is gone
	SessionGone     = "session_gone" // deleted on the server; not sent any more
	SessionParked   = "parked"       // a message cannot be sent; see Parked
)

// Source states: see SourceStatus.State.
const (
	SourceWatching   = "watching"   // the system reports changes
	SourcePolling    = "polling"    // looked at regularly; Detail says why
	SourceMissing    = "missing"    // does not exist yet
	SourceUnreadable = "unreadable" // Detail says why
	SourceDisabled   = "disabled"
)

// StatusDoc is everything `happyd status` shows. Times are absolute, numbers
// of bytes are bytes. It names paths and working directories, but holds no
// content of a session, no token and no key.
type StatusDoc struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	Now       time.Time `json:"now"` // the daemon's clock when it answered

	StateDir   string `json:"stateDir"`
	ConfigFile string `json:"configFile,omitempty"` // empty: defaults

	Server  ServerStatus  `json:"server"`
	Socket  SocketStatus  `json:"socket"`
	Account AccountStatus `json:"account"`

	Sources  []SourceStatus  `json:"sources"`
	Sessions []SessionStatus `json:"sessions"`

	Queue   QueueStatus  `json:"queue"`
	Orphans OrphanStatus `json:"orphans"`

	// Counters count what was skipped or left out, by dotted reason, such as
	// "skipped.bad_json" or "unknown.claude.some-type".
	Counters map[string]int64 `json:"counters,omitempty"`
}

// ServerStatus is the state of the HTTP side.
type ServerStatus struct {
	URL      string     `json:"url"` // of the embedded relay: its actual address
	Embedded bool       `json:"embedded"`
	State    string     `json:"state"` // one of the Server constants
	Since    *time.Time `json:"since,omitempty"`
	NextTry  *time.Time `json:"nextTry,omitempty"`
	Error    string     `json:"error,omitempty"` // the last one, while it matters
	Hint     string     `json:"hint,omitempty"`  // the next step for the user
}

// SocketStatus is the state of the live connection, which carries presence.
type SocketStatus struct {
	State   string     `json:"state"` // "connected", "connecting" or "closed"
	Since   *time.Time `json:"since,omitempty"`
	NextTry *time.Time `json:"nextTry,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// AccountStatus says as whom happyd speaks.
type AccountStatus struct {
	State       string `json:"state"`           // "ready", "missing", "unprotected" or "invalid"
	ID          string `json:"id,omitempty"`    // a short fingerprint, no key
	Variant     string `json:"variant"`         // "dataKey" or "legacy"
	Credentials string `json:"credentials"`     // the file
	Error       string `json:"error,omitempty"` // why it is not ready
	Hint        string `json:"hint,omitempty"`  // the next step for the user
}

// SourceStatus is one root directory of a provider.
type SourceStatus struct {
	Provider string `json:"provider"`
	Root     string `json:"root"`
	State    string `json:"state"` // one of the Source constants
	Detail   string `json:"detail,omitempty"`
	Files    int    `json:"files"`    // log files that are known below it
	Sessions int    `json:"sessions"` // source sessions among them
}

// SessionStatus is one source session.
type SessionStatus struct {
	ID       string `json:"id"` // the provider's id
	Provider string `json:"provider"`
	ServerID string `json:"serverId,omitempty"` // empty until it was created there
	Dir      string `json:"dir,omitempty"`      // its working directory
	State    string `json:"state"`              // one of the Session constants
	Hint     string `json:"hint,omitempty"`     // the next step for the user

	Turn      string `json:"turn"`      // "open" or "closed"
	OpenCalls int    `json:"openCalls"` // tool calls without an end
	Subagents int    `json:"subagents"` // children that are running
	Orphans   int    `json:"orphans"`   // held messages whose parent is unknown

	Files []FileStatus `json:"files"`

	Queued       int        `json:"queued"` // messages
	QueuedBytes  int64      `json:"queuedBytes"`
	LastAckedSeq int64      `json:"lastAckedSeq"` // 0: none yet
	LastAckedAt  *time.Time `json:"lastAckedAt,omitempty"`
	Parked       int        `json:"parked"`               // messages that can never be sent
	ParkedWhy    string     `json:"parkedWhy,omitempty"`  // the reason of the last one
	LastRecord   *time.Time `json:"lastRecord,omitempty"` // when its log last grew
}

// FileStatus is one log file of a session.
type FileStatus struct {
	Path    string `json:"path"`
	Offset  int64  `json:"offset"` // bytes handled
	Size    int64  `json:"size"`
	Skipped int64  `json:"skipped,omitempty"` // records that could not be read
}

// Behind is how many bytes of the file are not handled yet.
func (f FileStatus) Behind() int64 { return max(f.Size-f.Offset, 0) }

// Behind is how many bytes of the session's files are not handled yet.
func (s SessionStatus) Behind() (n int64) {
	for _, f := range s.Files {
		n += f.Behind()
	}
	return n
}

// QueueStatus is the durable queue of sealed messages.
type QueueStatus struct {
	Messages int   `json:"messages"`
	Bytes    int64 `json:"bytes"`
	Limit    int64 `json:"limit"`
	Full     bool  `json:"full"` // reading pauses until there is room
}

// OrphanStatus sums up the held messages of all sessions.
type OrphanStatus struct {
	Messages int        `json:"messages"`
	Agents   int        `json:"agents"` // conversations they belong to
	Bytes    int64      `json:"bytes"`  // in memory
	Oldest   *time.Time `json:"oldest,omitempty"`
}
