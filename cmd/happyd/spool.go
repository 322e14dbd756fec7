package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nrednav/cuid2"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/watch"
)

// pendingSuffix marks a stream of which it is not decided whether a log of its thread takes its place.
const pendingSuffix = ".pending"

// spool is one stream on its way into a file.
type spool struct {
	d       *daemon
	id      string // of the stream
	thread  string
	known   bool // the stream has told its thread, or never will
	decided bool
	dropped bool // a log takes its place
	inside  bool // of a line: its rest follows
	ended   bool
	file    *os.File
}

func (s *spool) pending() string { return filepath.Join(s.d.spoolDir(), s.id+pendingSuffix) }

// add keeps a line, or the next piece of a long one.
func (s *spool) add(line []byte) error {
	if s.dropped {
		return nil
	}
	if s.file == nil {
		if s.id = codex.StreamID(line); s.id == "" {
			s.id = cuid2.Generate()
		}
		f, err := os.OpenFile(s.pending(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("keep the stream: %w", err)
		}
		s.file = f
		s.d.stream(s.id, +1)
	}
	if !s.known && !s.inside {
		s.thread, s.known = codex.StreamThread(line)
	}
	s.inside = line[len(line)-1] != '\n'
	if _, err := s.file.Write(line); err != nil {
		return fmt.Errorf("keep the stream: %w", err)
	}
	return nil
}

// decide lets the bridge follow the stream, or forgets it because its thread has a log.
func (s *spool) decide() error {
	if s.decided || s.file == nil {
		return nil
	}
	s.decided = true
	thread := s.thread
	if thread == "" {
		thread = s.id
	}
	// Windows moves and removes no file that is open.
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("keep the stream: %w", err)
	}
	if s.d.hasLog(codex.Name, thread) {
		s.dropped = true
		return os.Remove(s.pending())
	}
	path := filepath.Join(s.d.spoolDir(), thread+"~"+s.id+".jsonl")
	err := os.Rename(s.pending(), path)
	if err == nil && !s.ended {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			s.file = f
		}
	}
	if err != nil {
		return fmt.Errorf("keep the stream: %w", err)
	}
	return nil
}

// finish follows the pipe's end.
func (s *spool) finish(ctx context.Context, decide <-chan time.Time) error {
	if s.file == nil || s.dropped {
		return nil
	}
	s.ended = true
	if err := endStream(s.file); err != nil {
		return err
	}
	if decide != nil {
		select {
		case <-decide:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.decide()
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.d.stream(s.id, -1)
	}
}

// endStream appends the end, on a line of its own whatever the last one is.
func endStream(f *os.File) error {
	if _, err := f.WriteString("\n" + bridge.StreamEnd + "\n"); err != nil {
		return fmt.Errorf("keep the stream: %w", err)
	}
	return nil
}

// stream counts the clients that send the stream of an id now.
func (d *daemon) stream(id string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams == nil {
		d.streams = map[string]int{}
	}
	if d.streams[id] += n; d.streams[id] == 0 {
		delete(d.streams, id)
	}
}

func (d *daemon) streaming(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams[id] > 0
}

// hasLog says whether a session has a log of its own.
func (d *daemon) hasLog(provider, session string) bool {
	d.mu.Lock()
	live := d.live
	d.mu.Unlock()
	return live != nil && live.bridge.HasLog(provider, session)
}

// leftStreams lists the streams that the last daemon did not see to their end.
func (d *daemon) leftStreams() []string {
	pending, _ := filepath.Glob(filepath.Join(d.spoolDir(), "*"+pendingSuffix)) // the patterns are well-formed
	decided, _ := filepath.Glob(filepath.Join(d.spoolDir(), "*~*.jsonl"))
	return append(pending, decided...)
}

// adoptSpool ends them, unless their clients come again.
func (d *daemon) adoptSpool(ctx context.Context, left []string) error {
	if len(left) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(rolloutPatience):
	}
	for _, path := range left {
		if err := d.adopt(ctx, path); err != nil {
			return fmt.Errorf("adopt a stream: %w", err)
		}
	}
	return nil
}

func (d *daemon) adopt(ctx context.Context, path string) error {
	id, pending := strings.CutSuffix(filepath.Base(path), pendingSuffix)
	if !pending {
		_, id, _ = strings.Cut(strings.TrimSuffix(id, ".jsonl"), "~")
	}
	if d.streaming(id) {
		return nil // its client sends all of it again
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // decided, or delivered to its end, meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if !pending {
		return endStream(f) // perhaps once more: then it is only removed
	}
	s := &spool{d: d, id: id, file: f}
	if b, err := watch.Read(path, watch.Cursor{}, watch.Limits{MaxRecords: 20, AcceptTail: true}); err == nil {
		for _, r := range b.Records {
			if !s.known {
				s.thread, s.known = codex.StreamThread(r.Data)
			}
		}
	}
	return s.finish(ctx, nil)
}

// spoolProvider finds the kept streams; everything else is codex's own.
type spoolProvider struct{ codex.StreamProvider }

var _ adapters.Keyer = spoolProvider{}

// Roots implements adapters.Provider: home is the spool directory.
func (spoolProvider) Roots(home string) []watch.Root {
	return []watch.Root{{
		Name: "codex/streams", Path: home,
		Classify: func(rel string) watch.Class {
			if strings.Contains(rel, "~") && strings.HasSuffix(rel, ".jsonl") {
				return watch.Log
			}
			return watch.Ignore
		},
		Descend: func(string) bool { return false },
	}}
}

// Locate implements adapters.Provider.
func (p spoolProvider) Locate(_ watch.Root, rel string, _ func() (watch.Record, bool)) (adapters.Place, bool) {
	thread, _, ok := strings.Cut(rel, "~")
	return adapters.Place{Session: thread, Key: p.CursorKey(rel)}, ok
}

// CursorKey implements adapters.Keyer.
func (spoolProvider) CursorKey(rel string) string {
	return "stream:" + strings.TrimSuffix(rel, ".jsonl")
}
