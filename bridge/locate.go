package bridge

import (
	"context"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// located is a file's place, and the file it holds for.
type located struct {
	place    adapters.Place
	dev, ino uint64
}

// maxPlaces bounds the memory of located files; one that is forgotten is located again.
const maxPlaces = 20000

// event sorts one event of the watcher to where it belongs.
func (b *Bridge) event(ctx context.Context, e watch.Event) {
	key := rootKey(e.Root, e.RootPath)
	if e.Op == watch.ScanDone {
		b.scanned(ctx, key)
		return
	}
	p := b.provider[key]
	if p == nil {
		return
	}
	if now := b.o.Now(); e.ModTime.After(now) {
		e.ModTime = now // a stamp in the future is no reason to call an agent alive until then
	}
	if e.Class == watch.Log && e.Op == watch.Seen && b.beforeHistory(ctx, p, b.roots[key], e) {
		return
	}
	read := func() (watch.Record, bool) {
		r, ok, err := watch.First(e.Path, watch.Limits{})
		return r, ok && err == nil
	}
	if e.Op == watch.Gone {
		read = func() (watch.Record, bool) { return watch.Record{}, false }
	}
	place, known := b.placeOf(e)
	if !known {
		var ok bool
		if place, ok = p.Locate(b.roots[key], e.Rel, read); !ok {
			b.mu.Lock()
			if e.Op == watch.Gone {
				delete(b.unknown, e.Path)
			} else {
				b.unknown[e.Path] = e
			}
			b.mu.Unlock()
			return
		}
		b.keepPlace(e, place)
	}
	if e.Op == watch.Seen {
		b.placed(key, e.Path, p)
		if place.Kind == adapters.KindMeta && b.restingSidecar(p, key, e, place) {
			return
		}
	}
	b.deliver(p, e, place)
}

// placeOf is the place of a file that was located before and is still the same file: finding it again may cost a read.
func (b *Bridge) placeOf(e watch.Event) (adapters.Place, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.places[e.Path]
	if e.Op == watch.Gone {
		delete(b.places, e.Path)
	}
	return l.place, ok && l.ino == e.Ino && l.dev == e.Dev && e.Ino != 0
}

func (b *Bridge) keepPlace(e watch.Event, place adapters.Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Op == watch.Gone {
		return
	}
	if len(b.places) >= maxPlaces {
		clear(b.places)
	}
	b.places[e.Path] = located{place: place, dev: e.Dev, ino: e.Ino}
}

// placed follows the placing of a new file, which may have told where others belong. In a first scan these are asked once, at
// its end: each may cost a read.
func (b *Bridge) placed(root, path string, p adapters.Provider) {
	b.mu.Lock()
	scanning := b.pending[root]
	delete(b.unknown, path)
	b.mu.Unlock()
	if !scanning {
		b.retryUnknown(p)
	}
}

// retryUnknown asks again for files that could not be placed. It reports whether one was.
func (b *Bridge) retryUnknown(p adapters.Provider) (found bool) {
	b.mu.Lock()
	var again []watch.Event
	for _, e := range b.unknown {
		if b.provider[rootKey(e.Root, e.RootPath)] == p {
			again = append(again, e)
		}
	}
	b.mu.Unlock()
	for _, e := range again {
		place, ok := p.Locate(b.roots[rootKey(e.Root, e.RootPath)], e.Rel, func() (watch.Record, bool) {
			r, ok, err := watch.First(e.Path, watch.Limits{})
			return r, ok && err == nil
		})
		if ok {
			b.mu.Lock()
			delete(b.unknown, e.Path)
			b.mu.Unlock()
			b.deliver(p, e, place)
			found = true
		}
	}
	return found
}

// deliver hands a located file to its session.
func (b *Bridge) deliver(p adapters.Provider, e watch.Event, place adapters.Place) {
	switch place.Kind {
	case adapters.KindProcess:
		b.processFile(p, e)
		return
	case adapters.KindIndex:
		b.indexFile(p, e)
		return
	}
	if place.Session == "" || e.Op == watch.Gone {
		return
	}
	if e.Class == watch.Log && b.form(p) == "" {
		b.mu.Lock()
		b.logs[p.Name()+":"+place.Session] = true
		b.mu.Unlock()
	}
	b.send(p, place.Session, func(a *actor) {
		a.dirty[e.Path] = file{p: p, place: place, event: e}
	})
}
