package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/happyd/happyd/control"
)

// shownSessions is how many quiet sessions are listed without --all.
const shownSessions = 15

// statusView prints a status document for people.
type statusView struct {
	home string // shown as ~
	now  time.Time
	all  bool
}

func (v statusView) write(w io.Writer, doc control.StatusDoc) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	v.head(out, doc)
	v.sessions(out, doc.Sessions)
	v.counters(out, doc.Counters)
	return out.Flush()
}

// row writes the cells of one line. Cells are cleaned here, once for all.
func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		if c = printable(c); c == "" && i < len(cells)-1 {
			c = "-"
		}
		cells[i] = c
	}
	fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

func (v statusView) head(w io.Writer, doc control.StatusDoc) {
	row(w, "happyd", fmt.Sprintf("%s, process %d, up %s", doc.Version, doc.PID, ago(v.now.Sub(doc.StartedAt))))

	where := doc.Server.URL
	if doc.Server.Embedded {
		where = "embedded relay at " + where
	}
	row(w, "server", join(where, v.state(doc.Server.State, doc.Server.Since, doc.Server.NextTry), doc.Server.Error))
	v.hint(w, doc.Server.Hint)
	row(w, "socket", join(v.state(doc.Socket.State, doc.Socket.Since, doc.Socket.NextTry), doc.Socket.Error))
	row(w, "account", join(doc.Account.State, doc.Account.ID, doc.Account.Variant, v.path(doc.Account.Credentials), doc.Account.Error))
	v.hint(w, doc.Account.Hint)
	for _, s := range doc.Sources {
		row(w, s.Provider, join(v.path(s.Root), s.State, s.Detail, plural(s.Files, "file"), plural(s.Sessions, "session")))
	}

	queue := plural(doc.Queue.Messages, "message")
	if doc.Queue.Messages > 0 {
		queue += fmt.Sprintf(", %s of %s", bytesText(doc.Queue.Bytes), bytesText(doc.Queue.Limit))
	}
	if doc.Queue.Full {
		queue += "; full: reading pauses until the server takes some"
	}
	row(w, "queue", queue)

	orphans := "none"
	if o := doc.Orphans; o.Messages > 0 {
		orphans = fmt.Sprintf("%s of %s, %s in memory", plural(o.Messages, "message"), plural(o.Agents, "agent"), bytesText(o.Bytes))
		if o.Oldest != nil {
			orphans += ", the oldest for " + ago(v.now.Sub(*o.Oldest))
		}
	}
	row(w, "orphans", orphans)
}

func (v statusView) state(state string, since, nextTry *time.Time) string {
	if since != nil {
		state += " for " + ago(v.now.Sub(*since))
	}
	if nextTry != nil {
		state += ", next try in " + ago(nextTry.Sub(v.now))
	}
	return state
}

func (v statusView) hint(w io.Writer, hint string) {
	if hint != "" {
		row(w, " ", "Try: "+hint)
	}
}

// sessions writes one line a log file; the session's own columns stand in the
// line of its first file.
func (v statusView) sessions(w io.Writer, sessions []control.SessionStatus) {
	shown, hidden := v.choose(sessions)
	fmt.Fprintln(w)
	if len(shown) == 0 {
		row(w, "no sessions")
	} else {
		row(w, "SESSION", "STATE", "TURN", "QUEUED", "ACKED", "ORPHANS", "OFFSET", "BEHIND", "FILE")
	}
	for _, s := range shown {
		own := []string{
			shortID(s.ID) + " " + s.Provider, s.State, s.Turn, fmt.Sprint(s.Queued), fmt.Sprint(s.LastAckedSeq), fmt.Sprint(s.Orphans),
		}
		if len(s.Files) == 0 {
			row(w, append(own, "", "", v.path(s.Dir))...)
		}
		for i, f := range s.Files {
			if i > 0 {
				own = []string{" ", " ", " ", " ", " ", " "}
			}
			row(w, append(own, fmt.Sprint(f.Offset), fmt.Sprint(f.Behind()), v.file(f, i))...)
		}
	}
	for _, s := range shown { // below the table, whose columns they would tear apart
		if s.Parked > 0 {
			row(w, fmt.Sprintf("%s: %s cannot be sent: %s", shortID(s.ID), plural(s.Parked, "message"), s.ParkedWhy))
		}
		if s.Hint != "" {
			row(w, fmt.Sprintf("%s: Try: %s", shortID(s.ID), s.Hint))
		}
	}
	if hidden > 0 {
		row(w, fmt.Sprintf("and %s more; list them with `happyd status --all`", plural(hidden, "session")))
	}
}

// file names a log: the first one of a session by its path, the others, which
// lie below it, by their name.
func (v statusView) file(f control.FileStatus, i int) string {
	name := v.path(f.Path)
	if i > 0 {
		name = filepath.Base(f.Path)
	}
	if f.Skipped > 0 {
		name += fmt.Sprintf(" (%d unreadable)", f.Skipped)
	}
	return name
}

// choose puts the sessions in order, busy ones first, and leaves out quiet ones
// beyond a screenful.
func (v statusView) choose(sessions []control.SessionStatus) (shown []control.SessionStatus, hidden int) {
	shown = slices.Clone(sessions)
	slices.SortStableFunc(shown, func(a, b control.SessionStatus) int {
		if busy(a) != busy(b) {
			if busy(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(lastRecord(b), lastRecord(a))
	})
	keep := len(shown)
	if !v.all {
		keep = 0
		for keep < len(shown) && (keep < shownSessions || busy(shown[keep])) {
			keep++
		}
	}
	return shown[:keep], len(shown) - keep
}

func busy(s control.SessionStatus) bool {
	return s.State == control.SessionActive || s.Queued > 0 || s.Orphans > 0 || s.Parked > 0 || s.Behind() > 0 || s.Hint != ""
}

func lastRecord(s control.SessionStatus) int64 {
	if s.LastRecord == nil {
		return 0
	}
	return s.LastRecord.UnixNano()
}

func (v statusView) counters(w io.Writer, counters map[string]int64) {
	if len(counters) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "LEFT OUT", "COUNT")
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		row(w, name, fmt.Sprint(counters[name]))
	}
}

// path shortens a path below the home directory.
func (v statusView) path(p string) string {
	if v.home == "" {
		return p
	}
	if rest, ok := strings.CutPrefix(p, v.home+string(filepath.Separator)); ok {
		return "~" + string(filepath.Separator) + rest
	}
	return p
}

// shortID is enough of a session's id to tell it from others.
func shortID(id string) string { return id[:min(len(id), 8)] }

// join puts the parts that are there into one cell.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
