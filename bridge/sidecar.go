package bridge

import (
	"encoding/json"
	"os"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// maxSidecar is more than any sidecar that means something.
const maxSidecar = 1 << 20

// sidecarCursor is what is stored of a sidecar that was read: the form in which it was, so that a start does not read it again.
func sidecarCursor(e watch.Event) []byte {
	enc, _ := json.Marshal([2]int64{e.Size, e.ModTime.UnixNano()}) // two numbers always encode
	return enc
}

// readSidecar reads a small file that describes a stream. Its cursor makes what it said durable.
func (a *actor) readSidecar(path string, f file) {
	if f.event.Size > maxSidecar {
		return
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) > maxSidecar {
		return
	}
	a.pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: f.place.Stream, Data: data}, a.now())
	a.cursors[path] = sidecarCursor(f.event)
	a.keepFile(path, path)
}

// restingSidecar says whether a sidecar that was found is no reason to load its session: it was read before, or it lay there before
// the history window. The latter is read together with whatever else of the session is.
func (b *Bridge) restingSidecar(p adapters.Provider, root string, e watch.Event, place adapters.Place) bool {
	cur, ok, err := b.o.Scope.Cursor(e.Path)
	if err == nil && ok && string(cur) == string(sidecarCursor(e)) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := p.Name() + ":" + place.Session
	if ok || b.actors[key] != nil || !b.pending[root] || b.o.History.Covers(e.ModTime, b.o.Now()) {
		return false
	}
	b.later[key] = append(b.later[key], file{p: p, place: place, event: e})
	return true
}
