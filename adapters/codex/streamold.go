package codex

import (
	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// mapOld maps a record of the layout before 0.44: the settings, the prompt, then events.
func (s *streamSession) mapOld(e *event) {
	s.Old = true
	switch e.typ {
	case "":
		text := adapters.String(adapters.Fields(e.data, "prompt")[0])
		s.c.User(s.next(), text, adapters.Extra{})
		if f := &s.c.S.Facts; f.Title == "" && text != "" {
			f.Title, f.TitleAt = protocol.Truncate(protocol.CleanText(text), maxTitle), s.Now
			s.c.Changed()
		}
	case "task_started":
		if s.c.S.Turn != nil {
			s.end(s.closing(protocol.StatusCancelled))
		}
		s.c.Speak(adapters.Main, "")
	case "task_complete":
		s.end(protocol.StatusCompleted)
	case "turn_aborted":
		s.end(protocol.StatusCancelled)
	case "agent_message":
		s.say(adapters.String(adapters.Fields(e.data, "message")[0]), false)
	case "agent_reasoning", "agent_reasoning_raw_content":
		s.say(adapters.String(adapters.Fields(e.data, "text")[0]), true)
	case "stream_error":
		s.fail(adapters.String(adapters.Fields(e.data, "message")[0]))
	case "error":
		s.fail(adapters.String(adapters.Fields(e.data, "message")[0]))
		s.end(protocol.StatusFailed) // nothing follows it
	case "token_count":
		s.oldUsage(e.data)
	case "plan_update":
		t := plainTool("", "update_plan", e.data)
		t.Args = adapters.Encode(map[string]any{"plan": rawList(adapters.Fields(e.data, "plan")[0])})
		t.Call = "plan-" + s.c.Ident()
		s.startCall(t)
		s.c.ToolEnd(adapters.Main, t.Call)
	default:
		s.oldCall(e)
	}
}

// oldCall maps the begin and the end of a call; an end without a begin shows both.
func (s *streamSession) oldCall(e *event) {
	v := adapters.Fields(e.data, "call_id", "command", "cwd", "parsed_cmd", "changes", "invocation", "query")
	id := adapters.String(v[0])
	if s.c.ToolEnd(adapters.Main, id) || id == "" {
		return
	}
	switch e.typ {
	case "exec_command_begin":
		s.startCall(bashTool(id, shellText(v[1]), adapters.String(v[2]), v[3], ""))
	case "patch_apply_begin":
		s.startCall(patchTool(id, changesOf(v[4])))
	case "mcp_tool_call_begin":
		i := adapters.Fields(v[5], "server", "tool", "arguments")
		s.startCall(plainTool(id, "mcp__"+adapters.String(i[0])+"__"+adapters.String(i[1]), i[2]))
	case "web_search_end": // its begin does not tell what was searched for
		s.startCall(webSearch(id, adapters.String(v[6]), nil))
		s.c.ToolEnd(adapters.Main, id)
	}
}

func (s *streamSession) oldUsage(data []byte) {
	count, window := data, int64(0)
	if info := adapters.Fields(data, "info")[0]; info != nil {
		v := adapters.Fields(info, "last_token_usage", "model_context_window")
		count, window = v[0], adapters.Int(v[1])
	}
	v := adapters.Fields(count, "input_tokens", "cached_input_tokens", "output_tokens")
	s.c.Usage(s.c.Ident(), tokens(adapters.Int(v[0]), adapters.Int(v[1]), adapters.Int(v[2]), window))
}

// rawList returns a JSON array as it stands, anything else as an empty one.
func rawList(raw []byte) any {
	out := []any{}
	adapters.Elements(raw, func(_ int, e []byte) bool {
		v := adapters.Fields(e, "step", "status")
		out = append(out, map[string]string{"step": adapters.String(v[0]), "status": adapters.String(v[1])})
		return true
	})
	return out
}
