// Package buffer holds the records of subagents until their parent is registered.
//
// Records flow in per stream, in the order of their file; they flow out of streams that are open, in the same order. A stream
// is opened when its parent's call was emitted; opening a stream whose records open further streams releases a whole tree, each
// child behind its parent. Memory is bounded by a budget shared by all sessions: beyond it the bytes of a held record are
// dropped and only its position is kept, because the file is the buffer; it is read again when its turn comes. Positions are
// never dropped, and survive a restart. The package knows no provider and no meaning of a record.
package buffer

import (
	"fmt"
	"sort"
	"sync/atomic"

	"github.com/happyd/happyd/watch"
)

// A Budget bounds the bytes that all buffers together keep in memory.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget makes a budget of limit bytes; 0 keeps no bytes at all.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is the number of bytes held in memory now.
func (b *Budget) Used() int64 { return b.used.Load() }

// take reserves n bytes and reports false where that would exceed the limit.
func (b *Budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// A Span is a run of held records of one file.
type Span struct {
	Path string `json:"p"`
	From int64  `json:"f"`
	To   int64  `json:"t"`
	N    int    `json:"n"`
}

// Reread reads the records between two offsets of a file, as watch.ReadRange does.
type Reread func(path string, from, to int64, fn func(watch.Record) error) error

// A Buffer holds the records of one session. It is not safe for concurrent use.
type Buffer struct {
	budget *Budget
	reread Reread
	queues map[string]*queue
	opened []string        // open streams with the latest opened last
	held   map[string]bool // streams that hold something; few, most of the time none
}

type queue struct {
	open  bool
	spans []Span // everything held, in order
	// ready are the first records of spans[0], with their bytes.
	ready  []watch.Record
	behind bool // records beyond ready exist only as positions
}

// New makes a buffer. reread brings back what was dropped.
func New(b *Budget, reread Reread) *Buffer {
	return &Buffer{budget: b, reread: reread, queues: map[string]*queue{}, held: map[string]bool{}}
}

func (b *Buffer) queue(stream string) *queue {
	q := b.queues[stream]
	if q == nil {
		q = &queue{}
		b.queues[stream] = q
	}
	return q
}

// Open lets a stream's records flow.
func (b *Buffer) Open(stream string) {
	q := b.queue(stream)
	if !q.open {
		q.open = true
		b.opened = append(b.opened, stream)
	}
}

// Push holds one record at the end of its stream. own says that its file belongs to this stream alone: whatever else lies
// between its records means nothing to anybody, so that one span covers them all and the caller skips the rest again.
func (b *Buffer) Push(stream string, r watch.Record, own bool) {
	q := b.queue(stream)
	if k := len(q.spans) - 1; k >= 0 && q.spans[k].Path == r.Path && (q.spans[k].To == r.Offset || own && q.spans[k].To < r.Offset) {
		q.spans[k].To = r.Next
		q.spans[k].N++
	} else {
		q.spans = append(q.spans, Span{Path: r.Path, From: r.Offset, To: r.Next, N: 1})
	}
	b.held[stream] = true
	if !q.behind && b.budget.take(size(r)) {
		q.ready = append(q.ready, r)
	} else {
		q.behind = true
	}
}

func size(r watch.Record) int64 { return int64(len(r.Data)+len(r.Tail)) + 256 }

// Front returns the first held record of a stream. An error says that its bytes cannot be read again now; the record stays.
func (b *Buffer) Front(stream string) (watch.Record, bool, error) {
	q := b.queues[stream]
	if q == nil || len(q.spans) == 0 {
		return watch.Record{}, false, nil
	}
	if len(q.ready) == 0 {
		if err := b.fill(q); err != nil {
			return watch.Record{}, false, fmt.Errorf("read held records again: %w", err)
		}
	}
	if len(q.ready) == 0 {
		delete(b.held, stream)
		return watch.Record{}, false, nil
	}
	return q.ready[0], true, nil
}

// fillBytes is how much of a span is brought back at once.
const fillBytes = 1 << 20

var errEnough = fmt.Errorf("enough")

// fill reads the first span's records again, up to fillBytes.
func (b *Buffer) fill(q *queue) error {
	for len(q.ready) == 0 && len(q.spans) > 0 {
		s := q.spans[0]
		var got int64
		err := b.reread(s.Path, s.From, s.To, func(r watch.Record) error {
			if got > 0 && got+size(r) > fillBytes {
				return errEnough
			}
			got += size(r)
			b.budget.used.Add(size(r))
			q.ready = append(q.ready, r)
			return nil
		})
		if err != nil && err != errEnough {
			return err
		}
		if len(q.ready) == 0 {
			// The file was rewritten under us: what stood there is read anew from the file's start.
			q.spans = q.spans[1:]
		}
	}
	q.behind = len(q.spans) > 0
	return nil
}

// Pop forgets the first held record of a stream: it was handled.
func (b *Buffer) Pop(stream string) { b.pop(stream, 1) }

// Skip forgets the first record that Front returned because it lies in the same span as held ones, without being one of them.
func (b *Buffer) Skip(stream string) { b.pop(stream, 0) }

func (b *Buffer) pop(stream string, n int) {
	q := b.queues[stream]
	if q == nil || len(q.ready) == 0 {
		return
	}
	r := q.ready[0]
	q.ready[0] = watch.Record{}
	q.ready = q.ready[1:]
	b.budget.used.Add(-size(r))
	s := &q.spans[0]
	s.From = r.Next
	s.N = max(0, s.N-n)
	if s.From >= s.To {
		q.spans = q.spans[1:]
	}
	if len(q.spans) == 0 {
		q.spans, q.ready, q.behind = nil, nil, false
		delete(b.held, stream)
	}
}

// Drop forgets everything of a stream and closes it: it is nobody's child.
func (b *Buffer) Drop(stream string) {
	q := b.queues[stream]
	if q == nil {
		return
	}
	b.release(q.ready)
	delete(b.queues, stream)
	delete(b.held, stream)
	for i, s := range b.opened {
		if s == stream {
			b.opened = append(b.opened[:i], b.opened[i+1:]...)
			break
		}
	}
}

// DropFile forgets the held records of a file that will be read again from its start.
func (b *Buffer) DropFile(path string) {
	for stream, q := range b.queues {
		var kept []Span
		dropped := false
		for _, s := range q.spans {
			if s.Path == path {
				dropped = true
				continue
			}
			kept = append(kept, s)
		}
		if dropped {
			// What stays is read again: the ready records may be of either file.
			q.spans = kept
			b.release(q.ready)
			q.ready, q.behind = nil, len(kept) > 0
			if len(kept) == 0 {
				delete(b.held, stream)
			}
		}
	}
}

func (b *Buffer) release(rs []watch.Record) {
	for _, r := range rs {
		b.budget.used.Add(-size(r))
	}
}

// Close gives the memory back.
func (b *Buffer) Close() {
	for _, q := range b.queues {
		b.release(q.ready)
	}
	b.queues, b.opened, b.held = map[string]*queue{}, nil, map[string]bool{}
}

// Ready lists the open streams that hold records, the latest opened first: a child's records follow its parent's call before
// the parent goes on.
func (b *Buffer) Ready() []string {
	n := 0
	for s := range b.held {
		if b.queues[s].open {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]string, 0, n)
	for i := len(b.opened) - 1; i >= 0; i-- {
		if q := b.queues[b.opened[i]]; q != nil && len(q.spans) > 0 {
			out = append(out, b.opened[i])
		}
	}
	return out
}

// Len is the number of records that a stream holds; it is never 0 while one is left.
func (b *Buffer) Len(stream string) int {
	if q := b.queues[stream]; q != nil {
		return q.len()
	}
	return 0
}

func (q *queue) len() int {
	n := 0
	for _, s := range q.spans {
		n += max(1, s.N)
	}
	return n
}

// Orphans counts the records of streams that are not open, and these streams.
func (b *Buffer) Orphans() (records, streams int) {
	for _, q := range b.queues {
		if n := q.len(); !q.open && n > 0 {
			records += n
			streams++
		}
	}
	return records, streams
}

// Held is the saved form of a stream.
type Held struct {
	Stream string `json:"k"`
	Open   bool   `json:"o,omitempty"`
	Spans  []Span `json:"s,omitempty"`
}

// Save returns the positions of everything held and which streams are open, for Restore.
func (b *Buffer) Save() []Held {
	var out []Held
	for _, s := range b.opened {
		out = append(out, Held{Stream: s, Open: true, Spans: append([]Span(nil), b.queues[s].spans...)})
	}
	n := len(out)
	for s, q := range b.queues {
		if !q.open && len(q.spans) > 0 {
			out = append(out, Held{Stream: s, Spans: append([]Span(nil), q.spans...)})
		}
	}
	sort.Slice(out[n:], func(i, j int) bool { return out[n+i].Stream < out[n+j].Stream })
	return out
}

// Restore continues from what Save returned; the records are read again when their turn comes.
func (b *Buffer) Restore(held []Held) {
	for _, h := range held {
		q := b.queue(h.Stream)
		q.spans = append([]Span(nil), h.Spans...)
		if q.behind = len(q.spans) > 0; q.behind {
			b.held[h.Stream] = true
		}
		if h.Open {
			b.Open(h.Stream)
		}
	}
}

// IsOpen says whether a stream's records may flow.
func (b *Buffer) IsOpen(stream string) bool {
	q := b.queues[stream]
	return q != nil && q.open
}
