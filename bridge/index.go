package bridge

import (
	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// index is what was read of a file that names sessions.
type index struct {
	cursor watch.Cursor
	titles map[string]string // by session
}

// indexFile reads what was appended to a file that names sessions, and passes the names on.
func (b *Bridge) indexFile(p adapters.Provider, e watch.Event) {
	parser, ok := p.(adapters.IndexParser)
	if !ok || e.Op == watch.Gone {
		return
	}
	b.mu.Lock()
	ix := b.indexes[e.Path]
	if ix == nil {
		ix = &index{titles: map[string]string{}}
		b.indexes[e.Path] = ix
	}
	b.mu.Unlock()
	news := map[string]string{}
	for {
		batch, err := watch.Read(e.Path, ix.cursor, watch.Limits{})
		if err != nil {
			return // it is read again when it changes
		}
		ix.cursor = batch.Cursor
		for _, r := range batch.Records {
			if session, title, ok := parser.ParseIndex(r.Data); ok {
				news[session] = title
			}
		}
		if !batch.More {
			break
		}
	}
	for session, title := range news {
		b.mu.Lock()
		ix.titles[session] = title
		_, loaded := b.actors[p.Name()+":"+session]
		b.mu.Unlock()
		if loaded {
			b.send(p, session, func(a *actor) { a.observed = append(a.observed, titleOf(title)) })
		}
	}
}

func titleOf(title string) adapters.Observation {
	return adapters.Observation{Kind: adapters.ObserveTitle, Data: []byte(title)}
}

// indexed is the name that an index file gives a session, "" when there is none.
func (b *Bridge) indexed(session string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ix := range b.indexes {
		if t := ix.titles[session]; t != "" {
			return t
		}
	}
	return ""
}
