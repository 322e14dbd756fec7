package codex

import (
	"encoding/json"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// mapResponse maps one response_item: calls always, messages only in files that have nothing else.
func (s *session) mapResponse(l *line) {
	switch l.sub {
	case "message":
		if s.f.Layer == layerResponses {
			s.mapResponseMessage(l)
		}
	case "reasoning":
		s.mapReasoning(l)
	case "function_call":
		v := adapters.Fields(l.p, "name", "namespace", "arguments")
		args := []byte(adapters.String(v[2]))
		if v[2] != nil && v[2][0] == '{' {
			args = v[2]
		}
		s.call(l.callID(), adapters.String(v[0]), adapters.String(v[1]), args)
	case "custom_tool_call":
		v := adapters.Fields(l.p, "name", "input")
		s.customCall(l.callID(), adapters.String(v[0]), adapters.String(v[1]))
	case "local_shell_call":
		s.localShell(l)
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		s.output(l.callID(), adapters.Fields(l.p, "output")[0])
	case "web_search_call":
		id := l.str("id")
		if id == "" || s.saw(id) {
			s.once(webSearch(id, "", adapters.Fields(l.p, "action")[0]))
		}
	case "image_generation_call":
		if id := l.str("id"); id == "" || s.saw(id) {
			s.once(imageGeneration(id, l.str("revised_prompt")))
		}
	}
}

func (s *session) mapResponseMessage(l *line) {
	id := l.str("id")
	switch l.str("role") {
	case "user":
		text, images := userText(l.p)
		s.user(text, images, id)
	case "assistant":
		text := parts(adapters.Fields(l.p, "content")[0], "")
		if text == "" && l.huge {
			text = tooLong
		}
		s.say(text, false, id)
	}
}

// mapReasoning shows thoughts where nothing else carries them: in files without another layer, and, in the event layer, raw
// thoughts that came without a summary.
func (s *session) mapReasoning(l *line) {
	v := adapters.Fields(l.p, "summary", "content")
	text := parts(v[0], "\n\n")
	switch {
	case s.f.Layer == layerItems || s.f.Layer == layerOpen || s.f.Layer == layerEvents && text != "":
		return
	case text == "":
		text = parts(v[1], "\n\n")
	}
	s.say(text, true, "")
}

// call maps a function call.
func (s *session) call(id, name, namespace string, args []byte) {
	if !s.saw(id) && id != "" {
		return
	}
	if strings.HasPrefix(namespace, "mcp__") && !strings.HasPrefix(name, "mcp__") {
		name = namespace + "__" + name
	}
	switch name {
	case "spawn_agent":
		s.hold(spawnTool(id, namespace, args), true)
		return
	case "close_agent":
		v := adapters.Fields(args, "target", "id")
		s.closedBy(adapters.String(v[0]))
		s.closedBy(adapters.String(v[1]))
	case "shell", "shell_command", "exec_command", "container.exec", "exec", "local_shell":
		v := adapters.Fields(args, "command", "cmd", "workdir", "justification")
		cmd := v[0]
		if cmd == nil {
			cmd = v[1]
		}
		if patch, ok := patchCommand(cmd); ok {
			s.startCall(patchTool(id, parsePatch(patch)))
			return
		}
		if cmd != nil {
			s.startCall(s.bash(id, cmd, adapters.String(v[2]), nil, adapters.String(v[3])))
			return
		}
	case "view_image":
		s.th.Viewed++
	case "apply_patch":
		if in := adapters.String(adapters.Fields(args, "input")[0]); in != "" {
			s.startCall(patchTool(id, parsePatch(in)))
			return
		}
	}
	s.startCall(plainTool(id, name, args))
}

// customCall maps a call with free text as input. A script that the model wrote is held until it is known whether it called tools
// itself: then these are shown and the script is not.
func (s *session) customCall(id, name, input string) {
	if !s.saw(id) && id != "" {
		return
	}
	switch name {
	case "apply_patch":
		s.startCall(patchTool(id, parsePatch(input)))
	case "exec":
		t := adapters.Tool{Call: id, Name: name, Title: "Script", Description: firstLine(input), Args: adapters.Encode(map[string]string{"input": input})}
		if s.f.Layer == layerItems && id != "" {
			s.hold(t, false)
			return
		}
		s.startCall(t)
	default:
		s.startCall(adapters.Tool{Call: id, Name: name, Title: toolTitle(name), Description: firstLine(input), Args: adapters.Encode(map[string]string{"input": input})})
	}
}

func (s *session) localShell(l *line) {
	v := adapters.Fields(l.p, "action", "id")
	id := l.callID()
	if id == "" {
		id = adapters.String(v[1])
	}
	if !s.saw(id) && id != "" {
		return
	}
	a := adapters.Fields(v[0], "command", "working_directory")
	s.startCall(s.bash(id, a[0], adapters.String(a[1]), nil, ""))
}

// output maps what a call returned: its end. Of a spawn it may name the new thread.
func (s *session) output(id string, raw []byte) {
	c := s.th.Pending[id]
	if c == nil {
		s.endCall(id)
		return
	}
	if c.Spawn {
		if child := adapters.String(adapters.Fields([]byte(adapters.String(raw)), "agent_id")[0]); isUUID(child) {
			s.spawned(id, child, "")
		}
	}
	if c = s.th.Pending[id]; c != nil {
		delete(s.th.Pending, id)
		if !c.Nested {
			s.startCall(c.Tool)
		}
	}
	s.endCall(id)
}

func firstLine(s string) string {
	s = strings.TrimSpace(s)
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// object returns args when they are a JSON object; anything else is kept as its text.
func object(args []byte) json.RawMessage {
	if len(strings.TrimSpace(string(args))) == 0 {
		return json.RawMessage(`{}`)
	}
	return adapters.Object(args)
}
