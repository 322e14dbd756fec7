package codex

import (
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// bash is a shell command under the name that the app knows.
func (s *session) bash(id string, command []byte, cwd string, parsed []byte, why string) adapters.Tool {
	if cwd == "" {
		cwd = s.th.Cwd
	}
	if cwd == "" {
		cwd = s.c.S.Facts.Cwd
	}
	return bashTool(id, shellText(command), cwd, parsed, why)
}

func bashTool(id, text, cwd string, parsed []byte, why string) adapters.Tool {
	args := map[string]any{"command": text}
	if cwd != "" {
		args["cwd"] = cwd
	}
	if len(parsed) > 0 && parsed[0] == '[' && json.Valid(parsed) {
		args["parsed_cmd"] = json.RawMessage(parsed)
	}
	desc := why
	if desc == "" {
		desc = text
	}
	title := text
	if title == "" {
		title = "Run command"
	}
	return adapters.Tool{Call: id, Name: "CodexBash", Title: title, Description: desc, Args: adapters.Encode(args)}
}

// shellText is a command as a person would type it: of a shell's -c only the script.
func shellText(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return unwrapShell(adapters.String(raw))
	}
	var argv []string
	adapters.Elements(raw, func(_ int, e []byte) bool {
		argv = append(argv, adapters.String(e))
		return true
	})
	if len(argv) == 3 && isShell(argv[0]) && (argv[1] == "-lc" || argv[1] == "-c" || strings.EqualFold(argv[1], "-Command")) {
		return argv[2]
	}
	for i, a := range argv {
		if a == "" || strings.ContainsAny(a, " \t\n'\"$&|;<>()*?\\`") {
			argv[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(argv, " ")
}

func isShell(s string) bool {
	switch strings.TrimSuffix(path.Base(strings.ReplaceAll(s, `\`, "/")), ".exe") {
	case "bash", "sh", "zsh", "dash", "ksh", "fish", "pwsh", "powershell":
		return true
	}
	return false
}

// unwrapShell takes `/bin/bash -lc '…'` off a command line.
func unwrapShell(s string) string {
	shell, rest, ok := strings.Cut(s, " ")
	if !ok || !isShell(shell) {
		return s
	}
	flag, script, ok := strings.Cut(rest, " ")
	if !ok || flag != "-lc" && flag != "-c" {
		return s
	}
	switch {
	case len(script) >= 2 && script[0] == '\'' && script[len(script)-1] == '\'':
		return strings.ReplaceAll(script[1:len(script)-1], `'\''`, "'")
	case len(script) >= 2 && script[0] == '"' && script[len(script)-1] == '"':
		return unescape.Replace(script[1 : len(script)-1])
	}
	return script
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`")

// filePath turns a file URI into a path.
func filePath(s string) string {
	if !strings.HasPrefix(s, "file://") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil || u.Path == "" {
		return strings.TrimPrefix(s, "file://")
	}
	return u.Path
}

func base(p string) string { return path.Base(strings.ReplaceAll(p, `\`, "/")) }

func viewImage(id, file string) adapters.Tool {
	return adapters.Tool{Call: id, Name: "view_image", Title: "view_image " + base(file), Description: file, Args: adapters.Encode(map[string]string{"path": file})}
}

func imageGeneration(id, prompt string) adapters.Tool {
	return adapters.Tool{Call: id, Name: "image_generation", Title: "Image generated", Description: prompt, Args: adapters.Encode(map[string]string{"prompt": prompt})}
}

// webSearch is a search, or a page that was opened or searched in.
func webSearch(id, query string, action []byte) adapters.Tool {
	v := adapters.Fields(action, "query", "url", "pattern")
	text := adapters.String(v[0])
	if text == "" {
		text = query
	}
	if u := adapters.String(v[1]); u != "" {
		text = u
		if p := adapters.String(v[2]); p != "" {
			text = p + " in " + u
		}
	}
	args := map[string]any{"query": text}
	if len(action) > 0 && action[0] == '{' && json.Valid(action) {
		args["action"] = json.RawMessage(action)
	}
	title := text
	if title == "" {
		title = "Web search"
	}
	return adapters.Tool{Call: id, Name: "WebSearch", Title: title, Description: title, Args: adapters.Encode(args)}
}

// plainTool is any other tool, under the provider's name.
func plainTool(id, name string, args []byte) adapters.Tool {
	if name == "" {
		name = "tool"
	}
	t := adapters.Tool{Call: id, Name: name, Title: toolTitle(name), Args: object(args)}
	v := adapters.Fields(args, "description", "explanation", "path", "query", "url", "message", "objective", "prompt", "question")
	str := func(i int) string { return strings.TrimSpace(adapters.String(v[i])) }
	switch {
	case name == "view_image" && str(2) != "":
		return viewImage(id, str(2))
	case name == "update_plan":
		t.Title, t.Description = "Plan updated", str(1)
	case name == "request_user_input":
		t.Title = "Question"
		adapters.Elements(adapters.Fields(args, "questions")[0], func(_ int, q []byte) bool {
			t.Description = adapters.String(adapters.Fields(q, "question")[0])
			return false
		})
	default:
		for i := range v {
			if t.Description = str(i); t.Description != "" {
				break
			}
		}
	}
	return t
}

// toolTitle makes a readable name of mcp__server__tool and wait_agent.
func toolTitle(name string) string {
	if p := strings.SplitN(name, "__", 3); len(p) == 3 && p[0] == "mcp" {
		return p[1] + ": " + strings.ReplaceAll(p[2], "_", " ")
	}
	return strings.ReplaceAll(name, "_", " ")
}

// spawnTool is a call that starts an agent. From the second version of the tool on its task is encrypted: then it is left out.
func spawnTool(id, namespace string, args []byte) adapters.Tool {
	v := adapters.Fields(args, "task_name", "message", "agent_type")
	task, message := adapters.String(v[0]), strings.TrimSpace(adapters.String(v[1]))
	var m map[string]json.RawMessage
	if json.Unmarshal(object(args), &m) != nil || m == nil {
		m = map[string]json.RawMessage{}
	}
	if namespace == "collaboration" && len(message) > 64 && !strings.ContainsAny(message, " \n") {
		message = ""
		delete(m, "message")
	}
	t := adapters.Tool{Call: id, Name: "CodexSubagent", Title: task, Description: message, Args: adapters.Encode(m)}
	if t.Title == "" {
		t.Title = firstLine(message)
	}
	if t.Title == "" {
		t.Title = adapters.String(v[2])
	}
	if t.Title == "" {
		t.Title = "Agent"
	}
	return t
}
