package uplink

import (
	"context"
	"sync"
	"time"
)

// queue hands out keys of work, each to one worker at a time and first come,
// first served: a key that has more to do goes to the end of the line.
type queue struct {
	mu      sync.Mutex
	ready   []string
	items   map[string]*item
	changed chan struct{} // closed and replaced when ready grows
}

type item struct {
	running bool
	queued  bool        // in ready
	again   bool        // asked for while running
	timer   *time.Timer // running while the key is delayed
}

func newQueue() *queue {
	return &queue{items: make(map[string]*item), changed: make(chan struct{})}
}

// add asks for work on key. A delayed key stays delayed.
func (q *queue) add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil {
		it = &item{}
		q.items[key] = it
	}
	switch {
	case it.running:
		it.again = true
	case it.queued, it.timer != nil:
	default:
		q.push(key, it)
	}
}

func (q *queue) push(key string, it *item) {
	it.queued = true
	q.ready = append(q.ready, key)
	close(q.changed)
	q.changed = make(chan struct{})
}

// next waits for a key; done must follow.
func (q *queue) next(ctx context.Context) (string, error) {
	for {
		q.mu.Lock()
		if len(q.ready) > 0 && ctx.Err() == nil {
			key := q.ready[0]
			q.ready = q.ready[1:]
			it := q.items[key]
			it.queued, it.running = false, true
			q.mu.Unlock()
			return key, nil
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-changed:
		}
	}
}

// done ends the work on key. With more it is queued again, after delay if that
// is positive.
func (q *queue) done(key string, more bool, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	it.running = false
	again := it.again || more
	it.again = false
	switch {
	case !again:
		delete(q.items, key)
	case delay <= 0:
		q.push(key, it)
	default:
		it.timer = time.AfterFunc(delay, func() { q.release(key, it) })
	}
}

func (q *queue) release(key string, it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.timer != nil {
		it.timer = nil
		q.push(key, it)
	}
}

// hurry ends all delays.
func (q *queue) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, it := range q.items {
		if it.timer != nil && it.timer.Stop() {
			it.timer = nil
			q.push(key, it)
		}
	}
}

// stop drops the timers.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.items {
		if it.timer != nil {
			it.timer.Stop()
			it.timer = nil
		}
	}
}
