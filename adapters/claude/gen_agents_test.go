package claude_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// spawn writes a message with one to three agents and what becomes of them.
func (w *world) spawn(a *agent, depth int) bool {
	n := w.count(1, 3)
	same := w.f.prompt && w.chance(3)
	background := w.f.async && a == nil && w.chance(2)
	var kids []*agent
	var blocks []map[string]any
	prompt := w.next("prompt ")
	for i := range n {
		k := &agent{call: w.next("toolu_agent_long_id_"), id: fmt.Sprintf("a%016d", w.n), depth: depth + 1, running: true}
		if a != nil {
			k.parent = a.id
		}
		if i > 0 && !same {
			prompt = w.next("prompt ")
		}
		in := map[string]any{"description": "job " + k.id, "prompt": prompt, "subagent_type": "general-purpose"}
		blocks = append(blocks, call(k.call, w.f.tool, in))
		switch {
		case w.f.inline:
			k.path = w.sid + ".jsonl"
		case w.f.flat:
			k.path = "agent-" + k.id + ".jsonl"
		default:
			k.path = w.sid + "/subagents/agent-" + k.id + ".jsonl"
		}
		kids = append(kids, k)
	}
	w.message(a, "tool_use", blocks...)
	for i, k := range kids {
		w.meta(k, "job "+k.id, false)
		in := blocks[i]["input"].(map[string]any)
		if w.f.prompt {
			w.user(k, in["prompt"].(string), nil)
		} else {
			w.message(k, "tool_use", textBlock(w.say(k)))
		}
	}
	for _, k := range kids {
		if background {
			w.result(nil, k.call, false, "Async agent launched successfully.", map[string]any{"isAsync": true, "status": "async_launched", "agentId": k.id})
		}
		text, failed := w.run(k)
		if background {
			w.agent = append(w.agent, k)
			continue
		}
		if failed {
			w.result(a, k.call, true, "Agent terminated early", "Error: Agent terminated early")
			continue
		}
		if w.f.prompt && a == nil && w.chance(15) {
			w.user(nil, "[Request interrupted by user]", nil)
			return false
		}
		if w.f.inline {
			w.result(a, k.call, false, text, map[string]any{"totalDurationMs": 5})
			continue
		}
		w.result(a, k.call, false, text+"\nagentId: "+k.id+" (x)\n<usage></usage>", map[string]any{"status": "completed", "agentId": k.id})
	}
	return true
}

// run writes one run of an agent and its end.
func (w *world) run(k *agent) (text string, failed bool) {
	if w.f.prompt && !w.work(k, k.depth) {
		w.user(k, "[Request interrupted by user]", nil)
		return "broken off", true
	}
	if w.f.prompt && w.chance(8) { // without its prompt only its result links an agent
		w.put(k, "assistant", map[string]any{"isApiErrorMessage": true, "message": map[string]any{"id": w.next("msg_"), "model": "<synthetic>", "stop_reason": "stop_sequence", "content": []any{textBlock("API Error: 400")}}})
		return "", true
	}
	text = w.say(k)
	w.message(k, "end_turn", textBlock(text))
	return text, false
}

// meta writes an agent's sidecar; the tests read it at any time.
func (w *world) meta(k *agent, title string, finished bool) {
	if w.f.sidecar == 0 {
		return
	}
	m := map[string]any{"agentType": "general-purpose", "description": title}
	if w.f.sidecar == 2 {
		m["toolUseId"], m["spawnDepth"] = k.call, k.depth
		if k.parent != "" && w.f.note {
			m["parentAgentId"] = k.parent
		}
	}
	if finished {
		m["finished"] = true
	}
	b, _ := json.Marshal(m)
	w.files[strings.TrimSuffix(k.path, ".jsonl")+".meta.json"] = []string{string(b)}
}

// report writes the notification of a background agent's end, in one or more of its ways.
func (w *world) report(k *agent, call, status string) {
	k.running = false
	text := "<task-notification>\n<task-id>" + k.id + "</task-id>\n<tool-use-id>" + call + "</tool-use-id>\n<status>" + status + "</status>\n</task-notification>"
	w.last = w.next("prompt-id-")
	more := map[string]any{}
	if w.f.note {
		more["origin"] = map[string]any{"kind": "task-notification"}
	}
	if w.chance(2) {
		at := time.UnixMilli(w.clock).UTC().Format("2006-01-02T15:04:05.000Z")
		w.line(w.sid+".jsonl", map[string]any{"type": "queue-operation", "operation": "enqueue", "content": text, "timestamp": at})
		w.line(w.sid+".jsonl", map[string]any{"type": "queue-operation", "operation": "dequeue", "timestamp": at})
	}
	w.user(nil, text, more)
}

// wake sends a finished agent a message, and reports the end of its new run.
func (w *world) wake(k *agent) {
	w.last = w.next("prompt-id-")
	w.user(nil, w.say(nil), nil)
	id := w.next("toolu_send_long_id_")
	w.message(nil, "tool_use", call(id, "SendMessage", map[string]any{"to": k.id}))
	w.result(nil, id, false, "sent", map[string]any{"success": true, "resumedAgentId": k.id})
	w.end()
	w.user(k, "go on", map[string]any{"isMeta": true, "origin": map[string]any{"kind": "coordinator"}})
	w.run(k)
	w.report(k, id, "completed")
	w.end()
}
