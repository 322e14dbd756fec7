package claude

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// spawns says which tools start a subagent. Others with "Task" in their name are to-do lists.
func spawns(name string) bool { return name == "Task" || name == "Agent" }

// describe gives a tool call its short title and its sentence: what the agent says it does, else the command or path.
func describe(name string, input json.RawMessage) (title, description string) {
	v := adapters.Fields(input, "description", "command", "file_path", "path", "pattern", "url", "query", "notebook_path", "skill", "subject", "prompt", "plan", "name")
	str := func(i int) string { return strings.TrimSpace(adapters.String(v[i])) }
	desc, cmd, file, dir, pattern := str(0), str(1), str(2), str(3), str(4)
	if file == "" {
		file = str(7)
	}
	base := func(p string) string { return path.Base(strings.ReplaceAll(p, `\`, "/")) }
	switch {
	case spawns(name) || name == "Workflow":
		title, description = desc, desc
	case cmd != "":
		title, description = desc, desc
		if desc == "" {
			title, description = cmd, cmd
		}
	case file != "":
		title, description = name+" "+base(file), file
	case pattern != "":
		title, description = name+" "+pattern, pattern
		if dir != "" {
			description += " in " + dir
		}
	case str(5) != "":
		title, description = str(5), str(5)
	case str(6) != "":
		title, description = str(6), str(6)
	case str(8) != "":
		title, description = str(8), str(8)
	case str(9) != "":
		title, description = str(9), str(9)
	case dir != "":
		title, description = name+" "+base(dir), dir
	case desc != "":
		title, description = desc, desc
	default:
		title = toolTitle(name)
	}
	if title == "" {
		title = toolTitle(name)
	}
	return title, description
}

// toolTitle makes a readable name of mcp__server__tool.
func toolTitle(name string) string {
	if p := strings.SplitN(name, "__", 3); len(p) == 3 && p[0] == "mcp" {
		return p[1] + ": " + strings.ReplaceAll(p[2], "_", " ")
	}
	return name
}
