package relay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/happyd/happyd/socketio"
)

// Client types: what a socket is interested in.
const (
	userScoped    = "user-scoped"    // everything of the account
	sessionScoped = "session-scoped" // one session's messages and updates
	machineScoped = "machine-scoped" // one machine's updates
)

// conn is one connected socket.
type conn struct {
	socket  *socketio.Socket
	account string
	kind    string
	session string // of a session-scoped conn
	machine string // of a machine-scoped conn
	drop    context.CancelFunc
}

// audience picks the conns of an account that get an event.
type audience func(*conn) bool

func users(c *conn) bool { return c.kind == userScoped }

// followers are those interested in a session.
func followers(session string) audience {
	return func(c *conn) bool {
		return c.kind == userScoped || (c.kind == sessionScoped && c.session == session)
	}
}

// watchers are those interested in a machine.
func watchers(machine string) audience {
	return func(c *conn) bool {
		return c.kind == userScoped || (c.kind == machineScoped && c.machine == machine)
	}
}

func except(a audience, skip *conn) audience {
	return func(c *conn) bool { return c != skip && a(c) }
}

// hub knows the connected sockets and which of them answer which remote
// procedure.
type hub struct {
	log *slog.Logger

	mu      sync.Mutex
	closed  bool
	conns   map[string]map[*conn]bool     // by account
	methods map[string]map[string][]*conn // by account and method; the first answers
	running sync.WaitGroup                // socket requests
}

func newHub(log *slog.Logger) *hub {
	return &hub{log: log, conns: map[string]map[*conn]bool{}, methods: map[string]map[string][]*conn{}}
}

// enter counts a socket request in; false means that the relay is closing.
func (h *hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running.Add(1)
	return true
}

func (h *hub) leave() { h.running.Done() }

// close lets no more sockets in and waits for those that are there.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.running.Wait()
}

// wait returns when no socket is connected at the moment.
func (h *hub) wait() { h.running.Wait() }

func (h *hub) add(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns[c.account] == nil {
		h.conns[c.account] = map[*conn]bool{}
	}
	h.conns[c.account][c] = true
}

func (h *hub) remove(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns[c.account], c)
	if len(h.conns[c.account]) == 0 {
		delete(h.conns, c.account)
	}
	for method := range h.methods[c.account] {
		h.unregister(c, method)
	}
}

func (h *hub) count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conns := range h.conns {
		n += len(conns)
	}
	return n
}

// register makes c answer a method, after those that do already.
func (h *hub) register(c *conn, method string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.conns[c.account][c] {
		return
	}
	if h.methods[c.account] == nil {
		h.methods[c.account] = map[string][]*conn{}
	}
	for _, other := range h.methods[c.account][method] {
		if other == c {
			return
		}
	}
	h.methods[c.account][method] = append(h.methods[c.account][method], c)
}

// unregister takes c off a method; the caller holds h.mu.
func (h *hub) unregister(c *conn, method string) {
	var rest []*conn
	for _, other := range h.methods[c.account][method] {
		if other != c {
			rest = append(rest, other)
		}
	}
	if rest != nil {
		h.methods[c.account][method] = rest
		return
	}
	delete(h.methods[c.account], method)
	if len(h.methods[c.account]) == 0 {
		delete(h.methods, c.account)
	}
}

// answering returns the conn that answers a method, nil if there is none.
func (h *hub) answering(account, method string) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if conns := h.methods[account][method]; len(conns) > 0 {
		return conns[0]
	}
	return nil
}

// emit sends an event to those of an account that to picks. It never blocks; a
// socket that does not read is dropped and fetches what it missed when it comes
// back.
func (h *hub) emit(account, event string, to audience, payload func() any) {
	h.mu.Lock()
	var picked []*conn
	for c := range h.conns[account] {
		if to(c) {
			picked = append(picked, c)
		}
	}
	h.mu.Unlock()
	if len(picked) == 0 {
		return
	}
	b, err := json.Marshal(payload())
	if err != nil {
		h.log.Error("relay: encoding an event", "event", event, "err", err)
		return
	}
	for _, c := range picked {
		if err := c.socket.Emit(event, json.RawMessage(b)); err != nil {
			c.drop()
		}
	}
}

// ephemeral sends an event that leaves no trace.
func (h *hub) ephemeral(account string, to audience, payload any) {
	h.emit(account, "ephemeral", to, func() any { return payload })
}

// update is the envelope of everything that changed durably.
type update struct {
	ID        string `json:"id"`
	Seq       int64  `json:"seq"` // counts the account's updates
	Body      any    `json:"body"`
	CreatedAt int64  `json:"createdAt"`
}

// push sends an update.
func (h *hub) push(account string, to audience, seq, now int64, body any) {
	h.emit(account, "update", to, func() any {
		return update{ID: rand.Text()[:12], Seq: seq, Body: body, CreatedAt: now}
	})
}

// nextUpdates reserves n update numbers of an account and returns the first.
func nextUpdates(tx *bbolt.Tx, id string, n int64) (int64, error) {
	var a account
	if _, err := load(tx, bucketAccounts, id, &a); err != nil {
		return 0, err
	}
	first := a.Seq + 1
	a.Seq += n
	return first, save(tx, bucketAccounts, id, a)
}
