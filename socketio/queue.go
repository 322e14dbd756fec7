package socketio

import (
	"context"
	"sync"
)

// backlogLimit bounds the bytes that wait in one direction of a connection.
// One item larger than that still passes when nothing else waits.
const backlogLimit = 32 << 20

// queue hands items from many producers to one consumer, in order, bounded by
// the bytes that wait.
type queue[T any] struct {
	mu     sync.Mutex
	items  []queued[T]
	bytes  int
	limit  int
	closed bool
	wake   chan struct{} // capacity 1: something changed
}

type queued[T any] struct {
	item T
	size int
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{limit: backlogLimit, wake: make(chan struct{}, 1)}
}

// push adds an item; it reports false when the queue is full or closed.
func (q *queue[T]) push(item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || (len(q.items) > 0 && q.bytes+size > q.limit) {
		return false
	}
	q.items = append(q.items, queued[T]{item, size})
	q.bytes += size
	q.signal()
	return true
}

// close lets no further item in, after last. The consumer still gets what waits.
func (q *queue[T]) close(last ...T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, item := range last {
		q.items = append(q.items, queued[T]{item: item})
	}
	q.closed = true
	q.signal()
}

// pop waits for the next item; false means that there will be none, or that
// ctx ended.
func (q *queue[T]) pop(ctx context.Context) (item T, ok bool) {
	for ctx.Err() == nil {
		q.mu.Lock()
		if len(q.items) > 0 {
			head := q.items[0]
			q.items[0] = queued[T]{}
			if q.items = q.items[1:]; len(q.items) == 0 {
				q.items = nil
			}
			q.bytes -= head.size
			q.mu.Unlock()
			return head.item, true
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return item, false
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return item, false
}

func (q *queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
