package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sort"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/watch"
)

// read goes through the files that changed. It reports whether something is left for another round.
func (a *actor) read(ctx context.Context, dirty map[string]file) (again bool) {
	paths := sortedKeys(dirty)
	sort.SliceStable(paths, func(i, j int) bool { return rank(dirty[paths[i]].place) < rank(dirty[paths[j]].place) })
	for i, path := range paths {
		if ctx.Err() != nil {
			return true
		}
		f := dirty[path]
		if f.p != a.p {
			a.b.count("log of a session that is mapped from a stream, or the other way round", 1)
			if a.b.form(f.p) == FormStream {
				_ = os.Remove(path) // the log says all of it; what was piped in must not lie about for ever
			}
			continue
		}
		if f.place.Kind == adapters.KindMeta {
			a.readSidecar(path, f)
			continue
		}
		if !a.readLog(ctx, path, f) {
			a.mu.Lock()
			for _, rest := range paths[i:] {
				if _, newer := a.dirty[rest]; !newer {
					a.dirty[rest] = dirty[rest]
				}
			}
			a.mu.Unlock()
			return true
		}
	}
	return false
}

// rank is the reading order: what describes a child before the child, parents before children.
func rank(p adapters.Place) int {
	switch {
	case p.Kind == adapters.KindMeta:
		return 1
	case p.Stream == adapters.Main:
		return 0
	}
	return 2
}

// readLog reads a log from its cursor to its end, in batches that are each one transaction. It reports false where it stopped
// before the end.
func (a *actor) readLog(ctx context.Context, path string, f file) bool {
	key := f.cursorKey(path)
	if f.event.ModTime.After(a.grew) {
		a.grew = f.event.ModTime
	}
	limits := watch.Limits{MaxBytes: batchBytes, MaxRecords: batchRecords, AcceptTail: a.b.o.Now().Sub(f.event.ModTime) >= tailStill}
	if packed(path) {
		// Each batch unpacks all in front of it again: few large ones, or the cost is the square of the length.
		limits.MaxBytes, limits.MaxRecords = packedBytes, 0
	}
	rebasing := false
	for {
		if a.gated() {
			return false // also where it was before: reading on would only fill the memory
		}
		cur, err := a.cursor(key)
		if err != nil {
			a.b.log.Error("reading a cursor", "session", a.key, "error", err)
			return false
		}
		batch, err := watch.Read(path, cur, limits)
		if err != nil && len(batch.Records) == 0 {
			if errors.Is(err, fs.ErrNotExist) {
				return true
			}
			a.b.count("unreadable "+a.p.Name()+" log", 1)
			a.b.log.Warn("a log cannot be read; it is tried again when it changes", "session", a.key, "error", bareError(err))
			return true
		}
		if batch.Reset {
			a.pump.Reset(path, f.place)
		}
		a.countSkips(batch.Skipped)
		if rebasing = rebasing || f.place.Rebase && (batch.Reset || cur.Offset == 0); rebasing {
			batch.Records = nil // the same content in another form: it was sent, or is history
		}
		for _, r := range batch.Records {
			a.feed(f.place, r)
		}
		if enc, err := json.Marshal(batch.Cursor); err == nil {
			a.cursors[key] = enc
		}
		a.keepFile(key, path)
		a.offsets[path] = batch.Cursor.Offset
		delete(a.partial, path)
		if batch.Partial > 0 && !batch.More {
			a.partial[path] = f
		}
		a.collect()
		if !batch.More {
			return true
		}
		a.flush(ctx)
		if ctx.Err() != nil || a.b.o.Full() || a.gated() {
			return false
		}
		// A long log takes turns with the others.
		if a.freeSlot(); !a.takeSlot(ctx) {
			return false
		}
	}
}

// feed hands one record to the pump unless its directory is excluded.
func (a *actor) feed(place adapters.Place, r watch.Record) {
	if a.saved.Form == FormStream && string(r.Data) == StreamEnd {
		a.pump.Observe(adapters.Observation{Kind: adapters.ObserveEnd}, a.now())
		a.observeProcess(adapters.Process{Known: true})
		a.streamed = r.Path
		return
	}
	if len(a.b.o.Projects.Exclude) > 0 {
		cwd := a.recordCwd(r.Data)
		if a.saved.Cwd == nil {
			a.saved.Cwd = map[string]string{}
		}
		if cwd == "" {
			cwd = a.saved.Cwd[r.Path]
		} else {
			a.saved.Cwd[r.Path] = cwd
		}
		if cwd != "" && a.b.o.Projects.Excluded(cwd) {
			a.b.count("withheld record of an excluded directory", 1)
			return
		}
	}
	a.pump.Feed(place, r, a.now())
}

// recordCwd is the working directory that a record names, "" when it names none.
func (a *actor) recordCwd(data []byte) string {
	if p, ok := a.p.(adapters.CwdReader); ok {
		return p.RecordCwd(data)
	}
	return adapters.String(adapters.Fields(data, "cwd")[0])
}

func (a *actor) countSkips(s watch.Skips) {
	a.b.count("line that is no JSON object", int64(s.Invalid))
	a.b.count("line with NUL bytes", int64(s.NUL))
	a.b.count("oversize line", int64(s.Oversize))
	a.b.count("glued line", int64(s.Glued))
}

// cursor is the position in a log, as changed in this batch or as stored.
func (a *actor) cursor(key string) (watch.Cursor, error) {
	var c watch.Cursor
	raw, ok := a.cursors[key]
	if !ok {
		// In this order: a cursor is taken out of the former only when the latter has it.
		if raw, ok = a.b.oldCursor(key); ok {
			a.cursors[key] = raw // from now on it is this session's to store
		}
	}
	if !ok {
		var err error
		if raw, ok, err = a.b.o.Scope.Cursor(key); err != nil || !ok {
			return c, err
		}
	}
	if json.Unmarshal(raw, &c) != nil {
		return watch.Cursor{}, nil
	}
	return c, nil
}

// collect takes the pump's envelopes.
func (a *actor) collect() {
	out, _ := a.pump.Take()
	a.envs = append(a.envs, out...)
	for _, e := range out {
		a.envBytes += len(e.Ev.Text) + len(e.Ev.Args) + 300
	}
}

// skip moves over what a session writes that is not (or no longer) mirrored.
func (a *actor) skip(ctx context.Context, dirty map[string]file) {
	cursors := map[string][]byte{}
	for path, f := range dirty {
		if f.place.Kind != adapters.KindLog {
			cursors[path] = sidecarCursor(f.event)
			continue
		}
		key := f.cursorKey(path)
		if c, ok := f.event.End(); ok {
			if enc, err := json.Marshal(c); err == nil {
				cursors[key] = enc
			}
		}
	}
	a.envs, a.envBytes, a.cursors = nil, 0, map[string][]byte{}
	clear(a.partial)
	if len(cursors) == 0 {
		return
	}
	if err := a.b.o.Scope.Commit(ctx, store.Commit{Session: a.key, Cursors: cursors}); err != nil && ctx.Err() == nil {
		a.b.log.Error("storing a cursor", "session", a.key, "error", err)
	}
}

// bareError drops the path from a file error: names of directories are nobody's business in a log.
func bareError(err error) error {
	if errors.Is(err, watch.ErrCorrupt) {
		return watch.ErrCorrupt
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
