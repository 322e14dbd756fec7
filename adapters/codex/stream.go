package codex

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// StreamProvider maps the output of `codex exec --json`, in the layout of 0.44 and later and in the one before, with the same
// interface as the logs, so that what was piped in and kept in a file takes the same way.
//
// A stream says less than the rollout of its thread: no times, no prompts (since 0.44), no diffs, no agents' own words. Where a
// rollout exists it is to be preferred. Ids derive from Place.Key, which must be the same whenever the same stream is read, and
// different for two streams of one thread, and from the offset in the stream.
type StreamProvider struct{}

var _ adapters.Provider = StreamProvider{}

// Name implements adapters.Provider.
func (StreamProvider) Name() string { return Name }

// Roots implements adapters.Provider: streams are no files of Codex.
func (StreamProvider) Roots(string) []watch.Root { return nil }

// Locate implements adapters.Provider; rel becomes the place's key.
func (StreamProvider) Locate(_ watch.Root, rel string, first func() (watch.Record, bool)) (adapters.Place, bool) {
	rec, ok := first()
	if !ok {
		return adapters.Place{}, false
	}
	id, ok := StreamThread(rec.Data)
	if id == "" {
		id = rel
	}
	return adapters.Place{Session: id, Key: rel}, ok
}

// New implements adapters.Provider.
func (StreamProvider) New(o adapters.SessionOptions) adapters.Session {
	return newStream(o, &streamState{})
}

// Load implements adapters.Provider.
func (StreamProvider) Load(o adapters.SessionOptions, saved []byte) (adapters.Session, error) {
	var st streamState
	if err := json.Unmarshal(saved, &st); err != nil {
		return nil, err
	}
	return newStream(o, &st), nil
}

// headerType marks the record in front of a kept stream.
const headerType = "happyd.stream"

// StreamHeader is a record to put in front of a stream that is kept: streams since 0.44 do not tell the working directory.
// id names the stream when it has to be handed over a second time.
func StreamHeader(cwd, id string) []byte {
	return append(adapters.Encode(map[string]string{"type": headerType, "cwd": cwd, "id": id}), '\n')
}

// StreamID is the id in a stream's header; "" for any other record.
func StreamID(data []byte) string {
	v := adapters.Fields(data, "type", "id")
	if id := adapters.String(v[1]); adapters.String(v[0]) == headerType && protocol.IsID(id) {
		return id
	}
	return ""
}

// StreamThread says which thread a stream belongs to, from one of its first records. ok is false where that record does not tell:
// ask again with the next. Streams before 0.44 never tell: then thread is "" and ok is true.
func StreamThread(data []byte) (thread string, ok bool) {
	v := adapters.Fields(data, "type", "thread_id", "msg", "prompt")
	if adapters.String(v[0]) == "thread.started" {
		thread = strings.ToLower(adapters.String(v[1]))
		return thread, thread != ""
	}
	return "", v[2] != nil || v[3] != nil
}

type streamState struct {
	Core *adapters.State `json:"core"`
	Fail string          `json:"fail,omitempty"` // latest error that was shown
	Old  bool            `json:"old,omitempty"`  // before 0.44, where no turn's end is told
	Text bool            `json:"text,omitempty"` // the latest output was a text
	Used [3]int64        `json:"used,omitempty"` // input, cached, output of all turns so far
	Now  int64           `json:"now,omitempty"`
}

type streamSession struct {
	*streamState
	c   *adapters.Core
	ord int
}

var _ adapters.Session = (*streamSession)(nil)

func newStream(o adapters.SessionOptions, st *streamState) *streamSession {
	o.Provider = Name
	c := adapters.NewCore(o, st.Core)
	st.Core = c.S
	if isUUID(o.ID) {
		c.S.Facts.Native = o.ID
	}
	c.S.Facts.Entrypoint = "codex_exec"
	return &streamSession{streamState: st, c: c}
}

// event is a record of a stream.
type event struct {
	typ  string
	data []byte
	old  bool // before 0.44; data is the msg
}

var streamTypes = map[string]bool{
	"thread.started": true, "turn.started": true, "turn.completed": true, "turn.failed": true, "error": true,
	"item.started": true, "item.updated": true, "item.completed": true, headerType: true,
}

var oldTypes = map[string]bool{
	"task_started": true, "task_complete": true, "turn_aborted": true, "agent_message": true, "agent_reasoning": true,
	"agent_reasoning_raw_content": true, "exec_command_begin": true, "exec_command_end": true, "patch_apply_begin": true,
	"patch_apply_end": true, "mcp_tool_call_begin": true, "mcp_tool_call_end": true, "web_search_begin": true, "web_search_end": true,
	"token_count": true, "error": true, "stream_error": true, "plan_update": true,
}

// Parse implements adapters.Session.
func (s *streamSession) Parse(p adapters.Place, rec watch.Record, _ int64) (adapters.Item, bool) {
	it := adapters.Item{Place: p, Rec: rec}
	v := adapters.Fields(rec.Data, "type", "msg", "prompt", "workdir")
	e := &event{typ: adapters.String(v[0]), data: rec.Data}
	switch {
	case v[1] != nil:
		e.old, e.data = true, v[1]
		if e.typ = adapters.String(adapters.Fields(v[1], "type")[0]); !oldTypes[e.typ] {
			s.c.Count("stream " + e.typ)
			return it, false
		}
	case e.typ == "" && (v[2] != nil || v[3] != nil):
		e.old = true
	case !streamTypes[e.typ]:
		s.c.Count("stream " + e.typ)
		return it, false
	}
	it.Value = e
	return it, true
}

// Arrive implements adapters.Session.
func (s *streamSession) Arrive(it adapters.Item, now int64) {
	s.Now = now
	e := it.Value.(*event)
	v := adapters.Fields(e.data, "cwd", "workdir", "model")
	if e.typ != headerType && (!e.old || e.typ != "") {
		return
	}
	f := &s.c.S.Facts
	for _, raw := range v[:2] {
		if cwd := adapters.String(raw); cwd != "" && f.Cwd == "" {
			f.Cwd, f.LastCwd = cwd, cwd
			s.c.Changed()
		}
	}
	if m := adapters.String(v[2]); m != "" {
		f.Model = m
	}
}

// Admit implements adapters.Session.
func (s *streamSession) Admit(adapters.Item, int64) bool { return true }

// Map implements adapters.Session.
func (s *streamSession) Map(it adapters.Item, now int64) {
	s.Now, s.ord = now, 0
	ident := fmt.Sprintf("%s@%d", key(it.Place, it.Rec), it.Rec.Offset)
	if !s.c.Fresh(ident) {
		s.c.Count("repeated record")
		return
	}
	// A stream carries no times: a record happened when it was read.
	s.c.Begin(ident, now, now)
	e := it.Value.(*event)
	if e.old {
		s.mapOld(e)
		return
	}
	switch e.typ {
	case "turn.started":
		s.c.Speak(adapters.Main, "") // agents' turns are mixed in, unmarked, up to 0.106: an open one stays
	case "turn.completed":
		s.usage(adapters.Fields(e.data, "usage")[0])
		s.end(protocol.StatusCompleted)
	case "turn.failed":
		s.fail(errorText(adapters.Fields(e.data, "error")[0]))
		s.end(protocol.StatusFailed)
	case "error":
		s.fail(adapters.String(adapters.Fields(e.data, "message")[0]))
	case "item.started", "item.updated", "item.completed":
		s.mapItem(e.typ, adapters.Fields(e.data, "item")[0])
	}
}

func (s *streamSession) next() int {
	s.ord++
	return s.ord - 1
}

func (s *streamSession) end(status protocol.Status) {
	s.c.EndTurn(status)
	s.Fail, s.Text = "", false
}

// fail shows an error once; many are repeated in the turn's end.
func (s *streamSession) fail(text string) {
	if text == "" || text == s.Fail {
		return
	}
	s.Fail = text
	s.c.Speak(adapters.Main, "")
	s.c.Service(adapters.Main, s.next(), text)
}

// usage takes a turn's count, which covers the thread's whole life: what is reported is the difference.
func (s *streamSession) usage(raw []byte) {
	v := adapters.Fields(raw, "input_tokens", "cached_input_tokens", "output_tokens")
	total := [3]int64{adapters.Int(v[0]), adapters.Int(v[1]), adapters.Int(v[2])}
	d := total
	if total[0] >= s.Used[0] && total[1] >= s.Used[1] && total[2] >= s.Used[2] {
		for i := range d {
			d[i] -= s.Used[i]
		}
	}
	s.Used = total
	s.c.Usage(s.c.Ident(), tokens(d[0], d[1], d[2], 0))
}

func (s *streamSession) say(text string, thinking bool) {
	s.c.Text(adapters.Main, "", s.next(), text, thinking, adapters.Extra{})
	s.Text = !thinking
}

// closing is the status of a turn that nothing but the next one or the stream's end closes.
func (s *streamSession) closing(otherwise protocol.Status) protocol.Status {
	if s.Old && s.Text && s.c.OpenCalls(adapters.Main) == 0 {
		return protocol.StatusCompleted
	}
	return otherwise
}

func (s *streamSession) startCall(t adapters.Tool) {
	if t.Call == "" {
		t.Call = "call-" + strconv.FormatUint(adapters.Hash(s.c.Ident()), 36)
	}
	s.c.ToolStart(adapters.Main, "", s.next(), t, adapters.Extra{})
	s.Text = false
}

// mapItem maps an item. One that was not announced, or that changed, is shown when it is told of.
func (s *streamSession) mapItem(what string, it []byte) {
	v := adapters.Fields(it, "type", "id", "text", "message")
	typ, id := adapters.String(v[0]), adapters.String(v[1])
	done := what == "item.completed"
	switch typ {
	case "agent_message", "plan":
		if done {
			s.say(adapters.String(v[2]), false)
		}
	case "reasoning":
		if done {
			s.say(adapters.String(v[2]), true)
		}
	case "error":
		if done {
			s.fail(adapters.String(v[3]))
		}
	case "todo_list":
		if !done {
			s.startCall(todoTool(id, adapters.Fields(it, "items")[0]))
			s.c.ToolEnd(adapters.Main, id)
		}
	default:
		if what == "item.updated" {
			return
		}
		if done && s.c.ToolEnd(adapters.Main, id) {
			return
		}
		t, ok := s.streamTool(typ, id, it)
		if !ok {
			s.c.Count("stream item " + typ)
			return
		}
		s.startCall(t)
		if done {
			s.c.ToolEnd(adapters.Main, t.Call)
		}
	}
}

func (s *streamSession) streamTool(typ, id string, it []byte) (adapters.Tool, bool) {
	switch typ {
	case "command_execution":
		return bashTool(id, shellText(adapters.Fields(it, "command")[0]), s.c.S.Facts.Cwd, nil, ""), true
	case "file_change":
		changes := map[string]change{}
		adapters.Elements(adapters.Fields(it, "changes")[0], func(_ int, raw []byte) bool {
			v := adapters.Fields(raw, "path", "kind")
			changes[adapters.String(v[0])] = change{Type: adapters.String(v[1])}
			return true
		})
		return patchTool(id, changes), true
	case "mcp_tool_call":
		v := adapters.Fields(it, "server", "tool", "arguments")
		return plainTool(id, "mcp__"+adapters.String(v[0])+"__"+adapters.String(v[1]), v[2]), true
	case "web_search":
		v := adapters.Fields(it, "query", "action")
		return webSearch(id, adapters.String(v[0]), v[1]), true
	case "collab_tool_call":
		v := adapters.Fields(it, "tool", "prompt", "receiver_thread_ids")
		tool, prompt := adapters.String(v[0]), adapters.String(v[1])
		if tool == "spawn_agent" {
			return spawnTool(id, "", adapters.Encode(map[string]string{"message": prompt})), true
		}
		args := map[string]any{}
		if prompt != "" {
			args["prompt"] = prompt
		}
		if len(v[2]) > 0 && v[2][0] == '[' && json.Valid(v[2]) {
			args["targets"] = json.RawMessage(v[2])
		}
		return plainTool(id, tool, adapters.Encode(args)), true
	}
	return adapters.Tool{}, false
}

// todoTool is a plan in the form of the update_plan tool.
func todoTool(id string, raw []byte) adapters.Tool {
	type step struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	}
	plan := []step{}
	adapters.Elements(raw, func(_ int, e []byte) bool {
		v := adapters.Fields(e, "text", "completed")
		st := step{adapters.String(v[0]), "pending"}
		if adapters.Bool(v[1]) {
			st.Status = "completed"
		}
		plan = append(plan, st)
		return true
	})
	return plainTool(id, "update_plan", adapters.Encode(map[string]any{"plan": plan}))
}

// Observe implements adapters.Session: the end of the pipe, or of the process, ends an open turn.
func (s *streamSession) Observe(o adapters.Observation, now int64) {
	s.Now = now
	s.c.SetNow(now)
	if o.Kind == adapters.ObserveEnd || o.Kind == adapters.ObserveProcess && !o.Process.Alive {
		s.end(s.closing(protocol.StatusFailed))
	}
}

// Tick implements adapters.Session: nothing here depends on the clock.
func (s *streamSession) Tick(now int64, _ bool) { s.Now = now }

// Wake implements adapters.Session.
func (s *streamSession) Wake() int64 { return 0 }

// Reset implements adapters.Session.
func (s *streamSession) Reset(adapters.Place) {}

// Take implements adapters.Session.
func (s *streamSession) Take() adapters.Output { return s.c.Take() }

// Status implements adapters.Session.
func (s *streamSession) Status() adapters.Status { return s.c.Status() }

// Facts implements adapters.Session.
func (s *streamSession) Facts() adapters.Facts { return s.c.S.Facts }

// Save implements adapters.Session.
func (s *streamSession) Save() ([]byte, error) { return json.Marshal(s.streamState) }
