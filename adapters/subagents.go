package adapters

import (
	"sort"
	"strconv"

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
	TS       int64  `json:"ts,omitempty"`
	At       int64  `json:"at,omitempty"` // clock when it was emitted
	Settled  bool   `json:"d,omitempty"`  // no further call of its group can come
	Closed   bool   `json:"x,omitempty"`
	Hold     int64  `json:"hold,omitempty"` // clock since which its parent's stream waits for the child's end
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
	Output     bool     `json:"out,omitempty"`  // it has said something
	Msg        string   `json:"msg,omitempty"`  // provider's id of its latest message
	Terminal   int      `json:"term,omitempty"` // 0 = working, else how sure its own log is of the end: TerminalWeak, TerminalSure
	At         int64    `json:"at,omitempty"`   // clock when its latest record was mapped
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
}

// How sure a subagent's own log is that its run is over.
const (
	TerminalWeak = 1
	TerminalSure = 2
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
	c.S.Spawns[t.Call] = sp
	c.pruneSpawns()
	return sp
}

// maxSpawns bounds the memory of finished spawns; unlinked and open ones are kept.
const maxSpawns = 512

func (c *Core) pruneSpawns() {
	if len(c.S.Spawns) <= maxSpawns {
		return
	}
	var done []*Spawn
	for _, sp := range c.S.Spawns {
		if st := c.S.Streams[sp.Child]; sp.Closed && sp.Child != "" && st != nil && !st.Running {
			done = append(done, sp)
		}
	}
	sort.Slice(done, func(i, j int) bool { return done[i].At < done[j].At })
	for _, sp := range done[:min(len(done), maxSpawns/4)] {
		delete(c.S.Spawns, sp.Provider)
	}
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
	c.out.Opened = append(c.out.Opened, key)
}

// LinkCard registers a subagent that no call of the log accounts for: its own card is emitted in the parent's stream, in the
// open turn or, without one, in a turn of its own that ends with it.
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
	st.Parent, st.Turn, st.Registered, st.Card = parent, c.turnOf(parent), true, true
	args["sessionSubagent"] = st.Subagent
	title := st.Title
	if title == "" {
		title = "Agent"
	}
	c.ident = "card:" + st.Subagent
	c.ToolStart(parent, "", 0, Tool{Call: cardCall(st), Name: "Agent", Title: title, Description: title, Args: Encode(args)}, Extra{})
	if own {
		c.S.Turn.Card = true
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
}

// start makes a registered subagent run; a resumed one starts again.
func (c *Core) start(key string) bool {
	st := c.S.Streams[key]
	if st == nil || !st.Registered {
		return false
	}
	if st.Running {
		return true
	}
	st.Runs++
	st.Running, st.Terminal, st.Output = true, 0, true
	c.put("start:"+st.Subagent, st.Runs, protocol.Envelope{
		Role: protocol.RoleAgent, Turn: st.Turn, Subagent: st.Subagent,
		Ev: protocol.Event{T: protocol.TypeStart, Title: protocol.Truncate(protocol.CleanText(st.Title), 80)},
	})
	return true
}

// Stop ends a subagent's run: its open calls, then itself, then a card that we made for it. Nothing happens when it is not running.
func (c *Core) Stop(key string) {
	st := c.S.Streams[key]
	if st == nil || !st.Running {
		return
	}
	c.endCalls(key)
	c.put("stop:"+st.Subagent, st.Runs, protocol.Envelope{
		Role: protocol.RoleAgent, Turn: st.Turn, Subagent: st.Subagent, Ev: protocol.Event{T: protocol.TypeStop},
	})
	st.Running = false
	if st.Card {
		c.ToolEnd(st.Parent, cardCall(st))
		if t := c.S.Turn; t != nil && t.Card && st.Parent == Main && t.ID == st.Turn {
			c.EndTurn(protocol.StatusCancelled)
		}
	}
}

// End notes that somebody reported the end of a subagent's run; by names the report, so that one that comes several times
// counts once. The stop itself follows when its own log was read to the end: see Done.
func (c *Core) End(key, by string) {
	st := c.Stream(key)
	for _, e := range st.Ends {
		if e == by {
			return
		}
	}
	if len(st.Ends) > 64 {
		st.Ends = st.Ends[1:]
	}
	st.Ends = append(st.Ends, by)
}

// EndNow notes that a subagent's current run is over, whatever was reported before: it was killed with its parent.
func (c *Core) EndNow(key string) {
	st := c.Stream(key)
	for len(st.Ends) <= st.Resumes {
		st.Ends = append(st.Ends, "now-"+strconv.Itoa(len(st.Ends)))
	}
}

// Done says whether the end of the current run was reported. Reports and resumes are counted instead of remembered as a flag,
// because the parent's log and the child's are read in any order.
func (st *Stream) Done() bool { return len(st.Ends) > st.Resumes }

// Running lists the running subagents in a stable order, the deepest first, so that stopping them in this order never stops a
// parent before its child.
func (c *Core) Running() []string {
	var keys []string
	for k, st := range c.S.Streams {
		if st.Running {
			keys = append(keys, k)
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := c.depth(keys[i]), c.depth(keys[j])
		if a != b {
			return a > b
		}
		return keys[i] < keys[j]
	})
	return keys
}

func (c *Core) depth(key string) int {
	n := 0
	for key != Main && n < 100 {
		st := c.S.Streams[key]
		if st == nil {
			break
		}
		key = st.Parent
		n++
	}
	return n
}
