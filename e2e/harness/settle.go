package harness

import (
	"fmt"
	"strings"
	"time"

	"github.com/happyd/happyd/control"
)

const (
	// stillCalm is how long nothing may change before a machine with nothing open and nothing queued counts as settled. It is
	// longer than a new session waits before it is sent.
	stillCalm = 3500 * time.Millisecond
	// stillOpen is the same for a machine that holds turns or subagents open, which may be right.
	stillOpen = 9 * time.Second
)

// Settle waits until nothing more comes: the server's sessions do not change, nothing is queued.
func (m *Machine) Settle() {
	m.tb.Helper()
	if err := m.TrySettle(2 * time.Minute); err != nil {
		m.tb.Fatal(err)
	}
}

// TrySettle is Settle with a limit, that reports what went wrong.
func (m *Machine) TrySettle(limit time.Duration) error {
	end, since, last := time.Now().Add(limit), time.Now(), ""
	for {
		now, open, queued, err := m.state()
		if err != nil {
			now = "error " + err.Error()
		}
		if now != last {
			last, since = now, time.Now()
		}
		still := time.Since(since)
		if err == nil && queued == 0 && (still >= stillOpen || still >= stillCalm && !open) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not settled after %v: %s (open %v, queued %d)\n%s", limit, now, open, queued, m.LogTail(20))
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// state condenses what the server holds and what the daemon does.
func (m *Machine) state() (all string, open bool, queued int, err error) {
	doc, err := m.Status()
	if err != nil {
		return "", false, 0, err
	}
	sessions, err := m.server.Sessions(false)
	if err != nil {
		return "", false, 0, err
	}
	var b strings.Builder
	for _, s := range sessions {
		fmt.Fprintf(&b, "%s=%d ", s.ID, s.Seq)
	}
	for _, s := range doc.Sessions {
		busy := s.Turn == "open" || s.Subagents > 0
		open = open || busy
		fmt.Fprintf(&b, "%s:%v,%d,%d,%d ", s.ID, busy, s.OpenCalls, s.Orphans, s.Queued)
		for _, f := range s.Files {
			fmt.Fprintf(&b, "%d ", f.Offset)
		}
	}
	return b.String(), open, doc.Queue.Messages, nil
}

// Session finds a session in the daemon's status.
func (m *Machine) Session(native string) (control.SessionStatus, bool) {
	doc, err := m.Status()
	if err != nil {
		return control.SessionStatus{}, false
	}
	for _, s := range doc.Sessions {
		if s.ID == native {
			return s, true
		}
	}
	return control.SessionStatus{}, false
}

// Provides says whether the running daemon knows a provider.
func (m *Machine) Provides(name string) bool {
	doc, err := m.Status()
	if err != nil {
		return false
	}
	for _, s := range doc.Sources {
		if s.Provider == name {
			return true
		}
	}
	return false
}

// Wait polls until cond holds or the limit has passed, and says which.
func Wait(limit time.Duration, cond func() bool) bool {
	for end := time.Now().Add(limit); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
