package socketio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// closeGrace is how long an orderly close may take to hand over what is queued
// and to see the peer's answer.
const closeGrace = 2 * time.Second

// handler receives an event; ack answers it and is never nil.
type handler func(name string, args []json.RawMessage, ack func(args ...any))

// peer is one running connection, the same on both sides.
//
// Three goroutines serve it: one reads, one writes, one calls the handler.
// They are apart so that a handler may take its time, and may itself make
// calls, while pings are still answered and acknowledgements still arrive.
type peer struct {
	ws       *websocket.Conn
	handle   handler
	silence  time.Duration // without a byte for this long, the peer is gone
	interval time.Duration // between pings of ours; 0 on the client side
	maxSend  int64         // bytes in a packet that the peer accepts; 0 = any

	ctx    context.Context // ends with the connection; its cause says why
	cancel context.CancelCauseFunc
	watch  *time.Timer  // fires after silence
	seen   atomic.Int64 // wall clock, ns since 1970, of the last byte heard
	out    *queue[[]byte]
	in     *queue[packet]
	group  sync.WaitGroup // all but the dispatcher, which may be in the handler
	idle   chan struct{}  // closed when the handler has seen its last event

	mu     sync.Mutex
	calls  map[int64]chan []json.RawMessage
	nextID int64
	reason error // why this side closes, once it does
}

func newPeer(ws *websocket.Conn, h handler) *peer {
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &peer{
		ws: ws, handle: h, ctx: ctx, cancel: cancel,
		out: newQueue[[]byte](), in: newQueue[packet](),
		idle:  make(chan struct{}),
		calls: make(map[int64]chan []json.RawMessage),
	}
	p.seen.Store(time.Now().UnixNano())
	return p
}

// start runs the connection. What is already in the out queue goes first.
func (p *peer) start() {
	p.watch = time.AfterFunc(p.silence, func() { p.end(ErrSilent) })
	p.group.Add(2)
	go p.read()
	go p.write()
	go p.dispatch()
	if p.interval > 0 {
		p.group.Add(1)
		go p.ping()
	}
}

// wait returns when nothing reads or writes any more and the socket is closed.
// The handler may still be at work; see idle.
func (p *peer) wait() {
	<-p.ctx.Done()
	p.out.close()
	p.group.Wait()
	p.watch.Stop()
	p.ws.CloseNow() // an already closed socket is the usual case
}

// end ends the connection at once.
func (p *peer) end(cause error) {
	p.mu.Lock()
	if p.reason != nil {
		cause = p.reason
	}
	p.mu.Unlock()
	p.cancel(cause)
}

// shut ends the connection in an orderly way: what is queued is sent first,
// then last, then WebSocket's own goodbye, all within closeGrace.
func (p *peer) shut(reason error, last ...[]byte) {
	p.mu.Lock()
	if p.reason == nil {
		p.reason = reason
	}
	p.mu.Unlock()
	grace := time.AfterFunc(closeGrace, func() { p.end(reason) })
	defer grace.Stop()
	p.out.close(last...)
	p.wait()
}

// err is nil while the connection runs.
func (p *peer) err() error {
	if p.ctx.Err() == nil {
		return nil
	}
	return context.Cause(p.ctx)
}

func (p *peer) read() {
	defer p.group.Done()
	defer p.in.close()
	for {
		kind, r, err := p.ws.Reader(p.ctx)
		if err != nil {
			p.end(readError(err))
			return
		}
		b, err := io.ReadAll(&listener{p, r})
		if err != nil {
			p.end(readError(err))
			return
		}
		if kind != websocket.MessageText {
			continue // attachments of binary packets
		}
		f, err := decode(b)
		if err != nil {
			p.end(err)
			return
		}
		if !p.receive(f, len(b)) {
			return
		}
	}
}

// readError words the end of the stream; a peer that said goodbye in
// WebSocket's terms is no failure of the network.
func readError(err error) error {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return fmt.Errorf("reading: %w", err)
	}
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd:
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return fmt.Errorf("reading: %w", err)
}

// receive acts on a frame; false ends the reading.
func (p *peer) receive(f frame, size int) bool {
	switch f.engine {
	case enginePing:
		p.send(frame{engine: enginePong, data: f.data}.encode()) // a full queue is closed by silence
		return true
	case engineClose:
		p.end(ErrDisconnected)
		return false
	case engineMessage:
	default:
		return true
	}
	if f.packet.nsp != rootNamespace {
		return true // nobody connected to it
	}
	switch f.packet.kind {
	case kindDisconnect:
		p.end(ErrDisconnected)
		return false
	case kindEvent:
		if p.handle != nil && !p.in.push(f.packet, size) {
			p.end(ErrBacklog)
			return false
		}
	case kindAck:
		p.mu.Lock()
		if ch, ok := p.calls[f.packet.id]; ok {
			delete(p.calls, f.packet.id)
			ch <- f.packet.args
		}
		p.mu.Unlock()
	}
	return true
}

func (p *peer) write() {
	defer p.group.Done()
	for {
		b, ok := p.out.pop(p.ctx)
		if !ok {
			break
		}
		if err := p.ws.Write(p.ctx, websocket.MessageText, b); err != nil {
			p.end(fmt.Errorf("writing: %w", err))
			return
		}
	}
	if p.ctx.Err() == nil { // the queue was closed and is empty: say goodbye
		p.ws.Close(websocket.StatusNormalClosure, "") // the end is what is wanted
		p.end(ErrClosed)
	}
}

func (p *peer) ping() {
	defer p.group.Done()
	t := time.NewTicker(p.interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.send([]byte{enginePing}) // a full queue is closed by silence
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *peer) dispatch() {
	defer close(p.idle)
	for {
		pk, ok := p.in.pop(context.Background())
		if !ok {
			return
		}
		p.mu.Lock()
		closing := p.reason != nil
		p.mu.Unlock()
		if closing {
			continue // whoever closed the connection wants no more of it
		}
		p.handle(pk.event(), pk.args[1:], p.acker(pk.id))
	}
}

// acker returns the function that answers event number id, once.
func (p *peer) acker(id int64) func(args ...any) {
	if id == noID {
		return func(...any) {}
	}
	var once sync.Once
	return func(args ...any) {
		once.Do(func() {
			if b, err := ackFrame(id, args); err == nil {
				p.send(b) // the caller's side sees the connection end
			}
		})
	}
}

// send queues an encoded packet.
func (p *peer) send(b []byte) error {
	if p.maxSend > 0 && int64(len(b)) > p.maxSend {
		return fmt.Errorf("%w: %d of %d bytes", ErrTooLarge, len(b), p.maxSend)
	}
	if p.out.push(b, len(b)) {
		return nil
	}
	if err := p.err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != nil {
		return p.reason
	}
	return ErrBacklog
}

func (p *peer) emit(ctx context.Context, event string, args []any) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("emitting %s: %w", event, err)
	}
	b, err := eventFrame(noID, event, args)
	if err != nil {
		return err
	}
	if err := p.send(b); err != nil {
		return fmt.Errorf("emitting %s: %w", event, err)
	}
	return nil
}

func (p *peer) call(ctx context.Context, event string, args []any) ([]json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("calling %s: %w", event, err)
	}
	answer := make(chan []json.RawMessage, 1)
	p.mu.Lock()
	id := p.nextID
	p.nextID++
	p.calls[id] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.calls, id)
		p.mu.Unlock()
	}()

	b, err := eventFrame(id, event, args)
	if err != nil {
		return nil, err
	}
	if err := p.send(b); err != nil {
		return nil, fmt.Errorf("calling %s: %w", event, err)
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.ctx.Done():
		err = p.err()
	}
	select {
	case a := <-answer: // it came together with the end
		return a, nil
	default:
		return nil, fmt.Errorf("calling %s: %w", event, err)
	}
}

// listener notes that the peer is alive with every piece it delivers, so that
// a large frame on a slow line does not count as silence.
type listener struct {
	p *peer
	r io.Reader
}

func (l *listener) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if n > 0 {
		l.p.seen.Store(time.Now().UnixNano())
		l.p.watch.Reset(l.p.silence)
	}
	return n, err
}
