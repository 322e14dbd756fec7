package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/watch"
)

// beforeHistory leaves logs alone that were complete before the history window: they start at their end, and are not opened.
// Files that are handled already to their last byte are left alone, too.
func (b *Bridge) beforeHistory(ctx context.Context, p adapters.Provider, root watch.Root, e watch.Event) bool {
	key := cursorKey(p, e)
	raw, ok, err := b.o.Scope.Cursor(key)
	if err != nil {
		b.log.Error("reading a cursor", "error", err)
		return false
	}
	if ok {
		var c watch.Cursor
		if json.Unmarshal(raw, &c) != nil || e.Ino != 0 && c.Ino != e.Ino { // 0: the system does not tell
			return false
		}
		return c.Offset == e.Size || c.Packed == e.Size && packed(e.Path)
	}
	if b.o.History.Covers(e.ModTime, b.o.Now()) {
		return false
	}
	b.mu.Lock()
	scanning := b.pending[rootKey(root.Name, root.Path)]
	b.mu.Unlock()
	if !scanning && b.o.Now().Sub(e.ModTime) < time.Minute {
		return false // written while we watch: this is no history
	}
	c, ok := e.End()
	if !ok && packed(e.Path) {
		// The size tells nothing: it is unpacked once, at the first start.
		c, err = watch.End(e.Path)
		ok = err == nil
	}
	if !ok {
		return false
	}
	enc, _ := json.Marshal(c)
	b.mu.Lock()
	b.old[key] = enc
	full := len(b.old)%2000 == 0 // more only wait while the disk takes none
	b.mu.Unlock()
	if full || !scanning {
		b.flushOld(ctx)
	}
	return true
}

// packed says whether a log is compressed: its cursor counts unpacked bytes.
func packed(path string) bool { return strings.HasSuffix(path, ".zst") }

// cursorKey is the key of a log's cursor.
func cursorKey(p adapters.Provider, e watch.Event) string {
	if k, ok := p.(adapters.Keyer); ok {
		if key := k.CursorKey(e.Rel); key != "" {
			return key
		}
	}
	return e.Path
}

// flushOld stores the cursors of logs from before the history window. Until they are stored they stay where oldCursor finds them:
// a log whose cursor nobody knew for a moment would be read from its start.
func (b *Bridge) flushOld(ctx context.Context) {
	b.mu.Lock()
	old := maps.Clone(b.old)
	b.mu.Unlock()
	if len(old) == 0 {
		return
	}
	if err := b.o.Scope.Commit(ctx, store.Commit{Cursors: old}); err != nil {
		b.log.Error("storing cursors of old logs; trying again with the next", "error", err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, cur := range old {
		if bytes.Equal(b.old[key], cur) {
			delete(b.old, key)
		}
	}
}

// oldCursor takes over the cursor of a log from before the history window that could not be stored yet.
func (b *Bridge) oldCursor(key string) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cur, ok := b.old[key]
	delete(b.old, key)
	return cur, ok
}

// scanned follows a root's first scan.
func (b *Bridge) scanned(ctx context.Context, key string) {
	b.flushOld(ctx)
	for p := b.provider[key]; p != nil && b.retryUnknown(p); {
	}
	b.mu.Lock()
	delete(b.pending, key)
	done := len(b.pending) == 0
	if done {
		for _, a := range b.actors {
			a.wake() // the clock may decide now
		}
	}
	b.mu.Unlock()
	if done {
		b.correctPresence()
	}
}
