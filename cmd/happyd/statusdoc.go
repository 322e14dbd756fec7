package main

import (
	"context"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/control"
	"github.com/happyd/happyd/uplink"
)

// providers is the registry: a further provider is a folder and a line here.
func providers() []adapters.Provider {
	return []adapters.Provider{claude.Provider{}, codex.NewProvider()}
}

// status makes the document for `happyd status`.
func (d *daemon) status(context.Context) (control.StatusDoc, error) {
	doc := control.StatusDoc{
		Version: versionString(), PID: os.Getpid(), StartedAt: d.started, Now: time.Now(),
		StateDir: d.cfg.StateDir, ConfigFile: d.o.ConfigFile,
		Server: control.ServerStatus{URL: d.url, Embedded: d.cfg.Server.IsEmbedded(), State: control.ServerStarting},
	}
	d.mu.Lock()
	s := d.live
	d.mu.Unlock()
	if s == nil {
		return doc, nil
	}
	doc.Account = control.AccountStatus{
		State: "ready", ID: s.account.Fingerprint(), Variant: s.creds.Variant(), Credentials: s.creds.Path,
	}
	up, err := s.uplink.Status()
	if err != nil {
		return doc, err
	}
	since := up.Since
	doc.Server.State, doc.Server.Since, doc.Server.NextTry = string(up.State), &since, up.NextTry
	doc.Server.Error, doc.Server.Hint = up.Reason, up.Hint
	sock := up.Socket.Since
	doc.Socket = control.SocketStatus{State: "closed", Since: &sock, NextTry: up.Socket.NextTry, Error: up.Socket.Error}
	if up.Socket.Connected {
		doc.Socket.State = "connected"
	}
	if err := d.store.Health(); err != nil {
		doc.Server.Hint = "the state directory cannot be written; free space or fix its permissions: nothing is lost, reading waits"
		doc.Server.Error = err.Error()
	}
	limit := int64(d.cfg.Uplink.MaxQueue)
	doc.Queue = control.QueueStatus{Messages: up.Queued, Bytes: s.scope.QueuedBytes(), Limit: limit, Full: s.scope.QueuedBytes() >= limit}
	doc.Orphans = s.bridge.Orphans()
	doc.Counters = s.bridge.Counters()
	for what, n := range s.bridge.Left() {
		doc.Counters[what] += n
	}
	doc.Sessions = mergeSessions(s, up)
	d.sources(s, &doc)
	return doc, nil
}

// mergeSessions joins what the bridge, the store and the uplink know of each session.
func mergeSessions(s *session, up uplink.Status) []control.SessionStatus {
	all := s.bridge.Sessions()
	for _, u := range up.Sessions {
		o, loaded := all[u.Key]
		if !loaded {
			provider, id, _ := strings.Cut(u.Key, ":")
			o = control.SessionStatus{ID: id, Provider: provider, State: control.SessionIdle, Turn: "closed"}
			if !u.Alive {
				o.State = control.SessionEnded
			}
		}
		o.ServerID, o.Queued, o.QueuedBytes, o.LastAckedSeq = u.ServerID, u.Queued, u.Bytes, u.Acked
		o.Parked, o.Orphans = u.Parked, s.bridge.OrphansOf(u.Key)
		switch u.State {
		case uplink.SessionGone:
			o.State, o.Hint = control.SessionGone, "it was deleted on the server and stays deleted"
		case uplink.SessionParked:
			o.ParkedWhy = u.Reason
		case uplink.SessionFailed:
			o.Hint = u.Reason
		}
		all[u.Key] = o
	}
	keys := make([]string, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := make([]control.SessionStatus, 0, len(keys))
	for _, k := range keys {
		out = append(out, all[k])
	}
	return out
}

func (d *daemon) sources(s *session, doc *control.StatusDoc) {
	for _, r := range s.bridge.Watching().Roots {
		provider, _, _ := strings.Cut(r.Name, "/")
		src := control.SourceStatus{Provider: provider, Root: r.Path, State: control.SourceWatching, Files: r.Files, Detail: r.Why}
		switch {
		case !r.Exists:
			src.State = control.SourceMissing
		case r.Unreadable > 0:
			src.State = control.SourceUnreadable
		case r.Mode == "polling":
			src.State = control.SourcePolling
		}
		doc.Sources = append(doc.Sources, src)
	}
	for _, o := range doc.Sessions {
		for i := range doc.Sources {
			if doc.Sources[i].Provider == o.Provider {
				doc.Sources[i].Sessions++
				break
			}
		}
	}
}
