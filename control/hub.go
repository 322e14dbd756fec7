package control

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/happyd/happyd/protocol"
)

// Limits of the hub. The ring serves `tail -n`, not as an archive: the logs
// of the agents are that.
const (
	ringLines = 1000
	ringBytes = 4 << 20

	// What a reader may be behind before it misses lines.
	readerLines = 1024
	readerBytes = 8 << 20
)

// TailLine is one line of the tail stream: an envelope, or a note that lines
// were left out because the reader was too slow.
type TailLine struct {
	Session  string             `json:"session,omitempty"` // the provider's session id
	Provider string             `json:"provider,omitempty"`
	Env      *protocol.Envelope `json:"env,omitempty"`
	Missed   int                `json:"missed,omitempty"`
}

// Hub hands envelopes to the readers of the tail stream and remembers the last
// ones. Its zero value is ready. It is safe for concurrent use.
type Hub struct {
	mu      sync.Mutex
	ring    []line // oldest first
	bytes   int    // of the ring's lines
	readers map[*reader]struct{}
}

// line is an encoded TailLine. It is encoded once, when it is published: that
// also frees the record that the envelope's parts may point into.
type line struct {
	session string
	data    []byte // JSON and a newline
}

// reader is one tail request. Its fields but wake are guarded by Hub.mu.
type reader struct {
	session string // "" for all
	queue   []line
	bytes   int           // in the queue
	missed  int           // lines left out after those in the queue
	wake    chan struct{} // holds one token while there is something to take
}

// Publish shows an envelope to whoever is watching. It never waits.
func (h *Hub) Publish(session, provider string, env protocol.Envelope) {
	data, err := encode(session, provider, env)
	if err != nil {
		return // such an envelope is not sent either; that is reported where it is made
	}
	l := line{session: session, data: data}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.remember(l)
	for r := range h.readers {
		r.offer(l)
	}
}

// encode writes what json.Marshal would write for a TailLine. It runs for every
// envelope, watched or not, so the envelope's own encoding is not checked and
// compacted a second time.
func encode(session, provider string, env protocol.Envelope) ([]byte, error) {
	head, err := json.Marshal(TailLine{Session: session, Provider: provider})
	if err != nil {
		return nil, err
	}
	body, err := env.MarshalJSON()
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, len(head)+len(body)+len(`,"env":`)+2)
	data = append(data, head[:len(head)-1]...)
	if len(head) > len(`{}`) {
		data = append(data, ',')
	}
	data = append(data, `"env":`...)
	data = append(data, body...)
	return append(data, "}\n"...), nil
}

func (h *Hub) remember(l line) {
	h.ring = append(h.ring, l)
	h.bytes += len(l.data)
	drop := 0
	for len(h.ring)-drop > ringLines || h.bytes > ringBytes && drop < len(h.ring) {
		h.bytes -= len(h.ring[drop].data)
		h.ring[drop] = line{}
		drop++
	}
	h.ring = h.ring[drop:] // append moves the rest to a new array now and then
}

// offer runs with the hub's lock held. Once a line was left out, so are the
// following ones until the reader has taken what is queued: the note about them
// then stands where they would have been.
func (r *reader) offer(l line) {
	if r.session != "" && r.session != l.session {
		return
	}
	full := len(r.queue) >= readerLines || len(r.queue) > 0 && r.bytes+len(l.data) > readerBytes
	if full || r.missed > 0 {
		r.missed++
		return
	}
	r.queue = append(r.queue, l)
	r.bytes += len(l.data)
	r.signal()
}

func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// subscribe starts with the last n lines (of one session, or of all) and goes
// on with what is published from now on, without a gap between the two.
func (h *Hub) subscribe(session string, n int) *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &reader{session: session, wake: make(chan struct{}, 1)}
	for i := len(h.ring) - 1; i >= 0 && len(r.queue) < n; i-- {
		if l := h.ring[i]; session == "" || l.session == session {
			r.queue = append(r.queue, l)
			r.bytes += len(l.data)
		}
	}
	slices.Reverse(r.queue)
	if len(r.queue) > 0 {
		r.signal()
	}
	if h.readers == nil {
		h.readers = map[*reader]struct{}{}
	}
	h.readers[r] = struct{}{}
	return r
}

// take empties a reader's queue.
func (h *Hub) take(r *reader) (lines []line, missed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines, missed = r.queue, r.missed
	r.queue, r.bytes, r.missed = nil, 0, 0
	return lines, missed
}

func (h *Hub) unsubscribe(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}
