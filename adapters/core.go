package adapters

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/happyd/happyd/protocol"
)

// Core is what the mappers of all providers share: the main thread's turn, open tool calls, subagents and the stamps of
// envelopes (id, time, turn, subagent). It keeps the stream valid by construction: no agent envelope without a started turn,
// no call end without its start, no subagent content outside start and stop, strictly rising times.
//
// Ids depend only on the session's tag and on where an envelope comes from (a record, a turn, a call), never on when or in
// which order things were read, so that mapping the same log again yields the same ids.
type Core struct {
	S    *State
	opts SessionOptions

	now   int64  // the caller's clock for the current input
	ident string // identity of the record being mapped
	ts    int64  // its own timestamp; 0 = it has none
	out   Output

	unsettled map[string]*Spawn // spawns whose group may go on, by provider id; derived from S
}

// State is Core's part of a session's saved state.
type State struct {
	Last    int64              `json:"last,omitempty"`   // time of the latest envelope
	Turn    *Turn              `json:"turn,omitempty"`   // the open turn of the main thread
	Calls   map[string]*Call   `json:"calls,omitempty"`  // open calls by stream and provider id
	Spawns  map[string]*Spawn  `json:"spawns,omitempty"` // calls that can have a child, by provider id
	Spawned int                `json:"spawned,omitempty"`
	Streams map[string]*Stream `json:"streams,omitempty"`
	Facts   Facts              `json:"facts"`
	Counts  map[string]int     `json:"counts,omitempty"`
}

// A Turn of the main thread.
type Turn struct {
	ID     string `json:"id"`
	Key    string `json:"key,omitempty"` // the provider's id of the prompt or turn
	TS     int64  `json:"ts,omitempty"`  // timestamp of the record that opened it
	Output int    `json:"n,omitempty"`   // agent envelopes in it so far
}

// A Call is an open tool call.
type Call struct {
	ID     string `json:"id"` // unique in the session, as sent
	Stream string `json:"s,omitempty"`
	Turn   string `json:"t"`
}

// NewCore starts a session's core, or continues one when s is not nil.
func NewCore(o SessionOptions, s *State) *Core {
	if s == nil {
		s = &State{}
	}
	if s.Calls == nil {
		s.Calls = map[string]*Call{}
	}
	if s.Spawns == nil {
		s.Spawns = map[string]*Spawn{}
	}
	if s.Streams == nil {
		s.Streams = map[string]*Stream{}
	}
	if s.Counts == nil {
		s.Counts = map[string]int{}
	}
	c := &Core{S: s, opts: o, unsettled: map[string]*Spawn{}}
	for id, sp := range s.Spawns {
		if !sp.Settled {
			c.unsettled[id] = sp
		}
	}
	return c
}

// Begin sets the record that the next envelopes come from: its identity, its own timestamp (0 = none) and the clock.
func (c *Core) Begin(ident string, ts, now int64) { c.ident, c.ts, c.now = ident, ts, now }

// Ident is the identity of the record being mapped.
func (c *Core) Ident() string { return c.ident }

// Now is the clock of the current input.
func (c *Core) Now() int64 { return c.now }

// SetNow moves the clock without a record, for ticks and observations.
func (c *Core) SetNow(now int64) { c.Begin("", 0, now) }

// Queued is how many read records of a stream still wait to be mapped.
func (c *Core) Queued(stream string) int {
	if c.opts.Queued == nil {
		return 0
	}
	return c.opts.Queued(stream)
}

// Fresh says whether this record identity is new in the session, and remembers it.
func (c *Core) Fresh(ident string) bool {
	h := Hash("record", ident)
	if c.opts.Seen.Has(h) {
		return false
	}
	c.opts.Seen.Add(h)
	return true
}

// Known says whether the record identity was handled before.
func (c *Core) Known(ident string) bool { return c.opts.Seen.Has(Hash("record", ident)) }

// Hash is the 8-byte form in which identities are remembered.
func Hash(parts ...string) uint64 {
	h := sha256.New()
	for _, p := range parts {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], uint32(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// Count counts a record that is left out, by type.
func (c *Core) Count(what string) {
	if len(c.S.Counts) >= 200 && c.S.Counts[what] == 0 {
		what = "other"
	}
	c.S.Counts[what]++
}

// Take hands over what came out since the last call.
func (c *Core) Take() Output {
	o := c.out
	c.out = Output{}
	return o
}

// Open lets the held records of a queue flow that is nobody's child: a later part of a stream.
func (c *Core) Open(queue string) { c.out.Opened = append(c.out.Opened, queue) }

// Changed notes that Facts changed.
func (c *Core) Changed() { c.out.Changed = true }

// stamp gives the next envelope's time: the record's own, strictly above the last, never in the future. A stamp in the
// future counts as missing; a missing one continues from the last envelope.
func (c *Core) stamp() int64 {
	t := c.ts
	if t > c.now {
		t = 0
	}
	if t == 0 && c.S.Last == 0 {
		t = c.now
	}
	if t <= c.S.Last {
		t = c.S.Last + 1
	}
	c.S.Last = t
	return t
}

// put stamps and emits one envelope. origin and ordinal are what its id is derived from.
func (c *Core) put(origin string, ordinal int, e protocol.Envelope) {
	e.ID = protocol.EnvelopeID(c.opts.Tag, origin, ordinal)
	e.Time = c.stamp()
	c.out.Envelopes = append(c.out.Envelopes, e)
	c.S.Facts.HasContent = true
}

// agent emits an agent envelope of a stream. The stream must be able to speak: see speak.
func (c *Core) agent(stream, origin string, ordinal int, ev protocol.Event, x Extra) {
	e := protocol.Envelope{Role: protocol.RoleAgent, Ev: ev, Usage: x.Usage, ClaudeUUID: x.UUID, CodexItemID: x.ItemID}
	if stream == Main {
		e.Turn = c.S.Turn.ID
		c.S.Turn.Output++
	} else {
		st := c.S.Streams[stream]
		e.Turn, e.Subagent = st.Turn, st.Subagent
	}
	c.put(origin, ordinal, e)
}

// Extra carries optional envelope fields.
type Extra struct {
	Usage  *protocol.Usage
	UUID   string // claudeUuid
	ItemID string // codexItemId
}

// User emits what the user said, in the main thread. It opens and closes nothing.
func (c *Core) User(ordinal int, text string, x Extra) {
	text = protocol.CleanText(text)
	if strings.TrimSpace(text) == "" {
		return
	}
	c.put(c.ident, ordinal, protocol.Envelope{Role: protocol.RoleUser, ClaudeUUID: x.UUID, CodexItemID: x.ItemID, Ev: protocol.Event{T: protocol.TypeText, Text: text}})
}

// Speak makes sure that a stream may emit agent envelopes now: the main thread gets a turn, a subagent its start. key is
// remembered with a turn that this opens. It reports false for a stream that is not registered.
func (c *Core) Speak(stream, key string) bool {
	if stream == Main {
		c.OpenTurn(c.ident, key)
		return true
	}
	return c.start(stream)
}

// Text emits text or reasoning of the agent; blank text emits nothing.
func (c *Core) Text(stream, key string, ordinal int, text string, thinking bool, x Extra) {
	text = protocol.CleanText(text)
	if strings.TrimSpace(text) == "" || !c.Speak(stream, key) {
		return
	}
	c.agent(stream, c.ident, ordinal, protocol.Event{T: protocol.TypeText, Text: text, Thinking: thinking}, x)
}

// Service emits a line about a condition, inside the open turn (or running subagent) only; elsewhere it is counted and
// dropped, because an agent envelope without a turn is ignored by every client. It reports whether the line was emitted.
func (c *Core) Service(stream string, ordinal int, text string) bool {
	text = protocol.CleanText(text)
	if strings.TrimSpace(text) == "" {
		return false
	}
	if stream == Main && c.S.Turn == nil {
		c.Count("service outside a turn")
		return false
	}
	if stream != Main {
		if st := c.S.Streams[stream]; st == nil || !st.Registered || !c.start(stream) {
			return false
		}
	}
	c.agent(stream, c.ident, ordinal, protocol.Event{T: protocol.TypeService, Text: text}, Extra{})
	return true
}

// Usage emits a usage report that has nothing to show. origin names what it reports on.
func (c *Core) Usage(origin string, u *protocol.Usage) {
	if u == nil {
		return
	}
	c.put("usage:"+origin, 0, protocol.Envelope{Role: protocol.RoleAgent, Usage: u, Ev: protocol.Event{T: protocol.TypeService}})
}

// OpenTurn opens a turn unless one is open. ident names the record that opens it; key is the provider's id for it.
func (c *Core) OpenTurn(ident, key string) {
	if c.S.Turn != nil {
		return
	}
	t := Turn{ID: protocol.TurnID(c.opts.Tag, ident), Key: key, TS: c.ts}
	c.S.Turn = &t
	c.put("turn-start:"+t.ID, 0, protocol.Envelope{Role: protocol.RoleAgent, Turn: t.ID, Ev: protocol.Event{T: protocol.TypeTurnStart}})
}

// EndTurn closes the open turn, its open calls first; without one it does nothing.
func (c *Core) EndTurn(status protocol.Status) {
	t := c.S.Turn
	if t == nil {
		return
	}
	c.endCalls(Main)
	c.put("turn-end:"+t.ID, 0, protocol.Envelope{Role: protocol.RoleAgent, Turn: t.ID, Ev: protocol.Event{T: protocol.TypeTurnEnd, Status: status}})
	c.S.Turn = nil
}

// Status describes the core's part of the session.
func (c *Core) Status() Status {
	s := Status{Turn: "idle", OpenCalls: len(c.S.Calls), Counts: c.S.Counts}
	if c.S.Turn != nil {
		s.Turn, s.TurnID, s.Thinking = "open", c.S.Turn.ID, true
	}
	for _, st := range c.S.Streams {
		if st.Running {
			s.Running++
		}
	}
	return s
}

// Object returns raw when it is a JSON object, and {} when there is nothing; anything else is wrapped by the protocol.
func Object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(`{}`)
	}
	return protocol.CleanJSON(raw)
}

// Peek shows the envelopes emitted since the last Take.
func (c *Core) Peek() []protocol.Envelope { return c.out.Envelopes }
