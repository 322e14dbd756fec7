package adapters

import (
	"sort"

	"github.com/happyd/happyd/protocol"
)

// A Spawn is an emitted tool call that can have a child. Its emission is the child's registration: from then on the child's
// stream may be linked to it.
type Spawn struct {
	Call     string `json:"c"`           // the call's id as sent
	Provider string `json:"p"`           // the provider's call id
	Stream   string `json:"s,omitempty"` // stream of the parent
	Subagent string `json:"a"`
	Turn     string `json:"t"`
	Title    string `json:"n,omitempty"`
	Prompt   string `json:"h,omitempty"` // hash of the prompt given to the child
	Group    string `json:"g,omitempty"`
	Child    string `json:"k,omitempty"` // stream linked to it
	N        int    `json:"i,omitempty"` // counts the session's spawns
	TS       int64  `json:"ts,omitempty"`
	At       int64  `json:"at,omitempty"` // clock when it was emitted
	Settled  bool   `json:"d,omitempty"`  // no further call of its group can come
	Closed   bool   `json:"x,omitempty"`
	Hold     int64  `json:"hold,omitempty"` // clock since which its parent's stream waits for the child's end
	Over     bool   `json:"o,omitempty"`    // its result ended the child (it did not just launch it)
	Killed   int64  `json:"kt,omitempty"`   // timestamp of the record that killed the child
}

// A Stream is a subagent's conversation.
type Stream struct {
	Parent     string   `json:"p,omitempty"` // stream of the parent
	Spawn      string   `json:"w,omitempty"` // provider id of the spawning call; "" for one that only metadata names
	Subagent   string   `json:"a,omitempty"`
	Turn       string   `json:"t,omitempty"`
	Title      string   `json:"n,omitempty"`
	Registered bool     `json:"reg,omitempty"`
	Noise      bool     `json:"noise,omitempty"`
	Running    bool     `json:"run,omitempty"`
	Runs       int      `json:"runs,omitempty"`
	Ends       []string `json:"end,omitempty"`  // who reported an end, each once
	Resumes    int      `json:"res,omitempty"`  // how often it was woken again after an end
	Killed     int64    `json:"kt,omitempty"`   // timestamp of the record that killed it; it may have been resumed since
	Output     bool     `json:"out,omitempty"`  // it has said something
	Msg        string   `json:"msg,omitempty"`  // provider's id of its latest message
	Terminal   int      `json:"term,omitempty"` // 0 = working, else how sure its own log is of the end: TerminalWeak, TerminalSure
	At         int64    `json:"at,omitempty"`   // clock when its latest record was mapped
	EndAt      int64    `json:"ea,omitempty"`   // clock when its end was last reported
	TS         int64    `json:"ts,omitempty"`   // timestamp of its latest record
	Card       bool     `json:"card,omitempty"` // we made the card: close it with the stop

	// What links it to its parent, collected from its head and its sidecar.
	Target string `json:"to,omitempty"` // provider id of the spawning call, as the provider says
	Prompt string `json:"h,omitempty"`
	Key    string `json:"key,omitempty"` // provider's id of the prompt or turn it belongs to
	First  int64  `json:"f,omitempty"`   // timestamp of its first record
	Seen   int64  `json:"sn,omitempty"`  // clock when its first record arrived
	Kind   string `json:"kd,omitempty"`  // agent type, for the card
	Named  string `json:"pn,omitempty"`  // parent stream as the provider says
	Hint   string `json:"hn,omitempty"`  // adapter's own
	Depth  int    `json:"dp,omitempty"`  // how deep it is nested as the provider says; 1 = below the main thread, 0 = not told
	Told   string `json:"td,omitempty"`  // what its sidecar says of its state: ToldFinished, ToldStopped, ""
}

// How sure a subagent's own log is that its run is over.
const (
	TerminalWeak = 1
	TerminalSure = 2
)

// What a sidecar can say of a subagent's state.
const (
	ToldFinished = "finished"
	ToldStopped  = "stopped" // by the user
)

// Stream returns the state of a subagent's stream, made when it is not known.
func (c *Core) Stream(key string) *Stream {
	st := c.S.Streams[key]
	if st == nil {
		st = &Stream{}
		c.S.Streams[key] = st
	}
	return st
}

func (c *Core) addSpawn(stream, id string, t Tool) *Spawn {
	as := id
	if t.SpawnAs != "" {
		as = t.SpawnAs
	}
	sp := &Spawn{
		Call: id, Provider: t.Call, Stream: stream, Turn: c.turnOf(stream), Title: t.Title, Prompt: t.PromptHash,
		Group: t.Group, TS: c.ts, At: c.now, Subagent: protocol.SubagentID(c.opts.Provider, as),
	}
	c.S.Spawned++
	sp.N = c.S.Spawned
	if t.Child != "" && t.Subagent != "" {
		sp.Child, sp.Subagent = t.Child, t.Subagent
	}
	c.S.Spawns[t.Call] = sp
	c.unsettled[t.Call] = sp
	c.pruneSpawns()
	return sp
}

// maxSpawns bounds the memory of closed spawns; open ones are kept.
const maxSpawns = 256

// pruneSpawns forgets closed spawns, those first whose child was seen. A child that shows up after its spawn was forgotten is
// registered by its sidecar, or waits.
func (c *Core) pruneSpawns() {
	if len(c.S.Spawns) <= maxSpawns {
		return
	}
	var done []*Spawn
	for _, sp := range c.S.Spawns {
		if st := c.S.Streams[sp.Child]; sp.Closed && (sp.Child == "" || st == nil || !st.Running) {
			done = append(done, sp)
		}
	}
	sort.Slice(done, func(i, j int) bool {
		a, b := done[i], done[j]
		if (a.Child == "") != (b.Child == "") {
			return a.Child != ""
		}
		return a.N < b.N
	})
	for _, sp := range done[:min(len(done), maxSpawns/4)] {
		delete(c.S.Spawns, sp.Provider)
		delete(c.unsettled, sp.Provider)
	}
}

// Settle notes that no further call of an earlier group can come in a stream: a record of another group was mapped. It reports
// whether that was news.
func (c *Core) Settle(stream, group string) (changed bool) {
	for id, sp := range c.unsettled {
		if sp.Stream == stream && (group == "" || sp.Group != group) {
			sp.Settled, changed = true, true
			delete(c.unsettled, id)
		}
	}
	return changed
}

// Link registers a subagent's stream with the call that spawned it.
func (c *Core) Link(key string, sp *Spawn) {
	st := c.Stream(key)
	if st.Registered {
		return
	}
	st.Parent, st.Spawn, st.Subagent, st.Turn, st.Registered = sp.Stream, sp.Provider, sp.Subagent, sp.Turn, true
	if st.Title == "" {
		st.Title = sp.Title
	}
	sp.Child = key
	st.Killed = max(st.Killed, sp.Killed)
	if sp.Over {
		c.End(key, "result:"+sp.Call)
	}
	c.out.Opened = append(c.out.Opened, key)
}

// LinkCard registers a subagent that no call of the log accounts for: its own card is emitted in the parent's stream. Where the
// main thread has no open turn, the card gets a turn of its own that is over at once, as the turn of a background child may be:
// so the child's turn depends on the child alone.
func (c *Core) LinkCard(key, parent, idKey string, args map[string]any) {
	st := c.Stream(key)
	if st.Registered {
		return
	}
	st.Subagent = protocol.SubagentID(c.opts.Provider, idKey)
	own := parent == Main && c.S.Turn == nil
	if parent == Main {
		c.OpenTurn("card:"+st.Subagent, "")
	} else if !c.start(parent) {
		return
	}
	st.Parent, st.Turn, st.Registered, st.Card = parent, c.turnOf(parent), true, !own
	args["sessionSubagent"] = st.Subagent
	title := st.Title
	if title == "" {
		title = "Agent"
	}
	c.ident = "card:" + st.Subagent
	c.ToolStart(parent, "", 0, Tool{Call: cardCall(st), Name: "Agent", Title: title, Description: title, Args: Encode(args)}, Extra{})
	if own {
		c.EndTurn(protocol.StatusCompleted)
	}
	c.out.Opened = append(c.out.Opened, key)
}

func cardCall(st *Stream) string { return "card-" + st.Subagent }

// MarkNoise says that a stream is nobody's child.
func (c *Core) MarkNoise(key string) {
	st := c.Stream(key)
	if st.Noise || st.Registered {
		return
	}
	st.Noise = true
	c.out.Noise = append(c.out.Noise, key)
	c.pruneStreams()
}
