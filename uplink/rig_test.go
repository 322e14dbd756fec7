package uplink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink/fakehappy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an uplink, its store and a server, on pipes in memory inside a
// synctest bubble: time is the test's, and an hour costs nothing.
type rig struct {
	t      *testing.T
	fake   *fakehappy.Server
	url    string
	client *http.Client
	path   string
	store  *store.Store
	scope  *store.Scope
	acc    *crypto.Account
	logs   *logBuffer
	up     *Uplink
	stop   func() time.Duration

	mu    sync.Mutex
	token string
	wall  time.Duration // added to the wall clock
	creds chan struct{}
	gone  []string
	anew  []string
	seq   map[string]int
	keys  map[string]crypto.SessionKeys // by tag; making them is slow
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// inBubble runs a test with a rig whose uplink has not been started.
func inBubble(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := fakehappy.New()
		r := newRig(t, fake, fake.StartInMemory())
		defer r.close()
		fn(t, r)
	})
}

func newRig(t *testing.T, fake *fakehappy.Server, url string) *rig {
	t.Helper()
	acc, err := crypto.NewDataKeyAccount(bytes.Repeat([]byte{9}, 32), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fake: fake, url: url, client: fake.Client(), acc: acc, token: fakehappy.Token("acc"),
		path: filepath.Join(fastDir(t), "state.db"), creds: make(chan struct{}, 1), seq: make(map[string]int),
		keys: make(map[string]crypto.SessionKeys),
		logs: &logBuffer{}}
	r.openStore()
	return r
}

// fastDir is a directory where fsync costs nothing, if the system has one: what
// survives a power cut is the store's test.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "happyd-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (r *rig) openStore() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(r.path, store.Options{}); err != nil {
		r.t.Fatal(err)
	}
	if r.scope, err = r.store.Scope("server|account"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) options() Options {
	return Options{
		BaseURL: r.url, Scope: r.scope, Account: r.acc, HTTPClient: r.client,
		Token: func() (string, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.token, nil
		},
		CredentialsChanged: r.creds,
		MachineID:          "machine-1",
		OnGone:             func(s string) { r.mu.Lock(); r.gone = append(r.gone, s); r.mu.Unlock() },
		OnNewGeneration:    func(s string) { r.mu.Lock(); r.anew = append(r.anew, s); r.mu.Unlock() },
		Wall: func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return time.Now().Add(r.wall)
		},
		Log: slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// start runs an uplink; mod may change its options.
func (r *rig) start(mod ...func(*Options)) {
	r.t.Helper()
	o := r.options()
	for _, m := range mod {
		m(&o)
	}
	up, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.up = up
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := up.Run(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	r.stop = func() time.Duration {
		begin := time.Now()
		cancel()
		<-done
		r.stop = nil
		return time.Since(begin)
	}
}

func (r *rig) close() {
	if r.stop != nil {
		r.stop()
	}
	r.client.CloseIdleConnections()
	r.fake.Close()
	r.store.Close()
}

func (r *rig) tag(session string) string {
	_, ses, _, err := r.scope.Session(session)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.acc.Tag("claude", session, ses.Info.Generation)
}

func (r *rig) keysOf(tag string) crypto.SessionKeys {
	r.t.Helper()
	keys, ok := r.keys[tag]
	if !ok {
		var err error
		if keys, err = r.acc.Session(tag); err != nil {
			r.t.Fatal(err)
		}
		r.keys[tag] = keys
	}
	return keys
}

// info is what the bridge commits about a session.
func (r *rig) info(session, title string, generation int) *store.SessionInfo {
	r.t.Helper()
	tag := r.acc.Tag("claude", session, generation)
	keys := r.keysOf(tag)
	meta, err := keys.Sealer.Seal([]byte(`{"summary":{"text":"` + title + `"}}`))
	if err != nil {
		r.t.Fatal(err)
	}
	return &store.SessionInfo{Tag: tag, Generation: generation, Wrapped: keys.Wrapped, Metadata: meta, MetadataHash: title}
}

func (r *rig) commit(c store.Commit) {
	r.t.Helper()
	if err := r.scope.Commit(context.Background(), c); err != nil {
		r.t.Fatal(err)
	}
	if r.up != nil {
		r.up.Wake(c.Session)
	}
}

// envelope is the n-th of the session, inside one turn.
func (r *rig) envelope(session string, ev protocol.Event) protocol.Envelope {
	r.seq[session]++
	n := r.seq[session]
	return protocol.Envelope{
		ID: protocol.DeriveID(session, fmt.Sprint(n)), Time: int64(1000 + n), Role: protocol.RoleAgent,
		Turn: protocol.DeriveID(session, "turn"), Ev: ev,
	}
}

func (r *rig) seal(session string, e protocol.Envelope) store.Message {
	r.t.Helper()
	keys := r.keysOf(r.tag(session))
	sealed, err := wrapAndSeal(keys.Sealer.Seal, e)
	if err != nil {
		r.t.Fatal(err)
	}
	return store.Message{LocalID: e.ID, Turn: e.Turn, Kind: string(e.Ev.T), Sealed: sealed}
}

// say commits n texts, "m1" and so on over all calls for the session.
func (r *rig) say(session string, n int) {
	r.t.Helper()
	var ms []store.Message
	for range n {
		ms = append(ms, r.seal(session, r.envelope(session, protocol.Event{T: protocol.TypeText,
			Text: fmt.Sprintf("m%d", r.seq[session]+1)})))
	}
	c := store.Commit{Session: session, Messages: ms}
	if _, ok, _ := r.scope.Lookup(session); !ok {
		c.Info = r.info(session, "title", 0)
	}
	r.commit(c)
}

// received opens what the server has of a session.
func (r *rig) received(session string) []protocol.Envelope {
	r.t.Helper()
	tag := r.tag(session)
	ses, ok := r.fake.ByTag(tag)
	if !ok {
		return nil
	}
	keys := r.keysOf(tag)
	var out []protocol.Envelope
	for i, m := range ses.Messages {
		plain, err := keys.Sealer.Open(m.Content)
		if err != nil {
			r.t.Fatalf("message %d: %v", i, err)
		}
		e, err := protocol.Unwrap(plain)
		if err != nil {
			r.t.Fatalf("message %d: %v", i, err)
		}
		out = append(out, e)
	}
	return out
}

// wantTexts checks that the server has exactly m1 … mn, in order.
func (r *rig) wantTexts(session string, n int) {
	r.t.Helper()
	got := r.received(session)
	if len(got) != n {
		r.t.Errorf("%s: the server has %d messages, want %d\n%s", session, len(got), n, r.logs)
		return
	}
	for i, e := range got {
		if want := fmt.Sprintf("m%d", i+1); e.Ev.Text != want {
			r.t.Errorf("%s: message %d is %q", session, i+1, e.Ev.Text)
			return
		}
	}
	if q := r.scope.Queued(session); q.Count != 0 {
		r.t.Errorf("%s: %d messages still wait", session, q.Count)
	}
}

func (r *rig) status() Status {
	r.t.Helper()
	st, err := r.up.Status()
	if err != nil {
		r.t.Fatal(err)
	}
	if b, err := json.Marshal(st); err != nil || strings.Contains(string(b), r.token) {
		r.t.Errorf("status: %v, or it shows the token: %s", err, b)
	}
	return st
}

func (r *rig) sessionStatus(session string) SessionStatus {
	r.t.Helper()
	for _, s := range r.status().Sessions {
		if s.Key == session {
			return s
		}
	}
	r.t.Fatalf("no status of %s", session)
	return SessionStatus{}
}

// settle lets d pass and everything finish that is due by then.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// posts counts the POSTs of messages.
func (r *rig) posts() (n int) {
	for _, q := range r.fake.Requests() {
		if q.IsMessages() {
			n++
		}
	}
	return n
}
