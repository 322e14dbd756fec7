package adapters

import (
	"encoding/json"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"github.com/happyd/happyd/protocol"
)

// Tool is one tool call as a provider describes it.
type Tool struct {
	Call        string // the provider's call id
	Name        string
	Title       string // short human line; cut to 80 characters
	Description string // human sentence, else the command or path
	Args        json.RawMessage
	Spawn       bool   // the call can have a child: args get sessionSubagent
	SpawnAs     string // provider's key of the child's id when it is not Call (a known child)
	Child       string // stream of the child where it is known already: the call resumes it
	Subagent    string // that child's id as sent
	PromptHash  string
	Group       string // calls of one group (one API message) are written together
}

func callKey(stream, call string) string { return stream + "\x00" + call }

// ToolStart emits a tool call of a stream and, for a spawning call, makes its child registrable. It returns false where the
// call is open already (the same call logged twice).
func (c *Core) ToolStart(stream, key string, ordinal int, t Tool, x Extra) bool {
	k := callKey(stream, t.Call)
	if t.Call == "" || c.S.Calls[k] != nil || !c.Speak(stream, key) {
		return false
	}
	if sp := c.S.Spawns[t.Call]; sp != nil && sp.Stream == stream && sp.Closed {
		delete(c.S.Spawns, t.Call) // the id is used again
		delete(c.unsettled, t.Call)
	}
	id := c.uniqueCall(stream, t.Call)
	call := &Call{ID: id, Stream: stream, Turn: c.turnOf(stream)}
	c.S.Calls[k] = call
	args := Object(t.Args)
	if t.Spawn {
		sp := c.addSpawn(stream, id, t)
		args = withKey(args, "sessionSubagent", sp.Subagent)
	}
	name := protocol.CleanText(t.Name)
	if name == "" {
		name = "Tool"
	}
	if c.opts.ToolNames == "spec" {
		name = specName(name)
	}
	title := protocol.Truncate(protocol.CleanText(t.Title), 80)
	if title == "" {
		title = name
	}
	desc := protocol.CleanText(t.Description)
	if desc == "" {
		desc = title
	}
	c.agent(stream, c.ident, ordinal, protocol.Event{T: protocol.TypeToolStart, Call: id, Name: name, Title: title, Description: desc, Args: args}, x)
	return true
}

// ToolEnd emits the end of an open call. Ends of calls that are not open are ignored: they were closed with their turn, or
// reported twice.
func (c *Core) ToolEnd(stream, call string) bool {
	k := callKey(stream, call)
	open := c.S.Calls[k]
	if open == nil {
		return false
	}
	c.endCall(k, open)
	return true
}

// CallOpen says whether a call of the stream is open.
func (c *Core) CallOpen(stream, call string) bool { return c.S.Calls[callKey(stream, call)] != nil }

// OpenCalls counts the open calls of a stream.
func (c *Core) OpenCalls(stream string) int {
	n := 0
	for _, o := range c.S.Calls {
		if o.Stream == stream {
			n++
		}
	}
	return n
}

func (c *Core) endCall(key string, o *Call) {
	delete(c.S.Calls, key)
	if sp := c.S.Spawns[strings.TrimPrefix(key, o.Stream+"\x00")]; sp != nil && sp.Stream == o.Stream {
		sp.Closed = true
	}
	e := protocol.Envelope{Role: protocol.RoleAgent, Turn: o.Turn, Ev: protocol.Event{T: protocol.TypeToolEnd, Call: o.ID}}
	if o.Stream != Main {
		e.Subagent = c.S.Streams[o.Stream].Subagent
	}
	c.put("call-end:"+o.Stream+":"+o.ID, 0, e)
}

// endCalls ends all open calls of a stream, in a stable order. A child's end after its stop would be content outside start and
// stop, so stop calls this first.
func (c *Core) endCalls(stream string) {
	var keys []string
	for k, o := range c.S.Calls {
		if o.Stream == stream {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		c.endCall(k, c.S.Calls[k])
	}
}

// shortCall is the length up to which a call id is not taken to be unique in the world: gateways count them.
const shortCall = 16

// uniqueCall makes a provider's call id unique in the session: providers and gateways reuse ids, within a conversation and in
// its subagents' conversations. What it returns depends on the call's own stream only, because streams are read in any order.
func (c *Core) uniqueCall(stream, call string) string {
	if stream != Main && len(call) < shortCall {
		call += "~" + c.S.Streams[stream].Subagent[:7]
	}
	for n := 1; ; n++ {
		id := call
		if n > 1 {
			id += "~" + strconv.Itoa(n)
		}
		h := Hash("call", stream, id)
		if !c.opts.Seen.Has(h) {
			c.opts.Seen.Add(h)
			return id
		}
	}
}

func (c *Core) turnOf(stream string) string {
	if stream == Main {
		return c.S.Turn.ID
	}
	return c.S.Streams[stream].Turn
}

// withKey sets a string key in a JSON object, replacing one that is there.
func withKey(obj json.RawMessage, key, value string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(obj, &m) != nil || m == nil {
		m = map[string]json.RawMessage{}
	}
	v, _ := json.Marshal(value)
	m[key] = v
	return Encode(m)
}

// Encode writes JSON without escaping <, > and &.
func Encode(v any) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// specName writes a tool name as the written protocol wants it: lowercase, hyphenated.
func specName(s string) string {
	var b strings.Builder
	prev := ' '
	for _, r := range s {
		switch {
		case r == '_' || r == ' ':
			b.WriteByte('-')
		case unicode.IsUpper(r):
			if unicode.IsLower(prev) || unicode.IsDigit(prev) {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
		prev = r
	}
	return b.String()
}
