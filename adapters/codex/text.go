package codex

import (
	"strings"

	"github.com/happyd/happyd/adapters"
)

// injected are the starts of user-role texts that Codex puts into the conversation itself.
var injected = []string{
	"<environment_context", "# AGENTS.md instructions for ", "<INSTRUCTIONS>", "<user_instructions>", "<permissions instructions>",
	"<skills_instructions>", "<turn_aborted>", "<subagent_notification>", "<user_shell_command>", "<user_action>",
	"<codex_internal_context", "<goal_context>", "<recommended_plugins>", "<image ", "<image>", "</image>", "<skill>", "<apps_instructions>",
	"<plugins_instructions>", "<multi_agent_mode>", "<collaboration_mode>", "<personality_spec>", "<model_switch>", "<hook_prompt", "<ENVIRONMENT_CONTEXT",
}

func isInjected(s string) bool {
	s = strings.TrimSpace(s)
	for _, p := range injected {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// userText is what a person typed in a user-role message: from 0.150 on Codex marks each part with its kind, before its own
// additions are known by how they begin.
func userText(p []byte) (text string, images int) {
	v := adapters.Fields(p, "content", "internal_chat_message_metadata_passthrough")
	var kinds []string
	adapters.Elements(adapters.Fields(v[1], "content_item_kinds")[0], func(_ int, raw []byte) bool {
		kinds = append(kinds, adapters.String(raw))
		return true
	})
	var parts []string
	if len(v[0]) > 0 && v[0][0] == '"' {
		if t := adapters.String(v[0]); !isInjected(t) {
			parts = append(parts, t)
		}
	}
	adapters.Elements(v[0], func(i int, raw []byte) bool {
		f := adapters.Fields(raw, "type", "text")
		kind := ""
		if i < len(kinds) {
			kind = kinds[i]
		}
		if kind != "" && kind != "user.text" && kind != "user.image" {
			return true
		}
		switch adapters.String(f[0]) {
		case "input_text", "text":
			if t := adapters.String(f[1]); !isInjected(t) {
				parts = append(parts, t)
			}
		case "input_image", "image", "local_image":
			images++
		}
		return true
	})
	return strings.TrimSpace(strings.Join(parts, "\n")), images
}

// hasContext says whether a user-role message carries the block that Codex writes where a history begins.
func hasContext(p []byte) bool {
	found := false
	adapters.Elements(adapters.Fields(p, "content")[0], func(_ int, raw []byte) bool {
		t := strings.TrimSpace(adapters.String(adapters.Fields(raw, "text")[0]))
		found = found || strings.HasPrefix(t, "<environment_context")
		return !found
	})
	return found
}

// parts joins the strings or the "text" members of an array.
func parts(raw []byte, sep string) string {
	if len(raw) > 0 && raw[0] == '"' {
		return adapters.String(raw)
	}
	var out []string
	adapters.Elements(raw, func(_ int, e []byte) bool {
		t := adapters.String(e)
		if t == "" {
			t = adapters.String(adapters.Fields(e, "text")[0])
		}
		if strings.TrimSpace(t) != "" {
			out = append(out, t)
		}
		return true
	})
	return strings.Join(out, sep)
}

// count returns the length of a JSON array.
func count(raw []byte) int {
	n := 0
	adapters.Elements(raw, func(int, []byte) bool { n++; return true })
	return n
}

// withImages adds a line for each picture that came with a text.
func withImages(text string, n int) string {
	for range n {
		text = strings.TrimSpace(text + "\n[image]")
	}
	return text
}

// errorText is the message of an error, which is a string or an object.
func errorText(raw []byte) string {
	if t := adapters.String(raw); t != "" {
		return t
	}
	return adapters.String(adapters.Fields(raw, "message")[0])
}
