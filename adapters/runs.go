package adapters

import (
	"sort"
	"strconv"

	"github.com/happyd/happyd/protocol"
)

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
	}
	c.pruneStreams()
}

// maxStreams bounds the memory of finished subagents.
const maxStreams = 512

// pruneStreams forgets noise, then the longest finished subagents. A forgotten one that wakes up again is not shown: see Forgotten.
func (c *Core) pruneStreams() {
	if len(c.S.Streams) <= maxStreams {
		return
	}
	parents := map[string]bool{}
	for _, st := range c.S.Streams {
		if st.Running || !st.Registered && !st.Noise {
			parents[st.Parent], parents[st.Named] = true, true
		}
	}
	var done []string
	for key, st := range c.S.Streams {
		never := !st.Registered && st.Seen == 0 // named by others, never seen
		if (never || st.Noise || st.Registered && st.Runs > 0 && !st.Running) && !parents[key] && c.Queued(key) == 0 {
			done = append(done, key)
		}
	}
	sort.Slice(done, func(i, j int) bool {
		a, b := c.S.Streams[done[i]], c.S.Streams[done[j]]
		if a.Noise != b.Noise {
			return a.Noise
		}
		return a.At < b.At || a.At == b.At && done[i] < done[j]
	})
	for _, key := range done[:min(len(done), maxStreams/4)] {
		if st := c.S.Streams[key]; st.Noise || st.Registered {
			c.opts.Seen.Add(Hash("forgotten", key))
		}
		delete(c.S.Streams, key)
		c.out.Forgotten = append(c.out.Forgotten, key)
	}
}

// Forgotten says whether a stream was known and finished so long ago that nothing of it is remembered.
func (c *Core) Forgotten(key string) bool {
	return key != Main && c.S.Streams[key] == nil && c.opts.Seen.Has(Hash("forgotten", key))
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
	st.Ends, st.EndAt = append(st.Ends, by), c.now
	if len(st.Ends) > maxEnds && st.Resumes > 0 {
		st.Ends = st.Ends[1:]
		st.Resumes-- // the resume that this end came before
	}
}

// maxEnds is how many reports of ends are remembered, so that a repeated one is known.
const maxEnds = 64

// EndNow notes that a subagent's current run is over, whatever was reported before: it was killed with its parent.
func (c *Core) EndNow(key string) {
	st := c.Stream(key)
	for len(st.Ends) <= st.Resumes {
		st.Ends = append(st.Ends, "now-"+strconv.Itoa(len(st.Ends)))
	}
}

// Done says whether the end of the current run was reported. Reports and resumes are counted instead of remembered as a flag,
// because the parent's log and the child's are read in any order; for the same reason a kill ends only what was logged before it.
func (st *Stream) Done() bool {
	return len(st.Ends) > st.Resumes || st.Killed != 0 && st.Killed >= st.TS
}

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
