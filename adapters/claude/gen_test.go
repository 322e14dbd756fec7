package claude_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"

	"github.com/happyd/happyd/protocol"
)

// family says how a range of versions writes its logs.
type family struct {
	version  string
	tool     string // name of the tool that spawns
	inline   bool   // children in the main file
	flat     bool   // children's files beside the session
	prompt   bool   // children's files have their prompt
	sidecar  int    // 0 none, 1 description only, 2 with the call's id
	stops    int    // 0 never, 1 on the last block of a message, 2 on every block
	duration bool   // turn_duration
	queue    bool   // queued prompts leave an attachment
	async    bool   // background agents
	nests    bool   // agents spawn agents
	note     bool   // notifications carry their origin
}

var families = []family{
	{version: "1.0.35", tool: "Task", inline: true, prompt: true, stops: 1},
	{version: "2.0.42", tool: "Task", flat: true, stops: 2},
	{version: "2.0.77", tool: "Task", flat: true, prompt: true, stops: 1},
	{version: "2.1.37", tool: "Task", prompt: true},
	{version: "2.1.63", tool: "Agent", prompt: true, stops: 1, async: true},
	{version: "2.1.104", tool: "Agent", prompt: true, sidecar: 1, stops: 2, queue: true, async: true},
	{version: "2.1.205", tool: "Agent", prompt: true, sidecar: 2, stops: 2, queue: true, async: true, nests: true},
	{version: "2.1.332", tool: "Agent", prompt: true, sidecar: 2, stops: 2, duration: true, queue: true, async: true, nests: true, note: true},
}

// world writes one random but plausible session. Every text it says is unique, so that what comes out can be compared with what
// went in: who said it, and how often.
type world struct {
	t     *rapid.T
	f     family
	dir   string // of the session's project
	sid   string
	clock int64 // Unix ms
	n     int
	files map[string][]string
	says  map[string]string // text -> id of the call whose agent says it, "" = main thread or user
	agent []*agent          // background agents that may still be woken or reported
	last  string            // promptId
}

// agent is one subagent's file.
type agent struct {
	id, call, path, parent string // parent is the id of the agent that spawned it
	uuid                   string // of its latest record
	depth                  int
	running                bool
}

func (w *world) next(prefix string) string { w.n++; return fmt.Sprintf("%s%04d", prefix, w.n) }

// chance is true in one of n cases.
func (w *world) chance(n int) bool { return rapid.IntRange(0, n-1).Draw(w.t, "chance") == 0 }

func (w *world) count(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(w.t, "count") }

// put appends a record to the file of an agent, or to the main file.
func (w *world) put(a *agent, typ string, body map[string]any) {
	w.clock += int64(w.count(1, 400))
	uuid := fmt.Sprintf("%08d-0000-4000-8000-000000000000", w.n)
	w.n++
	rec := map[string]any{
		"type": typ, "uuid": uuid, "timestamp": time.UnixMilli(w.clock).UTC().Format("2006-01-02T15:04:05.000Z"), "sessionId": w.sid,
		"cwd": "/home/ada/lab", "version": w.f.version, "isSidechain": a != nil, "parentUuid": nil, "promptId": w.last,
	}
	path := w.sid + ".jsonl"
	if a != nil {
		path = a.path
		if !w.f.inline {
			rec["agentId"] = a.id
		} else if a.uuid != "" {
			rec["parentUuid"] = a.uuid
		}
		a.uuid = uuid
	}
	for k, v := range body {
		rec[k] = v
	}
	w.line(path, rec)
}

func (w *world) line(path string, rec map[string]any) {
	b, err := json.Marshal(rec)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files[path] = append(w.files[path], string(b))
}

// say returns a new text, remembered as said in the thread of a call.
func (w *world) say(a *agent) string {
	text, call := w.next("text "), ""
	if a != nil {
		call = a.call
	}
	w.says[text] = call
	return text
}

// message writes one API message block by block.
func (w *world) message(a *agent, stop string, blocks ...map[string]any) {
	id := w.next("msg_")
	for i, b := range blocks {
		var reason any
		if w.f.stops == 2 || w.f.stops == 1 && i == len(blocks)-1 {
			reason = stop
		}
		w.put(a, "assistant", map[string]any{"message": map[string]any{
			"id": id, "role": "assistant", "model": "claude-lab", "content": []any{b}, "stop_reason": reason,
			"usage": map[string]any{"input_tokens": 5, "output_tokens": w.n, "service_tier": nil},
		}})
	}
}

func textBlock(s string) map[string]any { return map[string]any{"type": "text", "text": s} }

func (w *world) user(a *agent, text string, more map[string]any) {
	body := map[string]any{"message": map[string]any{"role": "user", "content": text}}
	for k, v := range more {
		body[k] = v
	}
	w.put(a, "user", body)
}

func (w *world) result(a *agent, call string, isError bool, text string, tur any) {
	body := map[string]any{"message": map[string]any{"role": "user", "content": []any{map[string]any{
		"type": "tool_result", "tool_use_id": call, "is_error": isError, "content": []any{textBlock(text)},
	}}}}
	if a == nil && tur != nil {
		body["toolUseResult"] = tur
	}
	w.put(a, "user", body)
}

// noise writes records that mean nothing.
func (w *world) noise() {
	if w.chance(4) {
		w.put(nil, "attachment", map[string]any{"attachment": map[string]any{"type": "environment", "x": strings.Repeat("y", 50)}})
	}
	if w.chance(6) {
		w.line(w.sid+".jsonl", map[string]any{"type": "mode", "mode": "normal"})
	}
}

func call(id, name string, input map[string]any) map[string]any {
	return map[string]any{"type": "tool_use", "id": id, "name": name, "input": input}
}

// work writes what an agent (or the main thread) does in one run: texts, tools and subagents. It reports false where the run was
// broken off with a call left open.
func (w *world) work(a *agent, depth int) bool {
	for range w.count(0, 3) {
		w.noise()
		switch w.count(0, 5) {
		case 0:
			w.message(a, "tool_use", textBlock(w.say(a)), call(w.next("toolu_tool_long_id_"), "Bash", map[string]any{"command": "true"}))
			if w.chance(12) {
				return false
			}
			w.result(a, fmt.Sprintf("toolu_tool_long_id_%04d", w.callBefore(a)), w.chance(4), "output", map[string]any{"stdout": "x"})
		case 1, 2:
			if a == nil || w.f.nests && depth < 3 {
				if !w.spawn(a, depth) {
					return false
				}
			}
		case 3:
			if a == nil {
				w.queued()
			}
		case 4:
			w.message(a, "tool_use", map[string]any{"type": "thinking", "thinking": w.say(a)}, call("srv"+w.next("toolu_long_long_"), "Read", map[string]any{"file_path": "/x"}))
		case 5:
			if a == nil {
				w.put(nil, "system", map[string]any{"subtype": "api_error", "retryAttempt": 1, "maxRetries": 10})
			}
		}
	}
	return true
}

// callBefore is the number in the id of the tool that the latest record of a file calls.
func (w *world) callBefore(a *agent) int {
	path := w.sid + ".jsonl"
	if a != nil {
		path = a.path
	}
	lines := w.files[path]
	_, rest, _ := strings.Cut(lines[len(lines)-1], "toolu_tool_long_id_")
	n := 0
	_, _ = fmt.Sscanf(rest[:4], "%d", &n)
	return n
}

// queued writes a prompt that is taken up in the middle of a run, or taken back.
func (w *world) queued() {
	text := w.next("queued ")
	q := func(op string, more map[string]any) {
		rec := map[string]any{"type": "queue-operation", "operation": op, "timestamp": time.UnixMilli(w.clock).UTC().Format("2006-01-02T15:04:05.000Z"), "sessionId": w.sid}
		for k, v := range more {
			rec[k] = v
		}
		w.line(w.sid+".jsonl", rec)
	}
	q("enqueue", map[string]any{"content": text})
	switch {
	case w.chance(3):
		q("popAll", map[string]any{"content": text})
	case w.f.queue:
		q("remove", map[string]any{"content": text, "reason": "absorbed_mid_turn"})
		w.put(nil, "attachment", map[string]any{"attachment": map[string]any{"type": "queued_command", "prompt": text, "commandMode": "prompt", "origin": map[string]any{"kind": "human"}}})
		w.says[text] = ""
	default:
		q("remove", nil)
		w.says[text] = ""
	}
}

// turn writes one run of the main thread.
func (w *world) turn() {
	switch {
	case len(w.agent) > 0 && w.chance(2):
		k := w.agent[w.count(0, len(w.agent)-1)]
		if k.running {
			w.report(k, k.call, rapid.SampledFrom([]string{"completed", "failed", "killed"}).Draw(w.t, "status"))
		} else if w.f.sidecar == 2 {
			w.wake(k)
			return
		}
	case w.chance(6):
		w.last = w.next("prompt-id-")
		cmd := w.next("/custom")
		w.user(nil, "<command-message>x</command-message>\n<command-name>"+cmd+"</command-name>", nil)
		w.says[cmd] = ""
		w.user(nil, "body of a skill", map[string]any{"isMeta": true})
	default:
		w.last = w.next("prompt-id-")
		w.user(nil, w.say(nil), nil)
	}
	if w.work(nil, 0) {
		w.end()
	}
}

// end writes the end of a turn.
func (w *world) end() {
	switch w.count(0, 9) {
	case 0:
		w.user(nil, "[Request interrupted by user]", nil)
	case 1:
		w.put(nil, "assistant", map[string]any{"isApiErrorMessage": true, "message": map[string]any{"id": w.next("msg_"), "model": "<synthetic>", "stop_reason": "stop_sequence", "content": []any{textBlock(w.say(nil))}}})
	case 2: // it just stops
	default:
		w.message(nil, "end_turn", textBlock(w.say(nil)))
		if w.f.duration {
			w.put(nil, "system", map[string]any{"subtype": "turn_duration", "durationMs": 5})
		}
	}
	w.clock += int64(w.count(0, 10_000))
}

// newWorld draws a session and writes it below a new home.
func newWorld(t *rapid.T, home string) *world {
	w := &world{
		t: t, f: rapid.SampledFrom(families).Draw(t, "family"), sid: "5e551000-0000-4000-8000-000000000001", clock: 1_772_445_600_000,
		files: map[string][]string{}, says: map[string]string{}, dir: filepath.Join(home, "projects", "-home-ada-lab"),
	}
	for range w.count(1, 5) {
		w.turn()
	}
	for path, lines := range w.files {
		path = filepath.Join(w.dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// heard checks that every text was said once, and by whom it was.
func (w *world) heard(envs []protocol.Envelope) (bad []string) {
	got := map[string]int{}
	for _, e := range envs {
		if e.Ev.T != protocol.TypeText && e.Ev.T != protocol.TypeService {
			continue
		}
		call, ok := w.says[e.Ev.Text]
		if !ok {
			continue
		}
		got[e.Ev.Text]++
		want := ""
		if call != "" {
			want = protocol.SubagentID("claude", call)
		}
		if e.Subagent != want {
			bad = append(bad, fmt.Sprintf("%q of call %q came from subagent %q", e.Ev.Text, call, e.Subagent))
		}
	}
	for text := range w.says {
		if got[text] != 1 {
			bad = append(bad, fmt.Sprintf("%q came %d times", text, got[text]))
		}
	}
	return bad
}
